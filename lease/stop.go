package lease

import (
	"context"

	"github.com/everdict/everdict/lease/sqlite"
)

// Cancel ends a job. One that no live holder has settles as Cancelled at once: queued, parked, or leased to a runner that
// has not been heard of within [Config.OnlineWindow] or since the coordinator started. Otherwise the holder is asked to
// stop: its renewals answer Stop, Committed is told (JobStopping), and the job settles when the holder does, gives it back,
// or loses its lease. settled says which of the two it was. Cancelling a settled job is a [*StateError]; cancelling
// one that is being stopped already changes nothing.
func (q *Queue) Cancel(ctx context.Context, job, reason string, opts ...Option) (settled bool, err error) {
	return q.stop(ctx, job, "cancel", Cancelled, reason, opts)
}

// Reject ends a parked job, or a parked attempt, because a person said no: as Cancel, with the outcome Rejected. A job that
// is not parked is refused with a [*StateError].
func (q *Queue) Reject(ctx context.Context, job, reason string, opts ...Option) (settled bool, err error) {
	return q.stop(ctx, job, "reject", Rejected, reason, opts)
}

func (q *Queue) stop(ctx context.Context, job, action string, outcome Outcome, reason string, opts []Option) (settled bool, err error) {
	hook := hookOf(opts)
	err = q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		if l := o.live[job]; l != nil {
			if outcome == Rejected && !l.held {
				return &StateError{Job: job, Action: action, State: Leased}
			}
			settled, err = o.stopLive(tx, l, outcome, reason, hook)
			return err
		}
		r, err := loadJob(tx, job)
		if err != nil {
			return err
		}
		if r.state == Settled || (outcome == Rejected && r.state != Parked) {
			return &StateError{Job: job, Action: action, State: r.state}
		}
		settled = true
		return o.settleRow(tx, r, Event{Outcome: outcome, Reason: reason}, hook)
	})
	return settled && err == nil, err
}

func (o *owner) stopLive(tx *sqlite.Tx, l *live, outcome Outcome, reason string, hook Hook) (settled bool, err error) {
	if now := o.now(); l.seen == never || now-l.seen >= int64(o.cfg.OnlineWindow) {
		ev := o.liveEvent(JobSettled, l)
		ev.Outcome, ev.Reason = outcome, reason
		return true, o.settleLive(tx, l, ev, 0, hook)
	}
	if l.stop != OutcomeNone {
		return false, nil
	}
	ev := o.liveEvent(JobStopping, l)
	ev.Stop, ev.Reason = outcome, reason
	err = o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateStop, int64(outcome), reason, l.seq)
		return err
	})
	if err != nil {
		return false, err
	}
	l.stop, l.reason = outcome, reason
	return false, nil
}

// settleRow ends a job that nobody holds. ev has the outcome and why.
func (o *owner) settleRow(tx *sqlite.Tx, r *row, ev Event, hook Hook) error {
	l, err := o.laneByID(tx, r.lane)
	if err != nil {
		return err
	}
	full := o.event(JobSettled, l, &r.entry)
	full.State, full.Outcome, full.Cause, full.Reason = Settled, ev.Outcome, ev.Cause, ev.Reason
	err = o.change(tx, &full, hook, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateSettled, int64(ev.Outcome), 0, o.now(), r.failures, ev.Reason, r.seq)
		return err
	})
	if err != nil {
		return err
	}
	l.unqueue(o, r)
	o.dropLane(l)
	return nil
}

// Park makes a queued job wait for a person. A parked job has no holder, no slot and no queue deadline.
func (q *Queue) Park(ctx context.Context, job, reason string, opts ...Option) error {
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		r, err := loadJob(tx, job)
		if err != nil {
			return err
		}
		if r.state != Queued {
			return &StateError{Job: job, Action: "park", State: r.state}
		}
		l, err := o.laneByID(tx, r.lane)
		if err != nil {
			return err
		}
		ev := o.event(JobParked, l, &r.entry)
		ev.State, ev.Reason = Parked, reason
		err = o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
			_, err := tx.Exec(updateParked, reason, r.seq)
			return err
		})
		if err != nil {
			return err
		}
		l.unqueue(o, r)
		l.parked++
		return nil
	})
}

// ParkLease marks a held attempt as waiting for a person. Its process is still there, so it keeps its lease, its epoch, its
// slot, and must go on renewing; Resume and Reject end the wait. Parking a parked attempt changes nothing.
func (q *Queue) ParkLease(ctx context.Context, ref Ref, reason string, opts ...Option) error {
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		l, err := q.owner.find(tx, ref, false)
		if err != nil {
			return err
		}
		if l.held {
			return nil
		}
		return q.owner.hold(tx, l, JobParked, reason, hook)
	})
}

// Resume ends the wait for a person: a parked job is queued, with a new queue deadline; a parked attempt goes on with the
// epoch that it has, and its holder learns so from its next renewal. A job that is not parked is refused with a
// [*StateError].
func (q *Queue) Resume(ctx context.Context, job string, opts ...Option) error {
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		if l := o.live[job]; l != nil {
			if !l.held || l.fenced { // who waits for it is not there
				return &StateError{Job: job, Action: "resume", State: Leased}
			}
			return o.hold(tx, l, JobResumed, "", hook)
		}
		r, err := loadJob(tx, job)
		if err != nil {
			return err
		}
		if r.state != Parked {
			return &StateError{Job: job, Action: "resume", State: r.state}
		}
		l, err := o.laneByID(tx, r.lane)
		if err != nil {
			return err
		}
		e := r.entry
		e.deadlineAt = o.deadlineOf(&e)
		ev := o.event(JobResumed, l, &e)
		ev.State, ev.Deadline = Queued, o.at(e.deadlineAt)
		err = o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
			_, err := tx.Exec(updateResumed, e.deadlineAt, e.seq)
			return err
		})
		if err != nil {
			return err
		}
		l.parked--
		o.enqueue(l, e)
		return nil
	})
}

// hold parks or resumes a held attempt.
func (o *owner) hold(tx *sqlite.Tx, l *live, kind Kind, reason string, hook Hook) error {
	ev := o.liveEvent(kind, l)
	ev.Reason = reason
	held := kind == JobParked
	if l.stop != OutcomeNone {
		reason = l.reason // why it is being stopped is not to be forgotten
	}
	err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateHeld, held, reason, l.seq)
		return err
	})
	if err != nil {
		return err
	}
	l.held, l.reason = held, reason
	return nil
}
