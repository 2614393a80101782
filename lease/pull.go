package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// PullRequest asks for one job.
type PullRequest struct {
	// RequestID is made by the runner, a new one for each slot that becomes free. Asking again with the same id answers the
	// same attempt as long as it lives, also when the first answer was lost or the coordinator was restarted since.
	RequestID string
	// Runner that asks. Of one that has a session (SetRunner, Adopt) only the ID counts.
	Runner Runner
}

// waiter is a pull that waits. Its channel gets exactly one answer, or none if it is withdrawn.
type waiter struct {
	request string
	answer  chan answer
	queued  bool // in its runner's list; owned by the writer's goroutine
}

type answer struct {
	lease Lease
	err   error
}

// grant is an answer that is given when its group is on the disk.
type grant struct {
	w     *waiter
	lease Lease
	err   error
}

// asking is a pull that began to wait in this group. If the group fails, its caller is told so and does not wait.
type asking struct {
	runner string
	w      *waiter
}

func dur(ns int64) time.Duration { return time.Duration(ns) }

// Pull waits for a job that the runner can take and returns the lease of it, which is on the disk by then. It ends with
// ctx; a lease made at that very moment is returned rather than lost. A lease that the caller does not get
// to see is answered again to the same request id, or returns to the queue when its start is not acknowledged.
func (q *Queue) Pull(ctx context.Context, req PullRequest) (Lease, error) {
	if req.Runner.ID == "" || req.RequestID == "" {
		return Lease{}, errors.New("lease: pull: a runner id and a request id are required")
	}
	w := &waiter{request: req.RequestID, answer: make(chan answer, 1)}
	err := q.do(ctx, func(tx *sqlite.Tx) error { return q.owner.pull(tx, &req, w) })
	if err != nil {
		return Lease{}, err
	}
	select {
	case a := <-w.answer:
		return a.lease, a.err
	default:
	}
	select {
	case a := <-w.answer:
		return a.lease, a.err
	case <-ctx.Done():
	}
	err = q.do(context.WithoutCancel(ctx), func(*sqlite.Tx) error {
		q.owner.withdraw(req.Runner.ID, w)
		return nil
	})
	select {
	case a := <-w.answer:
		return a.lease, a.err
	default:
		return Lease{}, errors.Join(ctx.Err(), err)
	}
}

func (o *owner) pull(tx *sqlite.Tx, req *PullRequest, w *waiter) error {
	r := o.puller(&req.Runner)
	for l := range r.live {
		if l.request == req.RequestID && !l.fenced {
			lease := o.lease(l, o.now())
			var err error
			if lease.Payload, err = loadPayload(tx, l.seq); err != nil {
				return err
			}
			o.granted = append(o.granted, grant{w: w, lease: lease})
			return nil
		}
	}
	w.queued = true
	for i, old := range r.waiting {
		if old.request == req.RequestID {
			old.queued = false
			old.answer <- answer{err: ErrSuperseded}
			r.waiting[i] = w // it keeps its turn
			o.asked = append(o.asked, asking{runner: r.ID, w: w})
			return nil
		}
	}
	r.waiting = append(r.waiting, w)
	o.asked = append(o.asked, asking{runner: r.ID, w: w})
	o.list(r)
	o.touchRunner(r)
	return nil
}

// puller is the runner that pulls. One with a session is what SetRunner said last: a pull that was composed before that
// must not undo it.
func (o *owner) puller(rn *Runner) *runner {
	if r := o.runners[rn.ID]; r != nil && r.session {
		r.contact = o.now()
		return r
	}
	return o.meet(rn)
}

// withdraw takes a pull out of the wait.
func (o *owner) withdraw(id string, w *waiter) {
	r := o.runners[id]
	if r == nil || !w.queued {
		return
	}
	w.queued = false
	if r.waiting[0] == w {
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
	} else {
		r.waiting = slices.DeleteFunc(r.waiting, func(x *waiter) bool { return x == w })
	}
	if len(r.waiting) == 0 {
		o.unlist(r)
		o.dropRunner(r)
	}
}
