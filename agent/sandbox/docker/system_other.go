//go:build !linux

package docker

import "syscall"

// linuxErrno turns the few errors that a start meets into this system's; others keep Linux's number.
func linuxErrno(n uint32) syscall.Errno {
	switch n {
	case 2:
		return syscall.ENOENT
	case 7:
		return syscall.E2BIG
	case 11:
		return syscall.EAGAIN
	case 12:
		return syscall.ENOMEM
	case 13:
		return syscall.EACCES
	case 20:
		return syscall.ENOTDIR
	case 24:
		return syscall.EMFILE
	}
	return syscall.Errno(n)
}
