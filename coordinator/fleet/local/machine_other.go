//go:build !linux

package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Supported says whether units can be launched on this system.
const Supported = false

// errUnsupported is what nobody sees: Open refuses.
var errUnsupported = fmt.Errorf("local: %w", errors.ErrUnsupported)

type identity struct {
	PID         int
	Start, Boot string
}

func bootID() (string, error)                   { return "", errUnsupported }
func (i *identity) signal(syscall.Signal) error { return errUnsupported }
func held(string) (bool, error)                 { return false, errUnsupported }
func alone() *syscall.SysProcAttr               { return nil }
func capacity() size                            { return size{} }
func kernel() string                            { return "" }

// Keep says that this system has no units.
func Keep(string) int {
	fmt.Fprintln(os.Stderr, errUnsupported)
	return 1
}
