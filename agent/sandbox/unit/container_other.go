//go:build !linux

package unit

import (
	"context"
	"errors"
)

// Container is the runner's own, which can be emptied after each job on Linux alone.
type Container struct{}

// OpenContainer reports that this system cannot empty a container.
func OpenContainer(...string) (*Container, error) { return nil, errors.ErrUnsupported }

// Empty is never reached.
func (*Container) Empty(context.Context) error { return errors.ErrUnsupported }
