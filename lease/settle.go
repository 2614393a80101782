package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/everdict/everdict/lease/sqlite"
)

// find returns the live lease that ref proves, or why it does not stand. A fenced one stands for those alone who have
// proof.
func (o *owner) find(tx *sqlite.Tx, ref Ref, proven bool) (*live, error) {
	l := o.live[ref.Job]
	if l == nil {
		r, err := loadJob(tx, ref.Job)
		if err != nil {
			return nil, err
		}
		if r.state == Settled && r.settledBy == ref.Attempt && r.token == ref.Token {
			return nil, fmt.Errorf("%w: attempt %d of %s", ErrAlreadySettled, ref.Attempt, ref.Job)
		}
		return nil, &StaleError{Ref: ref, Attempt: r.attempt, State: r.state, Outcome: r.outcome}
	}
	if l.attempt != ref.Attempt || l.token != ref.Token || l.fenced && !proven {
		return nil, &StaleError{Ref: ref, Attempt: l.attempt, State: Leased}
	}
	return l, nil
}

// Started acknowledges that the holder has begun. A repeated acknowledgement changes nothing, runs no hook and is no error.
// It also renews. A stale attempt gets a [*StaleError], or [ErrAlreadySettled] if it has settled the job itself.
func (q *Queue) Started(ctx context.Context, ref Ref, opts ...Option) error {
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		l, err := o.find(tx, ref, false)
		if err != nil {
			return err
		}
		now := o.now()
		if !l.started {
			ev := o.liveEvent(JobStarted, l)
			ev.Started = true
			err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
				_, err := tx.Exec(updateStarted, now, l.seq)
				return err
			})
			if err != nil {
				return err
			}
			l.started = true
			l.runner.degraded = 0
		}
		o.renew(l, now)
		return nil
	})
}

// Result ends a job.
type Result struct {
	// Outcome is Succeeded or Failed; Cancelled or Rejected if the holder ended it because it was asked to.
	Outcome Outcome
	// Reason in words, kept with the job.
	Reason string
}

// Settle ends the job with the result of the attempt that holds it, exactly once. A repeat by the same attempt, whose first
// answer was lost, gets [ErrAlreadySettled]; any other attempt gets a [*StaleError] and its result is late evidence. In
// both cases nothing is changed and the options' hook is not run.
func (q *Queue) Settle(ctx context.Context, ref Ref, res Result, opts ...Option) error {
	switch res.Outcome {
	case Succeeded, Failed, Cancelled, Rejected:
	default:
		return fmt.Errorf("lease: settle %s: a holder cannot settle as %s", ref.Job, res.Outcome)
	}
	o := optionsOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		l, err := q.owner.find(tx, ref, o.proven)
		if err != nil {
			return err
		}
		ev := q.owner.liveEvent(JobSettled, l)
		ev.Outcome, ev.Reason = res.Outcome, res.Reason
		return q.owner.settleLive(tx, l, ev, l.attempt, o.hook)
	})
}

// settleLive ends a leased job. by is the attempt that settles it, 0 if the queue does.
func (o *owner) settleLive(tx *sqlite.Tx, l *live, ev Event, by int64, hook Hook) error {
	ev.State = Settled
	err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateSettled, int64(ev.Outcome), by, o.now(), ev.Failures, ev.Reason, l.seq)
		return err
	})
	if err != nil {
		return err
	}
	o.removeLive(l)
	o.dropLane(l.lane)
	return nil
}

// Disposition of a job whose attempt was returned.
type Disposition struct {
	// State is Queued if it waits again, Settled if not.
	State State
	// Outcome if it settled: Exhausted, or what a person had asked for.
	Outcome Outcome
}

// Return is why an attempt is given back.
type Return struct {
	// Reason in words.
	Reason string
	// Counted returns use up one of the job's attempts: something ran and failed in a way that a retry can help.
	// Uncounted ones do not: a runner drains.
	Counted bool
}

