// Package watchdog is what the sandbox drivers have in common about how a command ends: it holds one command to its
// time limits, walks the ladder that stops it, and knows who ended it.
package watchdog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// Target is the command, as its driver reaches it.
type Target interface {
	// Signal sends what a rung says. It returns the signal's name, as it stands in Exit.Sent.
	Signal(r sandbox.Rung) (name string, err error)
	// End kills every process of the command and returns when none is left.
	End(ctx context.Context) error
	// Frozen reports whether the command stands still.
	Frozen() bool
	// Blocked reports whether the command waits for a writer of the runner's to take its output.
	Blocked() bool
}

// Watchdog watches over one command, from Begin to Ended.
type Watchdog struct {
	target Target
	cmd    sandbox.Command
	watch  *stopwatch.Stopwatch // the sandbox's

	started time.Time
	ran0    time.Duration // what the stopwatch showed at the start
	frozen0 time.Duration
	lastOut atomic.Int64 // running time of the last output, since ran0
	ended   chan struct{}

	mu       sync.Mutex
	exit     sandbox.Exit  // Reason, Fired, Sent, Started, Ended, Ran and Frozen
	stopping chan struct{} // not nil while or after the ladder is walked; closed at its end
	atEnd    chan struct{} // stopping, when the main process ended
}

// New returns the watchdog of a command that has not been started.
func New(t Target, cmd sandbox.Command, watch *stopwatch.Stopwatch) *Watchdog {
	return &Watchdog{target: t, cmd: cmd, watch: watch, ended: make(chan struct{})}
}

// Begin says that the command is being started now.
func (w *Watchdog) Begin() {
	w.started = time.Now()
	w.ran0, w.frozen0, _, _ = w.watch.Read()
}

// NoteOutput says that the command has written something.
func (w *Watchdog) NoteOutput() {
	ran, _ := w.elapsed()
	w.lastOut.Store(int64(ran))
}

// Gone is closed when the main process is gone.
func (w *Watchdog) Gone() <-chan struct{} { return w.ended }

func (w *Watchdog) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Ended says that the main process is gone; the first call counts.
func (w *Watchdog) Ended() {
	now := time.Now()
	ran, frozen := w.elapsed()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over() {
		return
	}
	w.exit.Started, w.exit.Ended, w.exit.Ran, w.exit.Frozen = w.started, now, ran, frozen
	w.atEnd = w.stopping
	close(w.ended)
}

// Exit is what is known of a command's end beside its status. It waits for whoever was stopping the command when it
// ended: what the command started is gone, too, before anybody hears that it was stopped. Ended was called before.
func (w *Watchdog) Exit() sandbox.Exit {
	w.mu.Lock()
	stopping := w.atEnd
	w.mu.Unlock()
	if stopping != nil {
		<-stopping
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exit
}

func (w *Watchdog) elapsed() (ran, frozen time.Duration) {
	ran, frozen, _, _ = w.watch.Read()
	return max(ran-w.ran0, 0), max(frozen-w.frozen0, 0)
}

// idleSince is the running time since which nothing was written. While a writer of ours blocks, the command is not
// idle: it may be waiting for us.
func (w *Watchdog) idleSince() time.Duration {
	if w.target.Blocked() {
		ran, _ := w.elapsed()
		return ran
	}
	return time.Duration(w.lastOut.Load())
}

// due is the instant at which a limit is met, on the sandbox's stopwatch.
func (w *Watchdog) due() time.Duration {
	d := time.Duration(1<<63 - 1)
	if w.cmd.Timeout > 0 {
		d = w.ran0 + w.cmd.Timeout
	}
	if w.cmd.IdleTimeout > 0 {
		d = min(d, w.ran0+w.idleSince()+w.cmd.IdleTimeout)
	}
	return d
}

// Watch ends the command when one of its limits is met. It returns when the command has ended.
func (w *Watchdog) Watch() error {
	if w.cmd.Timeout == 0 && w.cmd.IdleTimeout == 0 {
		return nil
	}
	// What was frozen by somebody else is noticed late: it has not run all that time.
	for frozen := true; frozen; frozen = w.target.Frozen() {
		if !w.watch.Await(w.due, w.ended) {
			return nil
		}
	}
	ran, _ := w.elapsed()
	t := &sandbox.Timer{Name: string(sandbox.ReasonTimeout), Configured: w.cmd.Timeout, Measured: ran}
	if w.cmd.Timeout == 0 || ran < w.cmd.Timeout {
		t = &sandbox.Timer{Name: string(sandbox.ReasonIdle), Configured: w.cmd.IdleTimeout, Measured: ran - w.idleSince()}
	}
	// A command that ended, or is being stopped, at the same moment did not run into the timer.
	walk, stopping := w.claim(sandbox.Reason(t.Name), t)
	if !walk {
		return nil
	}
	return w.stop(context.Background(), nil, walk, stopping)
}

// Killed says that the command is about to be killed with its whole sandbox.
func (w *Watchdog) Killed() { w.claim(sandbox.ReasonKilled, nil) }

// claim records who ends the command; the first one counts, and only while the main process lives. For all but a
// kill of the whole sandbox it also begins the ladder, or tells of the one that is being walked; in the same step,
// so that Exit cannot return between the two.
func (w *Watchdog) claim(r sandbox.Reason, fired *sandbox.Timer) (walk bool, stopping chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over() && w.exit.Reason == sandbox.ReasonNone {
		w.exit.Reason, w.exit.Fired = r, fired
	} else if fired != nil {
		return false, nil
	}
	if r == sandbox.ReasonKilled {
		return false, nil
	}
	if w.stopping == nil {
		w.stopping, walk = make(chan struct{}), true
	}
	return walk, w.stopping
}

// Stop walks the ladder (nil: the command's own), or waits for who does, and returns when no process of the command
// is left. When ctx ends, the remaining rungs are skipped.
func (w *Watchdog) Stop(ctx context.Context, ladder sandbox.Ladder) error {
	walk, stopping := w.claim(sandbox.ReasonStopped, nil)
	return w.stop(ctx, ladder, walk, stopping)
}

func (w *Watchdog) stop(ctx context.Context, ladder sandbox.Ladder, walk bool, stopping chan struct{}) error {
	if walk {
		defer close(stopping)
		w.walk(ctx, ladder)
	} else {
		select {
		case <-stopping:
		case <-ctx.Done():
		}
	}
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
	defer cancel()
	if !w.over() {
		w.sent("SIGKILL")
	}
	return w.target.End(kctx)
}

// walk goes down the ladder until the main process is gone. A frozen command cannot answer: there is nothing to walk.
func (w *Watchdog) walk(ctx context.Context, ladder sandbox.Ladder) {
	if ladder == nil {
		ladder = w.cmd.Ladder
	}
	if ladder == nil {
		ladder = sandbox.DefaultLadder
	}
	for _, r := range ladder {
		if w.over() || ctx.Err() != nil || w.target.Frozen() {
			return
		}
		// What cannot be signalled is killed in the end: a rung's failure only means that nothing was sent.
		if name, err := w.target.Signal(r); err == nil {
			w.sent(name)
		}
		from, _, _, _ := w.watch.Read()
		w.watch.Await(func() time.Duration { return from + r.Grace }, w.ended, ctx.Done())
	}
}

func (w *Watchdog) sent(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exit.Sent = append(w.exit.Sent, name)
}
