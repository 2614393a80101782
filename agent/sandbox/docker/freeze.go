package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// Freeze implements sandbox.ComputeHandle.
func (h *handle) Freeze(ctx context.Context) error {
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	h.notice()
	pctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	h.mu.Lock()
	switch {
	case h.releasing:
		h.mu.Unlock()
		return sandbox.ErrReleased
	case h.holds.Has(hold.Freeze), h.paused:
		h.holds.Take(hold.Freeze)
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
	if err != nil && ctx.Err() == nil && errors.Is(pctx.Err(), context.Canceled) {
		err = sandbox.ErrBrokenOff
	}
	if err != nil {
		return fmt.Errorf("docker: freeze %s: %w", h.spec.Attempt, err)
	}
	h.paused, h.stopped = paused, stopped
	h.holds.Take(hold.Freeze)
	return nil
}

// pause stops every process. A cgroup v1 freezer gives up on what forks faster than it freezes: then init stops
// everything first, in one step of the kernel's, and what stands still is frozen. Should the engine refuse once more,
// standing still is enough: there is nobody left inside to send SIGCONT. After an error everything runs.
func (h *handle) pause(ctx context.Context) (paused, stopped bool, err error) {
	api := h.engine.api
	if err = h.askPause(ctx); err == nil && ctx.Err() == nil {
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
	if h.askPause(ctx) == nil && ctx.Err() == nil {
		return true, true, nil
	}
	_ = api.ContainerUnpause(undo, h.id)
	if ctx.Err() != nil {
		_ = l.send(frameGoOn, 0, 0, nil)
		return false, false, context.Cause(ctx)
	}
	return false, true, nil
}

// askPause asks the engine for a pause, and waits a moment longer than ctx for its answer: an engine carries out a
// request that was cut off, and may do so after the unpause that is to undo it.
func (h *handle) askPause(ctx context.Context) error {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stallAfter, cancel) })()
	return h.engine.api.ContainerPause(asking, h.id)
}

// askUnpause asks the engine to let a paused container run. An engine hears of its own pauses and unpauses once more,
// as events, and after a thaw and a freeze in quick succession may for a moment believe the older one: it says "not
// paused" of what stands still. What it says for longer is true: somebody else has let the container run.
func (h *handle) askUnpause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	tick := time.NewTicker(stallAfter / 100)
	defer tick.Stop()
	for began := stopwatch.Now(); ; {
		err := h.engine.api.ContainerUnpause(ctx, h.id)
		if err == nil || !strings.Contains(err.Error(), "is not paused") {
			return err
		}
		if stopwatch.Now().Mono-began.Mono > stallAfter {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Thaw implements sandbox.ComputeHandle.
func (h *handle) Thaw(ctx context.Context) error {
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	h.noticing.Lock()
	defer h.noticing.Unlock()
	err := h.letGo(ctx)
	if err != nil && !errors.Is(err, sandbox.ErrReleased) {
		return fmt.Errorf("docker: thaw %s: %w", h.spec.Attempt, err)
	}
	return err
}

// letGo ends the hold of Freeze. The gate and noticing are held.
func (h *handle) letGo(ctx context.Context) error {
	h.mu.Lock()
	releasing, frozen, paused, stopped, l := h.releasing, h.holds.Has(hold.Freeze), h.paused, h.stopped, h.link
	if frozen && paused && h.passed() {
		// The deadline passed meanwhile. Whom the engine pauses, init need not stop.
		h.holds.Take(hold.Deadline)
		h.holds.Drop(hold.Freeze)
		frozen = false
	}
	h.mu.Unlock()
	switch {
	case releasing:
		return sandbox.ErrReleased
	case !frozen:
		return nil
	}
	if paused {
		if err := h.unpause(ctx); err != nil {
			return err
		}
	}
	h.mu.Lock()
	if h.holds.Only(hold.Freeze) {
		// The watch goes on first: running time that is not counted would be a way around the timeout.
		h.watch.Set(false)
	}
	h.stopped = false
	h.mu.Unlock()
	if stopped {
		_ = l.send(frameGoOn, 0, 0, nil) // over: there is nobody to go on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.Drop(hold.Freeze)
	return nil
}

func (h *handle) isFrozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.Any()
}

// isPaused reports whether init stands still, too, and answers nothing.
func (h *handle) isPaused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paused
}

// freezes are the channels that are closed while the sandbox is frozen, and while it is not.
func (h *handle) freezes() (frozen, thawed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.Frozen(), h.holds.Thawed()
}
