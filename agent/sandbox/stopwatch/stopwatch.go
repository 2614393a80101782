// Package stopwatch measures running time beside frozen time, on the larger of two clocks: promise P3 and F51. The
// sandbox drivers hold their commands' time limits against it.
package stopwatch

import (
	"sync"
	"time"
)

// Reading is what two clocks show, each from an origin of its own.
type Reading struct {
	Mono time.Duration // does not step, but may stand still while the machine sleeps
	Wall time.Duration // goes on while the machine sleeps, but may be set
}

// since returns the larger of what the two clocks say has passed, never less than zero.
func (r Reading) since(start Reading) time.Duration {
	return max(r.Mono-start.Mono, r.Wall-start.Wall, 0)
}

// Stopwatch measures running time and frozen time. Each stretch between two changes is measured as a whole, so
// that a wall clock that is set forward and back again within it leaves no trace.
type Stopwatch struct {
	now func() Reading

	mu      sync.Mutex
	from    Reading // start of the present stretch
	ran     time.Duration
	frozen  time.Duration
	paused  bool
	changed chan struct{} // closed and replaced at each change
}

// New returns a Stopwatch that goes from this moment on; now is read often and must be cheap.
func New(now func() Reading, paused bool) *Stopwatch {
	return &Stopwatch{now: now, from: now(), paused: paused, changed: make(chan struct{})}
}

// Set pauses or resumes; setting what is set already changes nothing.
func (w *Stopwatch) Set(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if paused == w.paused {
		return
	}
	w.turn()
	w.paused = paused
	close(w.changed)
	w.changed = make(chan struct{})
}

// PauseSince pauses with effect from an earlier instant within the present stretch: what was stopped by somebody else
// is noticed late. A watch that is paused already is not changed.
func (w *Stopwatch) PauseSince(since Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused {
		return
	}
	if since.Mono < w.from.Mono && since.Wall < w.from.Wall {
		since = w.from
	}
	w.turnAt(since)
	w.paused = true
	close(w.changed)
	w.changed = make(chan struct{})
}

// turn ends the present stretch and begins the next.
func (w *Stopwatch) turn() { w.turnAt(w.now()) }

func (w *Stopwatch) turnAt(now Reading) {
	if d := now.since(w.from); w.paused {
		w.frozen += d
	} else {
		w.ran += d
	}
	w.from = now
}

// Read returns both times, whether the watch is paused, and a channel that is closed when that changes.
func (w *Stopwatch) Read() (ran, frozen time.Duration, paused bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ran, frozen = w.ran, w.frozen
	if d := w.now().since(w.from); w.paused {
		frozen += d
	} else {
		ran += d
	}
	return ran, frozen, w.paused, w.changed
}

// wakeEvery bounds how long a timer of the runtime is trusted: it stands still while the machine sleeps.
const wakeEvery = time.Second

// Await returns true when running time has reached the instant that due returns, false when stop is closed first.
// due is asked again at each wake-up, because the idle deadline moves.
func (w *Stopwatch) Await(due func() time.Duration, stop ...<-chan struct{}) bool {
	for len(stop) < 2 {
		stop = append(stop, nil)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ran, _, paused, changed := w.Read()
		rest := due() - ran
		if !paused && rest <= 0 {
			return true
		}
		var tick <-chan time.Time
		if !paused {
			timer.Reset(min(rest, wakeEvery))
			tick = timer.C
		}
		select {
		case <-stop[0]:
			return false
		case <-stop[1]:
			return false
		case <-changed:
		case <-tick:
		}
	}
}
