package docker

import "syscall"

func linuxSignal(sig syscall.Signal) uint32 { return uint32(sig) }

func linuxErrno(n uint32) syscall.Errno { return syscall.Errno(n) }
