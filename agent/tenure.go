package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol/link"
)

// tenureTick is how often a tenure looks at the clock. It bounds how long a
// harness runs on after its machine wakes from sleep with an expired lease.
const tenureTick = 250 * time.Millisecond

// tenure is the right of one attempt to run, and the one place that takes it
// away. The coordinator alone decides whether the right stands; the local clock
// may only suspend it: at TTL minus a margin without a renewal the sandbox is
// frozen, and it thaws only on the coordinator's word (P3). The sandbox knows that
// instant as a deadline, too, for the case that the runner itself is stopped then.
// A question to a person suspends it too.
//
// One goroutine (run) owns the state; the others send to it.
type tenure struct {
	ref  link.AttemptRef
	log  *slog.Logger
	stop context.CancelCauseFunc // ends the executor
	held func(bool)              // is told when the sandbox is held still and when it goes on
	// granted is what the offer said. freeze holds now; only run changes it.
	granted, freeze freezing

	compute  chan sandbox.ComputeHandle
	verdicts chan verdict
	asking   chan bool
	over     chan struct{}
}

// freezing is when an attempt that is not renewed must stand still.
type freezing struct{ ttl, margin time.Duration }

// unconfirmed is the freezing of an attempt whose start the coordinator has not confirmed:
// it gives the attempt away when it has waited so long.
func (f freezing) unconfirmed(startWithin time.Duration) freezing {
	return freezing{ttl: min(f.ttl, startWithin), margin: min(f.margin, startWithin/2)}
}

// never is the freezing of an attempt that nobody has to renew: see Given.
var never = freezing{}

type verdict struct {
	standing link.Standing
	reason   string
	// asked is when the question was sent: the lease lasts from then.
	asked time.Time
	freezing
}

func newTenure(ref link.AttemptRef, f freezing, stop context.CancelCauseFunc, log *slog.Logger) *tenure {
	return &tenure{
		ref: ref, log: log, stop: stop, held: func(bool) {}, granted: f, freeze: f,
		compute:  make(chan sandbox.ComputeHandle),
		verdicts: make(chan verdict, 1),
		asking:   make(chan bool),
		over:     make(chan struct{}),
	}
}

// started tells the tenure what to freeze.
func (t *tenure) started(c sandbox.ComputeHandle) {
	select {
	case t.compute <- c:
	case <-t.over:
	}
}

// judge hands on the coordinator's word without waiting: a sandbox that is slow to
// freeze must not hold up the heartbeat. The newest word counts; the coordinator
// repeats it with every heartbeat. Calls come one at a time.
func (t *tenure) judge(v verdict) {
	select {
	case before := <-t.verdicts:
		if v.standing == link.Stands && before.standing != link.Stands {
			v = before // the answer to an older question came last
		}
	default:
	}
	t.verdicts <- v
}

// ask suspends the attempt while a person is asked, or while the runner itself is
// suspended, and ends that. A tenure takes the next word when it has acted on the
// one before.
func (t *tenure) ask(waiting bool) {
	select {
	case t.asking <- waiting:
	case <-t.over:
	}
}

// run holds the attempt until ctx ends. granted is when the lease was asked for.
func (t *tenure) run(ctx context.Context, granted time.Time) {
	defer close(t.over)
	tick := time.NewTicker(tenureTick)
	defer tick.Stop()
	var (
		compute sandbox.ComputeHandle
		renewed = granted
		overdue bool
		// confirmed: the coordinator has said that the attempt stands, since the offer.
		confirmed bool
		asks      int
		frozen    bool
	)
	apply := func() {
		want := overdue || asks > 0
		if compute == nil || want == frozen {
			return
		}
		act, done := compute.Thaw, "thawed"
		if want {
			act, done = compute.Freeze, "frozen"
		}
		if err := act(ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, sandbox.ErrBrokenOff) || errors.Is(err, sandbox.ErrReleased) {
				// What was to be held still has ended. Should more be started, it is held at the next tick.
				return
			}
			// What can be neither held still nor set going must not run on.
			t.log.Error("sandbox does not obey, ending it", "wanted", done, "err", err)
			t.stop(&executor.Stopped{Reason: executor.StopLost, Message: fmt.Sprintf("the sandbox could not be %s: %v", done, err)})
			return
		}
		frozen = want
		t.held(want)
		t.log.Info("sandbox "+done, "overdue", overdue, "asking", asks > 0)
	}
	// bound moves the sandbox's own deadline to when the lease must be renewed again.
	bound := func() {
		if compute == nil || overdue || t.freeze == never {
			return
		}
		now := time.Now()
		err := compute.FreezeAt(ctx, now.Add(t.freeze.ttl-t.freeze.margin-link.Elapsed(renewed, now)))
		switch {
		case err == nil, errors.Is(err, sandbox.ErrNoDeadline), errors.Is(err, sandbox.ErrReleased), ctx.Err() != nil:
		default:
			t.log.Warn("sandbox runs on, should this runner be stopped", "err", err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			if compute != nil && !overdue && !t.late(renewed) {
				// From here on the executor ends the sandbox, and may need it for the evidence.
				_ = compute.FreezeAt(context.WithoutCancel(ctx), time.Time{}) // released: it needs no deadline
			}
			return
		case compute = <-t.compute:
			frozen = false
			bound()
		case waiting := <-t.asking:
			if waiting {
				asks++
			} else {
				asks--
			}
		case v := <-t.verdicts:
			switch v.standing {
			case link.Stands:
				confirmed = true
				if t.freeze = v.freezing; v.asked.After(renewed) { // the answers to two questions can overtake each other
					renewed = v.asked
				}
				overdue = t.late(renewed)
				bound()
			case link.Cancelled:
				t.stop(&executor.Stopped{Reason: executor.StopCancelled, Message: v.reason})
			case link.Stale:
				t.stop(&executor.Stopped{Reason: executor.StopStale, Message: v.reason})
			}
		case <-tick.C:
		}
		// Whatever woke it: after a sleep nothing thaws before the clock was seen.
		if !overdue && t.late(renewed) {
			overdue = true
			why := "lease could not be renewed in time, holding the attempt still"
			if !confirmed {
				why = "start was not confirmed in time, holding the attempt still"
			}
			t.log.Warn(why, "since", link.Elapsed(renewed, time.Now()).Round(time.Second))
		}
		apply()
	}
}

// late says whether a lease renewed at that instant may have been given away
// soon.
func (t *tenure) late(renewed time.Time) bool {
	return t.freeze != never && link.Elapsed(renewed, time.Now()) >= t.freeze.ttl-t.freeze.margin
}
