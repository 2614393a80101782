package docker

import (
	"context"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// FreezeAt implements sandbox.ComputeHandle. A container has no deadline of its own: the engine pauses it when the
// runner says so, and a runner that is stopped says nothing.
func (h *handle) FreezeAt(context.Context, time.Time) error { return sandbox.ErrNoDeadline }
