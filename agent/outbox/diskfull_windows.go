package outbox

import (
	"errors"
	"syscall"
)

// ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL of winerror.h.
const (
	errHandleDiskFull syscall.Errno = 39
	errDiskFull       syscall.Errno = 112
)

func isDiskFull(err error) bool {
	return errors.Is(err, errHandleDiskFull) || errors.Is(err, errDiskFull)
}