// GiveBack ends an attempt without a result: the job is queued again at its old place, without waiting for a TTL; after a
// counted return, when its retry is due ([Config.RetryDelay]). The caller says by it that nothing of the attempt runs any
// more. If the return is counted and was the last that the job may
// have, it settles as Exhausted; if a person has asked it to stop, as what was asked.
func (q *Queue) GiveBack(ctx context.Context, ref Ref, ret Return, opts ...Option) (Disposition, error) {
	o := optionsOf(opts)
	var d Disposition
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		l, err := q.owner.find(tx, ref, o.proven)
		if err != nil {
			return err
		}
		rel := release{counted: ret.Counted, reason: ret.Reason}
		d, err = q.owner.release(tx, l, rel, o.hook)
		return err
	})
	if err != nil {
		return Disposition{}, err
	}
	return d, nil
}

// Retry is a counted GiveBack: the attempt failed for a reason outside the job, and another one can help.
func (q *Queue) Retry(ctx context.Context, ref Ref, reason string, opts ...Option) (Disposition, error) {
	return q.GiveBack(ctx, ref, Return{Reason: reason, Counted: true}, opts...)
}

type release struct {
	counted   bool // uses up an attempt
	unstarted bool // nobody acknowledged it
	cause     Cause
	reason    string
}

// release ends a lease without a result.
func (o *owner) release(tx *sqlite.Tx, l *live, rel release, hook Hook) (Disposition, error) {
	e := l.entry
	if rel.counted {
		e.failures++
	}
	if rel.unstarted {
		e.unstarted++
	}
	if l.stop == OutcomeNone && e.failures < e.maxAttempts && e.unstarted < o.cfg.MaxUnstarted {
		return Disposition{State: Queued}, o.requeue(tx, l, e, rel, hook)
	}
	ev := o.liveEvent(JobSettled, l)
	ev.Failures, ev.Unstarted, ev.Cause, ev.Reason = e.failures, e.unstarted, rel.cause, rel.reason
	ev.Outcome = Exhausted
	if l.stop != OutcomeNone {
		ev.Outcome, ev.Reason = l.stop, l.reason
	}
	return Disposition{State: Settled, Outcome: ev.Outcome}, o.settleLive(tx, l, ev, 0, hook)
}

func (o *owner) requeue(tx *sqlite.Tx, l *live, e entry, rel release, hook Hook) error {
	if l.started {
		e.deadlineAt = o.deadlineOf(&e) // what ran has not waited; what nobody started has
	}
	state, retryAt := Queued, int64(0)
	if rel.counted {
		if retryAt = o.retryAt(&e); retryAt > 0 {
			state = delayed
		}
	}
	ev := o.liveEvent(JobRequeued, l)
	ev.State, ev.Failures, ev.Unstarted, ev.Cause, ev.Reason, ev.Deadline = Queued, e.failures, e.unstarted, rel.cause, rel.reason, o.at(e.deadlineAt)
	if retryAt > 0 {
		ev.RetryAt = o.at(retryAt)
	}
	err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateRequeued, int64(state), retryAt, e.deadlineAt, e.failures, e.unstarted, rel.reason, e.seq)
		return err
	})
	if err != nil {
		return err
	}
	o.removeLive(l)
	if state == delayed {
		o.delay(l.lane, retryAt)
	} else {
		o.enqueue(l.lane, e)
	}
	return nil
}

// Moved says whether an error means that the job has gone on meanwhile: it is unknown by now, or in a state in which the
// operation is not for it.
func Moved(err error) bool {
	var state *StateError
	_, stale := IsStale(err)
	return stale || errors.As(err, &state) || errors.Is(err, ErrUnknownJob) || errors.Is(err, ErrAlreadySettled)
}

// IsStale says whether an error means that the attempt does not stand any more, and returns the details.
func IsStale(err error) (*StaleError, bool) {
	var stale *StaleError
	ok := errors.As(err, &stale)
	return stale, ok
}
