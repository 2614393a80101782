//go:build !linux

package docker

import "context"

// killFrozen does nothing: the engine runs in a machine of its own.
func (h *handle) killFrozen(context.Context) {}
