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

// waiter is a pull that waits. The writer's goroutine owns it.
type waiter struct {
	request string
	answer  func(Lease, error) // nil once it was called, or is not to be
	queued  bool               // in its runner's list
	gone    bool               // its context has ended
}

// tell answers the pull, once.
func (w *waiter) tell(l Lease, err error) {
	if answer := w.answer; answer != nil {
		w.answer = nil
		answer(l, err)
	}
}

// grant is an answer, with or without a lease, that is given when its group is on the disk.
type grant struct {
	w     *waiter
	lease Lease
	at    int64 // when its TTL began
	err   error
}

// told is the lease as its holder hears of it: what its way to the disk took is gone.
func (g *grant) told(now int64) Lease {
	l := g.lease
	if l.TTL > 0 {
		l.TTL = max(l.TTL-dur(now-g.at), time.Millisecond)
	}
	if l.StartWithin > 0 {
		l.StartWithin = max(l.StartWithin-dur(now-g.at), time.Millisecond)
	}
	return l
}

// asking is a pull of this group. If the group fails, its caller is told so and does not wait.
type asking struct {
	runner string
	w      *waiter
}

func dur(ns int64) time.Duration { return time.Duration(ns) }

// Pull waits for a job that the runner can take and returns the lease of it, which is on the disk by then. It ends with
// ctx; a lease made at that very moment is returned rather than lost. A lease that the caller does not get
// to see is answered again to the same request id, or returns to the queue when its start is not acknowledged.
func (q *Queue) Pull(ctx context.Context, req PullRequest) (Lease, error) {
	type answer struct {
		lease Lease
		err   error
	}
	answers := make(chan answer, 1)
	if err := q.PullFunc(ctx, req, func(l Lease, err error) { answers <- answer{l, err} }); err != nil {
		return Lease{}, err
	}
	a := <-answers
	return a.lease, a.err
}

// PullFunc is Pull for those who have many: nobody waits, answer is called with what Pull would have returned, exactly
// once, perhaps before PullFunc returns. It runs on the writer's goroutine: it must return at once and not call the queue.
// If PullFunc returns an error, answer is not called.
func (q *Queue) PullFunc(ctx context.Context, req PullRequest, answer func(Lease, error)) error {
	if req.Runner.ID == "" || req.RequestID == "" {
		return errors.New("lease: pull: a runner id and a request id are required")
	}
	w := &waiter{request: req.RequestID}
	stop := context.AfterFunc(ctx, func() { q.withdraw(req.Runner.ID, w, ctx.Err()) })
	w.answer = func(l Lease, err error) {
		stop()
		answer(l, err)
	}
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		if w.gone {
			return ctx.Err()
		}
		return q.owner.pull(tx, &req, w)
	})
	if err != nil {
		stop()
	}
	return err
}

// withdraw ends a wait whose context has ended. It may come before the pull itself.
func (q *Queue) withdraw(runner string, w *waiter, cause error) {
	for !w.gone {
		// Not through do: this needs nothing from the disk, and must work when the disk does not.
		err := q.db.Apply(context.Background(), func(*sqlite.Tx) error {
			w.gone = true
			if !q.ended && w.queued {
				q.owner.withdraw(runner, w)
				q.owner.granted = append(q.owner.granted, grant{w: w, err: cause})
			}
			return nil
		})
		if errors.Is(err, sqlite.ErrClosed) {
			return // all pulls are told
		}
	}
}

func (o *owner) pull(tx *sqlite.Tx, req *PullRequest, w *waiter) error {
	if o.isFenced(req.Runner.ID) {
		return ErrFenced
	}
	r := o.puller(&req.Runner)
	o.asked = append(o.asked, asking{runner: r.ID, w: w})
	for l := range r.live {
		if l.request == req.RequestID && !l.fenced {
			lease := o.lease(l, o.now())
			var err error
			if lease.Payload, err = loadPayload(tx, l.seq); err != nil {
				return err
			}
			o.granted = append(o.granted, grant{w: w, lease: lease, at: o.now()})
			return nil
		}
	}
	w.queued = true
	for i, old := range r.waiting {
		if old.request == req.RequestID {
			old.queued = false
			o.granted = append(o.granted, grant{w: old, err: ErrSuperseded})
			r.waiting[i] = w // it keeps its turn
			return nil
		}
	}
	r.waiting = append(r.waiting, w)
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
