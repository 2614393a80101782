//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
)

// withoutArgument replaces this process by a fresh image of itself whose arguments do not have arg, and which reads link from
// a pipe. It returns only with an error.
func withoutArgument(arg, link string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil { // not os.Pipe: the reader is to be inherited
		return fmt.Errorf("hide the link from other programs: %w", err)
	}
	if _, err := syscall.Write(p[1], []byte(link)); err != nil { // it fits: a pipe takes 4 KiB at the least
		return fmt.Errorf("hide the link from other programs: %w", err)
	}
	if err := syscall.Close(p[1]); err != nil {
		return fmt.Errorf("hide the link from other programs: %w", err)
	}
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(s string) bool { return s == arg || s == "--" })
	args = append([]string{os.Args[0], fmt.Sprintf("--link-fd=%d", p[0])}, args...)
	return fmt.Errorf("hide the link from other programs: %w", syscall.Exec(self, args, os.Environ()))
}
