//go:build unix && !linux

package docker

import (
	"errors"
	"os"
	"syscall"
)

func stillThere(p *os.Process) bool {
	err := p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, syscall.EPERM)
}
