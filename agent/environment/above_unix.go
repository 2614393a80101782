//go:build unix

package environment

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// above reports whether a directory, or one of those that it lies in, is wanted. Each is opened from the one below it, so
// that no link, and nobody who moves a directory of the path meanwhile, leads past one.
func above(dir *os.File, wanted func(fs.FileInfo) bool) (bool, error) {
	at, err := dir.Stat()
	if err != nil {
		return false, err
	}
	for {
		if wanted(at) {
			return true, nil
		}
		fd, err := openParent(dir)
		if err != nil {
			return false, err
		}
		parent := os.NewFile(uintptr(fd), "..")
		defer parent.Close()
		up, err := parent.Stat()
		if err != nil || os.SameFile(up, at) { // the root is its own parent
			return false, err
		}
		dir, at = parent, up
	}
}

func openParent(dir *os.File) (fd int, err error) {
	c, err := dir.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := c.Control(func(at uintptr) {
		fd, err = unix.Openat(int(at), "..", openSearch|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir.Name() + "/..", Err: err}
	}
	return fd, nil
}
