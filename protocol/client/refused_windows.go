package client

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// refused also knows the name that Windows' own sockets give it.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, windows.WSAECONNREFUSED)
}
