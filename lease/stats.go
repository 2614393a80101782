package lease

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Count is the number of jobs of one workspace that target one pool, by state. Settled jobs are not counted.
type Count struct {
	Workspace, Pool        string
	Queued, Leased, Parked int
}

// HomeUse is what the leases of a pool's own runners take of its limit: MemoryMB in MiB, CPU in thousandths of a core.
type HomeUse struct {
	Pool          string
	Limit         Limit
	Leases        int
	MemoryMB, CPU int64
}

// Stats is the queue at one moment.
type Stats struct {
	// Counts by workspace and pool, those with something in them.
	Counts []Count
	// Homes are the pools whose runners hold leases.
	Homes []HomeUse
	// Online runners, and pulls that wait.
	Online, Waiting int
}

// Stats counts. It costs a step per lane and runner, however many jobs are queued.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := q.do(ctx, func(*sqlite.Tx) error {
		o := q.owner
		type key struct{ workspace, pool string }
		counts := make(map[key]*Count)
		for k, l := range o.lanes {
			if l.queued+l.delayed+l.live+l.parked == 0 {
				continue
			}
			c := counts[key{k.workspace, k.pool}]
			if c == nil {
				c = &Count{Workspace: k.workspace, Pool: k.pool}
				counts[key{k.workspace, k.pool}] = c
			}
			c.Queued, c.Leased, c.Parked = c.Queued+l.queued+l.delayed, c.Leased+l.live, c.Parked+l.parked
		}
		for _, c := range counts {
			s.Counts = append(s.Counts, *c)
		}
		for _, h := range o.homes {
			if len(h.live) > 0 {
				s.Homes = append(s.Homes, HomeUse{Pool: h.name, Limit: h.limit, Leases: len(h.live), MemoryMB: h.memory(), CPU: h.cpu()})
			}
		}
		now := o.now()
		for _, r := range o.runners {
			if o.online(r, now) {
				s.Online++
			}
			s.Waiting += len(r.waiting)
		}
		return nil
	})
	slices.SortFunc(s.Counts, func(a, b Count) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Pool, b.Pool))
	})
	slices.SortFunc(s.Homes, func(a, b HomeUse) int { return strings.Compare(a.Pool, b.Pool) })
	return s, err
}

// List returns the live leases, without payloads, by job.
func (q *Queue) List(ctx context.Context) ([]Lease, error) {
	var all []Lease
	err := q.do(ctx, func(*sqlite.Tx) error {
		now := q.owner.now()
		all = make([]Lease, 0, len(q.owner.live))
		for _, l := range q.owner.live {
			all = append(all, q.owner.lease(l, now))
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Lease) int { return strings.Compare(a.Job, b.Job) })
	return all, err
}

// Status is a job as the queue knows it.
type Status struct {
	Job, Workspace, Pool string
	Class                Class
	State                State
	// Attempt is the epoch of the lease, or of the last one; 0 before the first.
	Attempt int64
	// Failures are the attempts that count against MaxAttempts.
	Failures, MaxAttempts int
	// Runner of the current or last attempt, and whether that was acknowledged as started.
	Runner  string
	Started bool
	// Parked attempts and jobs wait for a person.
	Parked bool
	// Stop is what the holder was asked to end with; Outcome how the job settled; Reason the words of the last change.
	Stop    Outcome
	Outcome Outcome
	Reason  string
	// Enqueued and Deadline of being queued, by the coordinator's clock.
	Enqueued, Deadline time.Time
}

// Get returns a job, or ErrUnknownJob.
func (q *Queue) Get(ctx context.Context, job string) (Status, error) {
	var s Status
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		r, err := loadJob(tx, job)
		if err != nil {
			return err
		}
		k, err := loadLaneKey(tx, r.lane)
		if err != nil {
			return err
		}
		s = Status{Job: r.id, Workspace: k.workspace, Pool: k.pool, Class: k.class, State: r.state, Attempt: r.attempt,
			Failures: r.failures, MaxAttempts: r.maxAttempts, Runner: r.runner, Started: r.startedAt != 0,
			Parked: r.state == Parked || (r.state == Leased && r.held), Stop: r.stop, Outcome: r.outcome, Reason: r.reason,
			Enqueued: q.owner.at(r.enqueuedAt)}
		if r.state == Queued {
			s.Deadline = q.owner.at(r.deadlineAt)
		}
		return nil
	})
	return s, err
}
