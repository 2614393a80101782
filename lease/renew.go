package lease

import (
	"context"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Verdict on a lease that a runner says it holds.
type Verdict int8

const (
	// Stands: it goes on, for another TTL.
	Stands Verdict = iota
	// Stop: it stands for another TTL, in which the holder is to end the attempt and settle it.
	Stop
	// Stale: it does not stand. The holder ends what runs and keeps its result as late evidence.
	Stale
)

func (v Verdict) String() string {
	return [...]string{"stands", "stop", "stale"}[v]
}

// Standing answers for one lease.
type Standing struct {
	Ref     Ref
	Verdict Verdict
	// TTL counts from the moment at which the holder sent the request; 0 if the lease is stale.
	TTL time.Duration
	// Started says whether the start was acknowledged.
	Started bool
	// Parked says whether the attempt waits for a person.
	Parked bool
	// Stop and Reason say how and why the attempt is to end, if it is.
	Stop   Outcome
	Reason string
}

// Renew is a runner's heartbeat: it says which leases the runner holds, each gets another TTL if it stands, and the answer
// has one Standing for each, in order. Nothing is written, so a full disk ends no lease. Renewing does not acknowledge a start.
func (q *Queue) Renew(ctx context.Context, runnerID string, held []Ref) ([]Standing, error) {
	answers := make([]Standing, len(held))
	err := q.do(ctx, func(*sqlite.Tx) error {
		o := q.owner
		now := o.now()
		if r := o.runners[runnerID]; r != nil {
			r.contact = now
		}
		for i, ref := range held {
			answers[i] = o.standing(ref, runnerID, now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (o *owner) standing(ref Ref, runnerID string, now int64) Standing {
	l := o.live[ref.Job]
	if l == nil || l.attempt != ref.Attempt || l.token != ref.Token || l.fenced || l.runner.ID != runnerID {
		return Standing{Ref: ref, Verdict: Stale}
	}
	o.renew(l, now)
	s := Standing{Ref: ref, TTL: o.cfg.TTL, Started: l.started, Parked: l.held}
	if l.stop != OutcomeNone {
		s.Verdict, s.Stop, s.Reason = Stop, l.stop, l.reason
	}
	return s
}

// renew gives a lease another TTL. Its place in the heap stays: it comes up early and is put back.
func (o *owner) renew(l *live, now int64) {
	l.deadline, l.seen, l.restored = now+int64(o.cfg.TTL), now, false
	l.runner.contact = now
}

// Adoption answers a runner that has come back.
type Adoption struct {
	// Held has a Standing for each lease that the runner named.
	Held []Standing
	// Missing are the leases that the queue holds for this runner and that it did not name: their answers were lost, or
	// its memory of them. They stand until their deadlines, and answer to their request ids.
	Missing []Lease
}

// Adopt begins a session with a runner that may hold leases: SetRunner and Renew in one, after a restart of either side.
func (q *Queue) Adopt(ctx context.Context, r Runner, held []Ref) (Adoption, error) {
	var a Adoption
	err := q.do(ctx, func(*sqlite.Tx) error {
		o := q.owner
		if o.isFenced(r.ID) {
			return ErrFenced
		}
		now := o.now()
		known := o.meet(&r)
		known.session = true
		named := make(map[string]bool, len(held))
		for _, ref := range held {
			s := o.standing(ref, r.ID, now)
			named[ref.Job] = named[ref.Job] || s.Verdict != Stale
			a.Held = append(a.Held, s)
		}
		for l := range known.live {
			if !named[l.id] && !l.fenced {
				a.Missing = append(a.Missing, o.lease(l, now))
			}
		}
		return nil
	})
	if err != nil {
		return Adoption{}, err
	}
	return a, nil
}
