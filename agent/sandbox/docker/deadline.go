package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// Who says whether the deadline holds a container: init, as long as it runs, because it goes on when this process does
// not; while the engine pauses it, this process by its own clock. The one is brought up to the other at the thaw.

// FreezeAt implements sandbox.ComputeHandle.
func (h *handle) FreezeAt(ctx context.Context, deadline time.Time) error {
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	h.noticing.Lock()
	defer h.noticing.Unlock()
	err := h.moveDeadline(ctx, deadline)
	if err != nil && !errors.Is(err, sandbox.ErrReleased) {
		return fmt.Errorf("docker: deadline of %s: %w", h.spec.Attempt, err)
	}
	return err
}

func (h *handle) moveDeadline(ctx context.Context, deadline time.Time) error {
	h.mu.Lock()
	if h.releasing {
		h.mu.Unlock()
		return sandbox.ErrReleased
	}
	h.deadline = nil
	if !deadline.IsZero() {
		now := stopwatch.Now()
		// On the larger of monotonic and wall time: the machine may have slept since the caller looked at the clock.
		left := min(time.Until(deadline), deadline.Round(0).Sub(time.Now().Round(0)))
		h.deadline = &stopwatch.Reading{Mono: now.Mono + left, Wall: now.Wall + left}
	}
	passed, paused, lost := h.passed(), h.paused, h.loss != nil
	if paused {
		if passed {
			h.holds.Take(hold.Deadline)
		} else if !h.holds.Only(hold.Deadline) {
			h.holds.Drop(hold.Deadline)
		}
	}
	held := h.holds.Has(hold.Deadline)
	h.mu.Unlock()
	switch {
	case lost:
		return nil // nothing of it runs
	case !paused:
		return h.tell(ctx)
	case !passed && held:
		return h.unpause(ctx)
	}
	return nil // init hears of it at the thaw
}

// passed reports whether the deadline has passed by this process's clock. mu is held.
func (h *handle) passed() bool { return h.deadline != nil && left(*h.deadline, stopwatch.Now()) <= 0 }

func left(at, now stopwatch.Reading) time.Duration { return min(at.Mono-now.Mono, at.Wall-now.Wall) }

// tell brings init's deadline up to the handle's. The gate and noticing are held.
func (h *handle) tell(ctx context.Context) error {
	for try := 0; ; try++ {
		h.mu.Lock()
		l, at := h.link, h.deadline
		h.told = true
		h.mu.Unlock()
		if at == nil {
			_, err := l.deadline(ctx, clearDeadline, 0)
			if errors.Is(err, errSilent) {
				return nil // it has been told: what then holds too long lets go by itself
			}
			return err
		}
		a, err := l.deadline(ctx, askDeadline, 0)
		if errors.Is(err, errSilent) {
			// It may be slow: what is reckoned from its last answer is too soon rather than too late.
			_ = l.send(frameDeadline, setDeadline, l.next.Add(1), milliseconds(l.lastClock().instant(*at)))
		}
		if err != nil {
			return err
		}
		h.mu.Lock()
		if !h.passed() && h.holds.Only(hold.Deadline) {
			// The watch goes on first: running time that is not counted would be a way around the timeout.
			h.watch.Set(false)
		}
		h.mu.Unlock()
		// However long this process stands still from here on, the instant stays what it is.
		a, err = l.deadline(ctx, setDeadline, a.instant(*at))
		if err != nil {
			return err
		}
		h.mu.Lock()
		passed := h.passed()
		h.mu.Unlock()
		// One that holds too soon was reckoned from an answer that had been waiting for its reader.
		if !a.held || passed || try == 2 {
			return nil
		}
	}
}

// unpause lets what the engine has paused run again, with the deadline that stands now. The gate and noticing are held.
func (h *handle) unpause(ctx context.Context) error {
	h.mu.Lock()
	l, at, told := h.link, h.deadline, h.told || h.deadline != nil
	h.mu.Unlock()
	if told {
		// Init finds it when it runs again, before it heeds the one that it has. No answer comes until then.
		if at == nil {
			_ = l.send(frameDeadline, clearDeadline, l.next.Add(1), nil)
		} else {
			_ = l.send(frameDeadline, setDeadline, l.next.Add(1), milliseconds(l.lastClock().instant(*at)))
		}
	}
	// The watch goes on first: running time that is not counted would be a way around the timeout.
	h.watch.Set(false)
	if err := h.askUnpause(ctx); err != nil {
		h.watch.Set(true)
		return err
	}
	h.mu.Lock()
	h.paused = false
	h.mu.Unlock()
	if !told {
		return nil
	}
	if err := h.tell(ctx); !errors.Is(err, errSilent) {
		return err
	}
	return nil // it is slow, and has been told
}

