@echo off
rem A program with windows writes to no console: the pipe shows what it says, and waits.
"%~dp0everdict-desktop.exe" install %* | more
pause
