package desktop

import (
	"slices"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// renewal is why a runner has to be started anew; empty: it has not. A runner has its settings, its sandboxes and what it
// offers for life, so that it ends and another begins, when nothing runs.
type renewal string

const (
	renewSettings renewal = "settings" // they have changed
	renewCome     renewal = "come"     // there is a container engine, and the runner offers none
	renewGone     renewal = "gone"     // it offers one that does not answer
	renewMachine  renewal = "machine"  // the engine is another one, or something else of the machine has come or gone
)

// renewalWords are what the coordinator shows while no new runs are taken for it.
var renewalWords = map[renewal]string{
	renewSettings: "its settings are being changed",
	renewCome:     "its container engine has come, and is offered when nothing runs",
	renewGone:     "its container engine does not answer, and is withdrawn when nothing runs",
	renewMachine:  "what it can do has changed, which counts when nothing runs",
}

// renewal compares what the runner has with what it would get now: what changes and changes back leaves nothing. The
// caller has the mutex.
func (c *connection) renewal() renewal {
	if c.runner == nil || c.draining {
		return ""
	}
	has, had := slices.Contains(c.seen, protocol.CapDocker), slices.Contains(c.offered, protocol.CapDocker)
	switch {
	case c.rec.Settings != c.started.Settings || c.rec.Key != c.started.Key:
		return renewSettings
	case has && !had:
		return renewCome
	case had && !has:
		return renewGone
	case c.engine != c.uses: // the sandboxes stay with the one that they have found
		return renewMachine
	case !slices.Equal(slices.Sorted(slices.Values(c.seen)), slices.Sorted(slices.Values(c.offered))):
		return renewMachine
	}
	return ""
}

// canWait says that new runs are taken although something runs that holds up a renewal. With one slot none could be, and
// to take what it offers and has not costs a run; but a machine with more to offer does not leave slots empty for it. The
// caller has the mutex.
func (c *connection) canWait(why renewal) bool {
	return why == renewCome && c.started.Settings.Slots > 1 && len(c.jobs) > 0
}

// renew says whether the runner has to end now, for another to be started.
func (c *connection) renew() bool {
	c.app.mu.Lock()
	unpairing, why := c.rec.Unpairing, c.renewal()
	c.app.mu.Unlock()
	if unpairing || why == "" {
		return unpairing
	}
	now := false
	c.app.change(func() {
		if now = c.runner.DrainIdle(); now { // the runner knows, the events are late
			c.online, c.trouble = false, why.trouble()
		}
	})
	return now
}

// trouble is how a connection is whose runner is started anew now.
func (why renewal) trouble() trouble {
	t := trouble{status: control.StatusConnecting, reason: control.ReasonStarting, text: "What this computer offers is being brought up to date."}
	if why == renewSettings {
		t.text = "The new settings are being applied."
	}
	return t
}

// renewLater has a renewal that waits looked at again.
func (c *connection) renewLater() {
	c.app.mu.Lock()
	waits := c.renewal() != ""
	c.app.mu.Unlock()
	if waits {
		c.lookNow()
	}
}
