//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
)

// errFired is returned by machine.arm when the deadline before has passed.
var errFired = errors.New("process: the deadline has passed")

// FreezeAt implements sandbox.ComputeHandle.
func (h *handle) FreezeAt(ctx context.Context, deadline time.Time) error {
	if h.isReleasing() {
		return sandbox.ErrReleased
	}
	err := h.moveDeadline(ctx, deadline)
	switch {
	case err == nil, errors.Is(err, sandbox.ErrReleased), errors.Is(err, sandbox.ErrNoDeadline):
		return err
	}
	return fmt.Errorf("process: deadline of %s: %w", h.spec.Attempt, err)
}

func (h *handle) moveDeadline(ctx context.Context, deadline time.Time) error {
	if deadline.IsZero() {
		h.m.disarm(h.spec.Attempt)
		return h.goOn(ctx)
	}
	err := h.m.arm(h.spec.Attempt, time.Until(deadline))
	fired := errors.Is(err, errFired)
	if err != nil && !fired {
		return err
	}
	if time.Until(deadline) <= 0 {
		return nil // a deadline that has passed, too, is no word that the sandbox may go on
	}
	if err := h.goOn(ctx); err != nil || !fired {
		return err
	}
	return h.m.arm(h.spec.Attempt, time.Until(deadline))
}

// goOn undoes the freeze of a deadline, unless Freeze holds the sandbox, too.
func (h *handle) goOn(ctx context.Context) error {
	return h.letGo(ctx, hold.Deadline)
}

// letGo ends one of the two holds on the sandbox, and thaws it when there is no other.
func (h *handle) letGo(ctx context.Context, by hold.By) error {
	h.notice()
	h.mu.Lock()
	held := h.holds.Has(by)
	h.mu.Unlock()
	if !held {
		return nil
	}
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	h.mu.Lock()
	releasing, last := h.releasing, h.holds.Only(by)
	if !last {
		h.holds.Drop(by)
	}
	h.mu.Unlock()
	switch {
	case releasing:
		return sandbox.ErrReleased
	case !last:
		return nil
	}
	// The watch goes on first: running time that is not counted would be a way around the timeout.
	h.watch.Set(false)
	if err := h.enc.thaw(); err != nil {
		h.watch.Set(true)
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.Clear()
	return nil
}

// notice makes a freeze by the deadline the handle's own: it is frozen since then, not since it was noticed.
// Whatever depends on that calls it first; it needs no gate.
func (h *handle) notice() {
	if !h.m.fired(h.spec.Attempt) {
		return
	}
	h.noticing.Lock()
	defer h.noticing.Unlock()
	if !h.m.fired(h.spec.Attempt) {
		return
	}
	since, stopped := h.m.take(h.spec.Attempt)
	// After what follows: nobody may find neither the guard's freeze nor the handle's.
	defer h.m.taken(h.spec.Attempt)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.adopted = append(h.adopted, stopped...)
	if h.released {
		return
	}
	h.holds.TakeSince(hold.Deadline, since)
}

// adopt hands what the guard has stopped to the enclosure. The gate is held.
func (h *handle) adopt() {
	h.mu.Lock()
	stopped := h.adopted
	h.adopted = nil
	h.mu.Unlock()
	h.enc.adopt(stopped)
}

// enter takes the gate, with the enclosure knowing all that is frozen.
func (h *handle) enter(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
		h.adopt()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *handle) isFrozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.Any()
}

func (h *handle) isReleasing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.releasing
}
