package agent

import (
	"errors"
	"time"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// arrival is an offer that is not an attempt of this runner yet. Between the one and the
// other are directories and the outbox, that is: a disk, which can be slow. Whoever stops
// the attempts meanwhile does not find it among them. So it is asked twice, with the mutex
// that guards those, whether it may still begin: when it comes (enter), and in the moment
// in which it becomes one of them (barred, then admit). Either it is found and stopped, and
// given back as one that was begun; or it never begins, and is given back as that (P3).
type arrival struct {
	*link.Offer
	// session ends with the session that has brought it.
	session <-chan struct{}
	// turned is closed when the gate was shut since the wish that it answers.
	turned <-chan struct{}
}

// unwantedError is why an offer is given back although nothing is wrong with it.
type unwantedError struct {
	reason, text string // of link.GiveBack
	rest         time.Duration
}

func (e *unwantedError) Error() string { return "agent: the offer is not wanted any more: " + e.text }

// errUnanswerable is an offer that came by a session which has ended. It counts as one that
// was lost on the way: the same request, asked again, brings it again.
var errUnanswerable = errors.New("agent: the session that brought the offer has ended")

// barred is why an offer must not begin; nil: it may. The caller has the mutex, and acts on
// nil before letting it go.
func (r *Runner) barred(o arrival) error {
	switch {
	case closed(o.session):
		return errUnanswerable
	case closed(r.draining):
		return &unwantedError{reason: "draining", text: "the runner is shutting down"}
	case closed(o.turned):
		why := r.gate.why()
		if why == "" { // resumed meanwhile; what was stopped is stopped
			why = "paused for a moment"
		}
		return &unwantedError{reason: "paused", text: why}
	case r.suspended:
		return &unwantedError{reason: "paused", text: "the runner is suspended", rest: refusedPause}
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// enter counts an offer in, so that a runner that leaves waits for what becomes of it: call
// entered then. known says that the attempt is one of this runner's already.
func (r *Runner) enter(o arrival) (known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[attemptName(o.Run, o.Epoch)] != nil {
		return true, nil
	}
	if err := r.barred(o); err != nil {
		return false, err
	}
	r.arriving++
	r.attempts.Add(1)
	return false, nil
}

func (r *Runner) entered() {
	r.mu.Lock()
	r.arriving--
	r.mu.Unlock()
	r.attempts.Done()
}

// turnAway gives an offer back that is barred, and says how long the slot rests then.
func (r *Runner) turnAway(o arrival, slot *slot, why error) (rest time.Duration) {
	var unwanted *unwantedError
	if !errors.As(why, &unwanted) {
		r.log.Warn("offer came to nothing, it is asked for again", "run", o.Run, "epoch", o.Epoch, "err", why)
		return 0
	}
	r.log.Info("offer is given back, not begun", "run", o.Run, "epoch", o.Epoch, "why", unwanted.text)
	r.decline(o.Offer, unwanted.reason, unwanted.text)
	slot.request = protocol.NewID("req_")
	return unwanted.rest
}
