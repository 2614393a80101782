package lease

import (
	"container/heap"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

const (
	// tickChunk bounds the changes of one tick, so that a mass expiry does not keep other callers waiting.
	tickChunk = 256
	// pruneChunk rows are looked at in one step of forgetting settled jobs; a step that found many is followed by the next
	// at once, a step by another in a second, and a whole walk that found nothing by a pause of a minute.
	pruneChunk = 512
	pruneEvery = time.Second
	pruneIdle  = time.Minute
)

// nextWake is when the timer must run next.
func (o *owner) nextWake() int64 {
	next := min(o.nextDeadline, o.nextRetry, o.nextPrune, o.nextTell)
	if len(o.heap) > 0 {
		next = min(next, o.heap[0].wake)
	}
	return next
}

// tick does what time has made due and returns when it wants to run again.
func (o *owner) tick(tx *sqlite.Tx) (int64, error) {
	now := o.now()
	o.forgiveStall(now)
	again := int64(math.MaxInt64)
	if err := o.expireLeases(tx, now, &again); err != nil {
		return 0, err
	}
	if err := o.wakeDelayed(tx, now, &again); err != nil {
		return 0, err
	}
	if err := o.expireQueued(tx, now, &again); err != nil {
		return 0, err
	}
	if now >= o.nextPrune {
		pause, err := o.prune.run(tx, now-int64(o.cfg.Retention))
		if err != nil {
			return 0, err
		}
		o.nextPrune = now + int64(pause)
	}
	o.forgetRunners(now)
	return min(again, o.nextWake()), nil
}

// forgiveStall gives every lease one fresh TTL when the process itself was not running: stopped, paused with its machine, or
// held up by its disk. Renewals may wait unread, and a judge who was away cannot say who was silent.
func (o *owner) forgiveStall(now int64) {
	if o.scheduled == math.MaxInt64 || now-o.scheduled < int64(o.cfg.TTL)/4 {
		return
	}
	for _, l := range o.live {
		l.deadline = max(l.deadline, now+int64(o.cfg.TTL))
		l.startBy = max(l.startBy, now+int64(o.cfg.StartAck))
	}
}

// expireLeases ends the leases that are past their deadlines.
func (o *owner) expireLeases(tx *sqlite.Tx, now int64, again *int64) error {
	for n := 0; len(o.heap) > 0 && o.heap[0].wake <= now; n++ {
		if n == tickChunk {
			*again = now
			return nil
		}
		l := o.heap[0]
		if due := l.due(); due > now { // renewed since it was put in
			l.wake = due
			heap.Fix(&o.heap, 0)
			continue
		}
		if err := o.expire(tx, l, now); err != nil {
			if tx.Err() != nil {
				return err
			}
			o.cfg.Log.Error("expiry of a lease was refused by a hook", "job", l.id, "attempt", l.attempt, "err", err)
			l.wake = now + int64(tickRetry)
			heap.Fix(&o.heap, 0)
		}
	}
	return nil
}

func (o *owner) expire(tx *sqlite.Tx, l *live, now int64) error {
	rel := release{counted: true, cause: CauseExpired, reason: "the runner did not renew its lease in time"}
	switch {
	case l.deadline > now: // then it is the acknowledgement that is missing
		rel = release{unstarted: true, cause: CauseStartTimeout, reason: "the runner did not acknowledge the start in time"}
	case !l.started:
		rel.counted, rel.unstarted = false, true
	}
	switch {
	case l.fenced:
		rel.cause, rel.reason = CauseFenced, "its runner was revoked"
	case rel.cause == CauseExpired && l.restored:
		rel.cause, rel.reason = CauseRestart, "the runner did not come back after the coordinator restarted"
	}
	r := l.runner
	if _, err := o.release(tx, l, rel, nil); err != nil {
		return err
	}
	if rel.cause == CauseStartTimeout {
		r.degraded = now
	}
	return nil
}

// overdue is how far a walk over the overdue jobs has come. It goes past those that a hook refuses, so that they do not
// keep the others waiting.
type overdue struct {
	deadline, seq int64 // of the last job that was looked at
	refused       bool  // at least one was
}

// expireQueued settles the queued jobs that have waited too long.
func (o *owner) expireQueued(tx *sqlite.Tx, now int64, again *int64) error {
	if now < o.nextDeadline {
		return nil
	}
	rows, err := loadRows(tx, selectOverdue, now, o.overdue.deadline, o.overdue.seq, tickChunk)
	if err != nil {
		return err
	}
	for _, r := range rows {
		o.overdue.deadline, o.overdue.seq = r.deadlineAt, r.seq
		reason, err := o.whyUnschedulable(tx, r)
		if err != nil {
			return err
		}
		err = o.settleRow(tx, r, Event{Outcome: Unschedulable, Cause: CauseQueueDeadline, Reason: reason}, nil)
		if err != nil {
			if tx.Err() != nil {
				return err
			}
			o.cfg.Log.Error("queue deadline was refused by a hook", "job", r.id, "err", err)
			o.overdue.refused = true
		}
	}
	if len(rows) == tickChunk {
		*again = now
		return nil
	}
	refused := o.overdue.refused
	o.overdue = overdue{}
	if refused {
		o.nextDeadline = now + int64(tickRetry)
		return nil
	}
	err = tx.QueryRow(selectNextDeadline).Scan(&o.nextDeadline)
	if errors.Is(err, sql.ErrNoRows) {
		o.nextDeadline, err = math.MaxInt64, nil
	}
	return err
}

// forgetRunners drops runners that are gone.
func (o *owner) forgetRunners(now int64) {
	if len(o.runners) == 0 || now < o.nextForget {
		return
	}
	o.nextForget = now + int64(o.cfg.OnlineWindow)
	for _, r := range o.runners {
		o.dropRunner(r)
	}
}

// pruner walks the tables in small steps and removes what is not needed any more: payloads of settled jobs, and settled
// jobs past their retention. Walking needs no index that every settle would have to maintain.
type pruner struct {
	payloadAt, jobAt int64 // where the walks have come to; 0 is the beginning
}

// run takes one step of each walk and says when to take the next.
func (p *pruner) run(tx *sqlite.Tx, settledBefore int64) (pause time.Duration, err error) {
	gone, err := p.walk(tx, &p.payloadAt, deletePayload, func() (*sqlite.Rows, error) {
		return tx.Query(selectPayloadJobs, p.payloadAt, pruneChunk)
	}, func(state int64) bool { return State(state) == Settled })
	if err != nil {
		return 0, err
	}
	old, err := p.walk(tx, &p.jobAt, deleteJob, func() (*sqlite.Rows, error) {
		return tx.Query(selectSettledFrom, settledBefore, p.jobAt, pruneChunk)
	}, func(settled int64) bool { return settled == 1 })
	switch {
	case gone+old >= pruneChunk/2:
		return 0, err
	case gone+old == 0 && p.payloadAt == 0 && p.jobAt == 0:
		return pruneIdle, err
	}
	return pruneEvery, err
}

func (p *pruner) walk(tx *sqlite.Tx, cursor *int64, remove string, query func() (*sqlite.Rows, error), over func(int64) bool) (int, error) {
	rows, err := query()
	if err != nil {
		return 0, err
	}
	var gone []int64
	n := 0
	at := *cursor
	for rows.Next() {
		var v int64
		if err := rows.Scan(&at, &v); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		if n++; over(v) {
			gone = append(gone, at)
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, seq := range gone {
		if _, err := tx.Exec(remove, seq); err != nil {
			return 0, err
		}
	}
	*cursor = at
	if n < pruneChunk {
		*cursor = 0 // the end; begin again
	}
	return len(gone), nil
}
