@echo off
"%~dp0everdict-desktop.exe" uninstall | more
pause
