package docker

import "syscall"

// linuxSignal is Linux's number of a signal: Go's package uses the same for those that it has on Windows.
func linuxSignal(sig syscall.Signal) uint32 { return uint32(sig) }
