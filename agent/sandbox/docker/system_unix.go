//go:build unix && !linux

package docker

import "syscall"

// linuxSignal is Linux's number of a signal; BSD systems number these differently.
func linuxSignal(sig syscall.Signal) uint32 {
	switch sig {
	case syscall.SIGBUS:
		return 7
	case syscall.SIGUSR1:
		return 10
	case syscall.SIGUSR2:
		return 12
	case syscall.SIGCHLD:
		return 17
	case syscall.SIGCONT:
		return 18
	case syscall.SIGSTOP:
		return 19
	case syscall.SIGTSTP:
		return 20
	case syscall.SIGURG:
		return 23
	}
	return uint32(sig)
}
