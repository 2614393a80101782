package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/everdict/everdict/agent/sandbox"
)

// Freeze implements sandbox.ComputeHandle.
func (h *handle) Freeze(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer h.leave()
	pctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	h.mu.Lock()
	switch {
	case h.releasing:
		h.mu.Unlock()
		return sandbox.ErrReleased
	case h.frozen:
		h.mu.Unlock()
		return nil
	}
	h.interrupt = cancel
	h.mu.Unlock()
	h.look(pctx) // a frozen container's init answers no questions
	paused, stopped, err := h.pause(pctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
	if err != nil {
		return fmt.Errorf("docker: freeze %s: %w", h.spec.Attempt, err)
	}
	h.frozen, h.paused, h.stopped, h.thawed = true, paused, stopped, make(chan struct{})
	h.watch.Set(true)
	return nil
}

// pause stops every process. A cgroup v1 freezer gives up on what forks faster than it freezes: then init stops
// everything first, in one step of the kernel's, and what stands still is frozen. Should the engine refuse once more,
// standing still is enough: there is nobody left inside to send SIGCONT. After an error everything runs.
func (h *handle) pause(ctx context.Context) (paused, stopped bool, err error) {
	api := h.engine.api
	if err = api.ContainerPause(ctx, h.id); err == nil {
		return true, false, nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
	defer cancel()
	// The engine may have done it all the same, or in part. Of what runs this is an error without meaning.
	_ = api.ContainerUnpause(undo, h.id)
	if ctx.Err() != nil {
		return false, false, context.Cause(ctx)
	}
	h.mu.Lock()
	l := h.link
	h.mu.Unlock()
	_ = l.send(frameStopAll, 0, 0, nil)
	if berr := l.barrier(ctx); berr != nil {
		_ = l.send(frameGoOn, 0, 0, nil)
		return false, false, errors.Join(err, berr)
	}
	if api.ContainerPause(ctx, h.id) == nil {
		return true, true, nil
	}
	_ = api.ContainerUnpause(undo, h.id)
	if ctx.Err() != nil {
		_ = l.send(frameGoOn, 0, 0, nil)
		return false, false, context.Cause(ctx)
	}
	return false, true, nil
}

// Thaw implements sandbox.ComputeHandle.
func (h *handle) Thaw(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer h.leave()
	h.mu.Lock()
	releasing, frozen, paused, stopped, l := h.releasing, h.frozen, h.paused, h.stopped, h.link
	h.mu.Unlock()
	switch {
	case releasing:
		return sandbox.ErrReleased
	case !frozen:
		return nil
	}
	// The watch goes on first: running time that is not counted would be a way around the timeout.
	h.watch.Set(false)
	if paused {
		ctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
		defer cancel()
		if err := h.engine.api.ContainerUnpause(ctx, h.id); err != nil {
			h.watch.Set(true)
			return fmt.Errorf("docker: thaw %s: %w", h.spec.Attempt, err)
		}
	}
	if stopped {
		_ = l.send(frameGoOn, 0, 0, nil) // over: there is nobody to go on
	}
	h.markThawed()
	return nil
}

func (h *handle) markThawed() {
	h.watch.Set(false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		h.frozen, h.paused, h.stopped = false, false, false
		close(h.thawed)
	}
}

func (h *handle) isFrozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen
}
