// Package hold is what drivers have in common about who holds a sandbox still: Freeze until Thaw, a deadline until it is
// moved. Either of the two may come and go while the other stays.
package hold

import "github.com/everdict/everdict/agent/sandbox/stopwatch"

// By is who holds.
type By uint8

// The two.
const (
	Freeze By = 1 << iota
	Deadline
)

// Holds are the holds on one sandbox. They are guarded by the mutex of the sandbox's handle.
type Holds struct {
	watch  *stopwatch.Stopwatch
	by     By
	frozen chan struct{} // closed while somebody holds
	thawed chan struct{} // closed while nobody does
}

// New returns the holds of a running sandbox, whose time the watch measures.
func New(watch *stopwatch.Stopwatch) *Holds {
	h := &Holds{watch: watch, frozen: make(chan struct{}), thawed: make(chan struct{})}
	close(h.thawed)
	return h
}

// Has reports whether somebody holds.
func (h *Holds) Has(by By) bool { return h.by&by != 0 }

// Any reports whether anybody holds.
func (h *Holds) Any() bool { return h.by != 0 }

// Only reports whether somebody holds and the other does not.
func (h *Holds) Only(by By) bool { return h.by == by }

// Frozen is closed while somebody holds.
func (h *Holds) Frozen() <-chan struct{} { return h.frozen }

// Thawed is closed while nobody holds.
func (h *Holds) Thawed() <-chan struct{} { return h.thawed }

// Take says that somebody holds from now on.
func (h *Holds) Take(by By) {
	h.take(by)
	h.watch.Set(true)
}

// TakeSince says that somebody has been holding since an earlier instant, which was noticed late.
func (h *Holds) TakeSince(by By, since stopwatch.Reading) {
	h.take(by)
	h.watch.PauseSince(since)
}

func (h *Holds) take(by By) {
	if h.by == 0 {
		h.thawed = make(chan struct{})
		close(h.frozen)
	}
	h.by |= by
}

// Drop ends a hold. When it was the last, whoever waits for the thaw is woken.
func (h *Holds) Drop(by By) {
	if h.by&by == 0 {
		return
	}
	if h.by &^= by; h.by == 0 {
		h.watch.Set(false)
		h.frozen = make(chan struct{})
		close(h.thawed)
	}
}

// Clear ends both holds.
func (h *Holds) Clear() { h.Drop(Freeze | Deadline) }
