package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// A job may wait for a person for days, and that is no part of what its attempt may take. A
// cluster knows nothing of it: the fleet keeps the deadline of an attempt, and what the
// cluster has is a backstop that lies waitBound behind.

// waitBound is how long a job may wait for a person altogether.
const waitBound = 7 * 24 * time.Hour

// backstop is after how long the cluster ends a unit that is launched for one job. What is
// out with a payload is not always heard of: it has its time, whatever it waits for.
func backstop(n Needs, payload bool) time.Duration {
	if payload || n.Deadline == 0 {
		return n.Deadline
	}
	return n.Deadline + waitBound
}

// clock counts how long an attempt runs, on the coordinator's clock.
type clock struct {
	run     string
	attempt int64
	most    time.Duration // what it may take; 0: nobody says
	ran     time.Duration
	seen    time.Time // at the look before
	waits   bool      // then, for a person
}

// count adds what has passed since the look before. Time in which nobody looked counts as
// one pause between two looks: nobody knows what it waited for.
func (c *clock) count(now time.Time, waits bool, most time.Duration) {
	if !c.seen.IsZero() && !c.waits {
		c.ran += min(now.Sub(c.seen), most)
	}
	c.seen, c.waits = now, waits
}

// overran ends the attempt of a unit that has run for longer than it may. The run has
// settled then, its runner hears that, and the unit is not wanted any more. A coordinator
// that was restarted counts anew.
func (l *look) overran(ctx context.Context, u seen, job lease.JobState) bool {
	m := l.mark(u.Name)
	if u.Note == payloadNote {
		return false
	}
	if c := &m.clock; c.run != u.Job || c.attempt != job.Attempt {
		n, err := l.cfg.Runs.Needs(ctx, u.Job)
		if err != nil {
			l.log.Warn("the deadline of an attempt is not known yet", "run", u.Job, "err", err)
			return false
		}
		*c = clock{run: u.Job, attempt: job.Attempt, most: n.Deadline}
	}
	c := &m.clock
	c.count(l.now, job.Lease.Parked, l.cfg.Resync+l.cfg.MaxBackoff)
	switch {
	case c.most == 0 || c.waits:
		return false
	case c.ran < c.most:
		l.due(l.now.Add(c.most - c.ran))
		return false
	}
	f := failure(&u.Unit, &Trouble{Cause: CauseDeadline, Message: fmt.Sprintf("it ran for %v; its deadline is %v", c.ran.Round(time.Second), c.most)}, Needs{}, false)
	f.Limit = &protocol.Limit{Name: "deadline", Unit: "s", Configured: c.most.Seconds(), Measured: c.ran.Round(time.Second).Seconds()}
	if err := l.cfg.Runs.Ended(ctx, *job.Lease, f); err != nil {
		l.log.Warn("the end of an attempt could not be written", "run", u.Job, "unit", u.Name, "err", err)
		l.due(l.now.Add(l.cfg.Backoff))
		return false
	}
	l.log.Info("attempt ended at its deadline", "run", u.Job, "unit", u.Name, "ran", c.ran)
	l.due(l.now.Add(settle))
	return true
}
