package lease

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Waits are the jobs of a lane that wait, and why the first of them does. All of a lane are taken by the same runners.
type Waits struct {
	Pool  string
	Count int
	// First is the explanation of the first one; of parked jobs and of those that wait for their retry it has Why alone.
	First Explanation
	// Since is when the first was enqueued, or came back to the queue; zero if First names no job.
	Since time.Time
}

// Waits explains why the jobs of a workspace wait, those of at most n lanes. It costs a step per lane and runner, however
// many jobs are queued.
func (q *Queue) Waits(ctx context.Context, workspace string, n int) ([]Waits, error) {
	var all []Waits
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		for k, l := range o.lanes {
			if k.workspace != workspace || len(all) >= n {
				continue
			}
			if l.parked > 0 {
				all = append(all, Waits{Pool: k.pool, Count: l.parked, First: Explanation{State: Parked, Why: WhyParked, Sentence: "waits for a person"}})
			}
			if l.delayed > 0 {
				all = append(all, Waits{Pool: k.pool, Count: l.delayed, First: Explanation{State: Queued, Why: WhyRetry, Sentence: "waits for its next attempt"}})
			}
			head, err := l.head(o, tx)
			if err != nil {
				return err
			}
			if head == nil {
				continue
			}
			x := Explanation{Job: head.id, State: Queued, Deadline: o.at(head.deadlineAt), Attempt: head.attempt}
			if err := o.explainQueued(tx, &x, l, head.seq); err != nil {
				return err
			}
			all = append(all, Waits{Pool: k.pool, Count: l.queued, First: x, Since: o.at(head.enqueuedAt)})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Waits) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Pool, b.Pool)
	})
	return all, err
}
