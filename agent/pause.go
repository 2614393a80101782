package agent

import (
	"context"
	"sync"

	"github.com/everdict/everdict/agent/executor"
)

// maxPause bounds what is told of a pause, in bytes.
const maxPause = 200

// Pause stops the pulling: wishes that wait are withdrawn, the session stays, and what runs
// goes on to its end. why is told to the coordinator, for people. Pausing again changes why.
func (r *Runner) Pause(why string) {
	if why == "" {
		why = "paused"
	}
	if r.gate.set(why) {
		r.log.Info("paused: no new runs are taken", "why", why)
	}
	r.tellTerms()
}

// Resume ends a pause.
func (r *Runner) Resume() {
	if r.gate.set("") {
		r.log.Info("resumed")
	}
	r.tellTerms()
}

// tellTerms has the next heartbeat go out at once, so that others see a pause when it begins. Nobody waits for it.
func (r *Runner) tellTerms() {
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	if s == nil {
		return // the hello says it
	}
	r.aside(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, r.timingNow().HeartbeatTimeout)
		defer cancel()
		_, _ = s.Heartbeat(ctx) // an error ends the session, which others see
	})
}

// Redial tries to connect now, if it would otherwise wait for its turn.
func (r *Runner) Redial() {
	select {
	case r.redial <- struct{}{}:
	default:
	}
}

// StopNow pauses, stops what runs and gives it back to the queue, so that it runs somewhere
// else. What was offered and is not begun yet does not begin. It does not wait for the ends.
func (r *Runner) StopNow(why string) {
	r.Pause(why) // first: what is not yet among those that are stopped meets the gate
	r.stopAll(&executor.Stopped{Reason: executor.StopPaused, Message: "the owner of the machine has stopped it: " + r.gate.why()})
}

// gate lets slots ask for attempts, or not.
type gate struct {
	mu      sync.Mutex
	reason  string        // why it is shut; empty: it is open
	changed chan struct{} // closed and replaced when it is shut or opened
}

func newGate(reason string) *gate { return &gate{reason: reason, changed: make(chan struct{})} }

// set shuts the gate for a reason, or opens it for none; true: it was the other way before.
func (g *gate) set(reason string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	turned := (g.reason == "") != (reason == "")
	g.reason = reason
	if turned {
		close(g.changed)
		g.changed = make(chan struct{})
	}
	return turned
}

func (g *gate) look() (reason string, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.changed
}

func (g *gate) why() string {
	reason, _ := g.look()
	return reason
}

func (g *gate) shut() bool { return g.why() != "" }

// pass waits until the gate is open; false: ctx has ended.
func (g *gate) pass(ctx context.Context) bool {
	for {
		reason, changed := g.look()
		if reason == "" {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// open is a context that ends with ctx or when the gate is shut. Call done at its end. The
// context ends a moment later; turned is closed at once.
func (g *gate) open(ctx context.Context) (_ context.Context, turned <-chan struct{}, done context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	reason, changed := g.look()
	if reason != "" {
		cancel()
		return ctx, changed, cancel
	}
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, changed, cancel
}
