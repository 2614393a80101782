package lease

import (
	"context"
	"slices"

	"github.com/everdict/everdict/lease/sqlite"
)

// Ready lists the runners, by id, that would take a job with these requirements at once if it were queued for a pool that
// they serve: a pull of each waits, and the runner and its home have room. Those that take one job only are not among them.
func (q *Queue) Ready(ctx context.Context, r Requirements) ([]string, error) {
	key := keyOf(&Job{Requirements: r})
	l := &lane{key: key, caps: splitCapabilities(key.capabilities)}
	var ids []string
	err := q.do(ctx, func(*sqlite.Tx) error {
		for _, r := range q.owner.runners {
			if r.home != nil && r.Job == "" && r.offers(l) == fits && r.admits(r.home, l) == fits {
				ids = append(ids, r.ID)
			}
		}
		return nil
	})
	slices.Sort(ids)
	return ids, err
}
