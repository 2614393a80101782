package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Enqueue accepts a job. When it returns nil the job, and what the options did, have reached the disk; a runner may hold
// it already. A job whose id is known is refused with ErrExists.
func (q *Queue) Enqueue(ctx context.Context, j Job, opts ...Option) error {
	if err := j.check(); err != nil {
		return err
	}
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		l, e, err := o.insert(tx, &j, hook)
		if err != nil {
			return err
		}
		o.inserted(&j, l, e)
		return nil
	})
}

// EnqueueAll accepts all the jobs or none. The options' hook runs once for each, in order.
func (q *Queue) EnqueueAll(ctx context.Context, jobs []Job, opts ...Option) error {
	for i := range jobs {
		if err := jobs[i].check(); err != nil {
			return err
		}
	}
	hook := hookOf(opts)
	return q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		lanes, entries := make([]*lane, len(jobs)), make([]entry, len(jobs))
		seq, events := o.seq, len(o.events)
		err := tx.Nested(func(tx *sqlite.Tx) error {
			for i := range jobs {
				var err error
				if lanes[i], entries[i], err = o.insert(tx, &jobs[i], hook); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			o.seq, o.events = seq, o.events[:events]
			for _, l := range lanes {
				if l != nil {
					// Its number may have been undone with the savepoint.
					o.dropLane(l)
				}
			}
			return err
		}
		for i := range jobs {
			o.inserted(&jobs[i], lanes[i], entries[i])
		}
		return nil
	})
}

// insert writes a new job. Memory does not know it yet, apart from its lane and its number.
func (o *owner) insert(tx *sqlite.Tx, j *Job, hook Hook) (*lane, entry, error) {
	now := o.now()
	wait := j.QueueDeadline
	if wait == 0 {
		wait = o.cfg.QueueDeadline
	}
	attempts := j.MaxAttempts
	if attempts == 0 {
		attempts = o.cfg.MaxAttempts
	}
	e := entry{seq: o.seq + 1, id: j.ID, maxAttempts: attempts, wait: int64(wait), enqueuedAt: now, deadlineAt: now + int64(wait),
		payload: j.Payload}
	if e.payload == nil {
		e.payload = []byte{}
	}
	state := Queued
	if j.Parked != "" {
		state = Parked
	}
	l := o.lanes[keyOf(j)]
	var key laneKey
	if l == nil {
		key = keyOf(j)
	} else {
		key = l.key
	}
	ev := Event{Kind: JobEnqueued, Job: j.ID, Workspace: j.Workspace, Pool: j.Pool, Class: j.Class, State: state,
		Reason: j.Parked, At: o.at(now)}
	if state == Queued {
		ev.Deadline = o.at(e.deadlineAt)
	}
	var id int64
	err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		var err error
		if l != nil {
			id = l.id
		} else if id, err = laneID(tx, key); err != nil {
			return err
		}
		res, err := tx.Exec(insertJob, e.seq, e.id, id, int64(state), e.maxAttempts, e.wait, e.enqueuedAt, e.deadlineAt, j.Parked)
		if err != nil {
			return err
		}
		if res.RowsAffected == 0 {
			return fmt.Errorf("%w: %.64q", ErrExists, j.ID)
		}
		_, err = tx.Exec(insertPayload, e.seq, e.payload)
		return err
	})
	if err != nil {
		return nil, e, err
	}
	if l == nil {
		l = o.newLane(id, key)
	}
	o.seq = e.seq
	return l, e, nil
}

// inserted makes a new job known to memory.
func (o *owner) inserted(j *Job, l *lane, e entry) {
	if j.Parked != "" {
		l.parked++
		return
	}
	o.enqueue(l, e)
}

// enqueue puts a job that is queued on disk into its lane.
func (o *owner) enqueue(l *lane, e entry) {
	l.add(o, e)
	o.nextDeadline = min(o.nextDeadline, e.deadlineAt)
	o.touchLane(l)
	o.touchBound(e.id)
}

// deadlineOf is when a job that becomes queued now has waited too long.
func (o *owner) deadlineOf(e *entry) int64 {
	return o.now() + int64(time.Duration(e.wait))
}