// notice makes sure that a deadline that has passed holds, and that the handle knows since when. Whatever depends on
// that calls it first; it needs no gate.
func (h *handle) notice() {
	if h.overdue() == nil {
		return
	}
	h.noticing.Lock()
	defer h.noticing.Unlock()
	l := h.overdue()
	if l == nil {
		return
	}
	// An instant that has passed by init's clock, too, whatever that shows.
	_, _ = l.deadline(context.Background(), setDeadline, time.Millisecond)
}

// overdue returns the link to an init that is to be asked about a deadline.
func (h *handle) overdue() *link {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused || h.released || h.loss != nil || h.holds.Has(hold.Deadline) || !h.passed() {
		return nil
	}
	return h.link
}

// onDeadline is what init says: since when the deadline holds everything, nil when it does not.
func (h *handle) onDeadline(l *link, since *stopwatch.Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.link != l || h.paused || h.released:
	case since != nil:
		h.holds.TakeSince(hold.Deadline, *since)
	default:
		h.holds.Drop(hold.Deadline)
	}
}

// ---- the link's part ----

// Flags of a deadline frame.
const (
	askDeadline = iota
	setDeadline
	clearDeadline
)

// clock is what init's clock showed between two readings of this process's.
type clock struct {
	init        time.Duration
	sent, heard stopwatch.Reading
}

// instant is when at comes by init's clock, at the latest.
func (c clock) instant(at stopwatch.Reading) time.Duration {
	return max(c.init+left(at, c.heard), time.Millisecond) // zero would be none
}

// reading is when init's clock showed t, at the earliest.
func (c clock) reading(t time.Duration) stopwatch.Reading {
	ago := c.init - t
	return stopwatch.Reading{Mono: c.sent.Mono - ago, Wall: c.sent.Wall - ago}
}

type deadlineAnswer struct {
	clock
	held bool
}

type deadlineQuestion struct {
	sent   stopwatch.Reading
	answer chan deadlineAnswer
}

func milliseconds(d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(d.Milliseconds()))
}

// deadline tells init, or asks, and waits for the answer; the handle has heard it then.
func (l *link) deadline(ctx context.Context, flag byte, at time.Duration) (deadlineAnswer, error) {
	var p []byte
	if flag == setDeadline {
		p = milliseconds(at)
	}
	id, q := l.next.Add(1), deadlineQuestion{sent: stopwatch.Now(), answer: make(chan deadlineAnswer, 1)}
	l.mu.Lock()
	l.questions[id] = q
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.questions, id)
	}()
	_ = l.send(frameDeadline, flag, id, p) // over: dead says so
	silent, end := stall()
	defer end()
	select {
	case a := <-q.answer:
		return a, nil
	case <-l.dead:
		return deadlineAnswer{}, l.err
	case <-silent:
		return deadlineAnswer{}, errSilent
	case <-ctx.Done():
		return deadlineAnswer{}, context.Cause(ctx)
	}
}

// takeDeadline handles init's word on the deadline.
func (l *link) takeDeadline(id uint32, p []byte) error {
	if len(p) < 16 {
		return fmt.Errorf("frame %q is short", frameHeld)
	}
	a := deadlineAnswer{clock: clock{init: duration(p), heard: stopwatch.Now()}}
	halted := duration(p[8:])
	a.held = halted != 0
	l.mu.Lock()
	q, asked := l.questions[id]
	if asked {
		a.sent = q.sent
		l.clock = a.clock
	}
	since := l.clock.reading(halted)
	l.mu.Unlock()
	if l.onDeadline != nil {
		if a.held {
			l.onDeadline(l, &since)
		} else {
			l.onDeadline(l, nil)
		}
	}
	if asked {
		q.answer <- a
	}
	return nil
}

func (l *link) lastClock() clock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock
}

// duration reads milliseconds; whoever sends more than a hundred years means a hundred years.
func duration(p []byte) time.Duration {
	return time.Duration(min(binary.LittleEndian.Uint64(p), 100*365*24*3600*1000)) * time.Millisecond
}
