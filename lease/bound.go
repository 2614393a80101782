package lease

import (
	"errors"
	"slices"

	"github.com/everdict/everdict/lease/sqlite"
)

// A bound runner takes one job and no other: it was launched for it. It stands in no crowd, since no other job may find
// it, and its job finds it by name.

// bind lists a bound runner with waiting pulls. Its home is set.
func (o *owner) bind(r *runner) {
	o.bound[r.Job] = append(o.bound[r.Job], r)
	if r.home.bound == nil {
		r.home.bound = make(map[*runner]struct{})
	}
	r.home.bound[r] = struct{}{}
}

// unbind takes a runner out again, if it is bound.
func (o *owner) unbind(r *runner) {
	if r.Job == "" {
		return
	}
	delete(r.home.bound, r)
	if o.bound[r.Job] = without(o.bound[r.Job], r); len(o.bound[r.Job]) == 0 {
		delete(o.bound, r.Job)
	}
}

// touchBound looks again for what the runners bound to a job can take.
func (o *owner) touchBound(job string) {
	for _, r := range o.bound[job] {
		o.touchRunner(r)
	}
}

// chooseBound is choose for a bound runner: its job, if that is queued and admitted now.
func (o *owner) chooseBound(tx *sqlite.Tx, r *runner) (*lane, *entry, error) {
	row, err := loadJob(tx, r.Job)
	if errors.Is(err, ErrUnknownJob) {
		return nil, nil, nil
	}
	if err != nil || row.state != Queued || row.delayed {
		return nil, nil, err
	}
	l, err := o.laneByID(tx, row.lane)
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(r.Serves, l.key.pool) || r.offers(l) != fits || r.admits(r.home, l) != fits {
		return nil, nil, nil
	}
	return l, &row.entry, nil
}
