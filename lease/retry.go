package lease

import (
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// retryGrowth is by how much each counted failure of a job lengthens the wait for its next attempt.
const retryGrowth = 4

// retryAt is when a job that has just failed, and counts it, may be leased again: a random moment of the second half of
// its delay, so that what failed together does not return together. It is not later than the queue deadline, which is to be
// met then; where that has passed while the job was leased it is now. 0 means at once.
func (o *owner) retryAt(e *entry) int64 {
	if o.cfg.RetryDelay < 0 {
		return 0
	}
	delay := o.cfg.RetryDelay
	for n := 1; n < e.failures && delay < o.cfg.MaxRetryDelay; n++ {
		delay *= retryGrowth
	}
	delay = min(delay, o.cfg.MaxRetryDelay)
	delay -= time.Duration(rand.Int64N(int64(delay)/2 + 1))
	now := o.now()
	return max(now, min(now+int64(delay), e.deadlineAt))
}

// delay puts a job that waits for its retry on disk aside.
func (o *owner) delay(l *lane, retryAt int64) {
	l.delayed++
	o.nextRetry = min(o.nextRetry, retryAt)
}

// wakeDelayed queues the jobs whose time to be retried has come.
func (o *owner) wakeDelayed(tx *sqlite.Tx, now int64, again *int64) error {
	if now < o.nextRetry {
		return nil
	}
	rows, err := loadRows(tx, selectRetries, now, tickChunk)
	if err != nil {
		return err
	}
	for _, r := range rows {
		l, err := o.laneByID(tx, r.lane)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(updateRetried, r.seq); err != nil {
			return err
		}
		l.delayed--
		o.enqueue(l, r.entry)
	}
	if len(rows) == tickChunk {
		*again = now
		return nil
	}
	err = tx.QueryRow(selectNextRetry).Scan(&o.nextRetry)
	if errors.Is(err, sql.ErrNoRows) {
		o.nextRetry, err = math.MaxInt64, nil
	}
	return err
}

// unqueue forgets a job in memory that is no longer queued, delayed or parked.
func (l *lane) unqueue(o *owner, r *row) {
	switch {
	case r.state == Parked:
		l.parked--
	case r.delayed:
		l.delayed--
	default:
		l.remove(o, r.seq)
	}
}
