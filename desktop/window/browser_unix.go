//go:build unix

package window

import (
	"errors"
	"os"
	"syscall"
)

func politely(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
