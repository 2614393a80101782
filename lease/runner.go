package lease

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// runner is what the queue knows of who pulls.
type runner struct {
	Runner
	session  bool // SetRunner was called, RemoveRunner was not
	fenced   bool // Fence was called
	contact  int64
	degraded int64 // when a lease of it was last not acknowledged, 0 if it has acknowledged one since
	live     map[*live]struct{}
	waiting  []*waiter
	stands   []*stand // in which it waits, one for each pool that it serves
	home     *home    // in whose waiting list it is
	dirty    bool
}

func (o *owner) runner(id string) *runner {
	r := o.runners[id]
	if r == nil {
		r = &runner{Runner: Runner{ID: id}, contact: never, live: make(map[*live]struct{})}
		o.runners[id] = r
	}
	return r
}

// meet notes that a runner has spoken, and what it says of itself.
func (o *owner) meet(rn *Runner) *runner {
	r := o.runner(rn.ID)
	r.contact = o.now()
	if !r.equal(rn) {
		o.unlist(r)
		r.Runner = *rn
		r.Serves, r.Capabilities = slices.Clone(rn.Serves), slices.Clone(rn.Capabilities)
		o.list(r)
	}
	return r
}

// online says whether the runner is there: it has a session, a pull that waits, or was heard of within the window.
func (o *owner) online(r *runner, now int64) bool {
	return r.session || len(r.waiting) > 0 || (r.contact != never && now-r.contact < int64(o.cfg.OnlineWindow))
}

// degradedMemory is how long a runner that did not acknowledge a start is remembered after it has gone.
const degradedMemory = time.Hour

func (o *owner) dropRunner(r *runner) {
	now := o.now()
	if len(r.live) > 0 || r.dirty || o.online(r, now) || (r.degraded != 0 && now-r.degraded < int64(degradedMemory)) {
		return
	}
	delete(o.runners, r.ID)
}

func (r *runner) memory() int64 {
	var sum int64
	for l := range r.live {
		sum += l.lane.key.memoryMB
	}
	return sum
}

// list puts a runner with waiting pulls where jobs and slots look for one.
func (o *owner) list(r *runner) {
	if len(r.waiting) == 0 || r.home != nil {
		return
	}
	r.home = o.home(r.Runner.home())
	r.home.waiting = append(r.home.waiting, r)
	if r.Job != "" {
		o.bind(r)
		return
	}
	for i, name := range r.Serves {
		if !slices.Contains(r.Serves[:i], name) {
			o.pool(name).enter(r, r.home)
		}
	}
}

func (o *owner) unlist(r *runner) {
	if r.home == nil {
		return
	}
	for _, s := range r.stands {
		s.leave(r)
		o.dropPool(s.crowd.pool)
	}
	h := r.home
	h.waiting = without(h.waiting, r)
	o.unbind(r)
	r.stands, r.home = r.stands[:0], nil
	o.dropHome(h)
}

// SetRunner says that a runner is connected and what it offers, until RemoveRunner. A runner that only pulls needs neither;
// it counts as online while a pull of it waits, and for the online window after its last word.
func (q *Queue) SetRunner(ctx context.Context, r Runner) error {
	return q.do(ctx, func(*sqlite.Tx) error {
		known := q.owner.meet(&r)
		known.session = true
		q.owner.touchRunner(known)
		return nil
	})
}

// RemoveRunner says that a runner's session is over. Its leases stand until their deadlines, because it may come back;
// but nothing waits for it: a cancel settles its jobs at once.
func (q *Queue) RemoveRunner(ctx context.Context, id string) error {
	return q.do(ctx, func(*sqlite.Tx) error {
		r := q.owner.runners[id]
		if r == nil {
			return nil
		}
		r.session, r.contact = false, never
		for l := range r.live {
			l.seen = never
		}
		q.owner.dropRunner(r)
		return nil
	})
}

// Fence ends the trust in runners whose credentials were revoked: their renewals, starts and results are refused as stale
// from now on, also after a restart, and their pulls with [ErrFenced]. Their jobs are given away only when the leases'
// deadlines pass, by which they must have frozen them; each lease is told of as JobFenced. One whose job a person has asked
// to stop settles at once, as a cancel that comes later does: there is nobody to wait for. A hook that refuses its event
// is logged, and the fence holds without its record.
func (q *Queue) Fence(ctx context.Context, ids ...string) error {
	return q.do(ctx, func(tx *sqlite.Tx) error {
		for _, id := range ids {
			if err := q.owner.fence(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *owner) fence(tx *sqlite.Tx, id string) error {
	r := o.runners[id]
	if r == nil {
		return nil
	}
	r.fenced = true
	for _, w := range slices.Clone(r.waiting) {
		o.withdraw(id, w)
		o.granted = append(o.granted, grant{w: w, err: ErrFenced})
	}
	for _, l := range slices.SortedFunc(maps.Keys(r.live), func(a, b *live) int { return cmp.Compare(a.seq, b.seq) }) {
		l.fenced, l.seen = true, never
		if err := o.tellFenced(tx, l); err != nil {
			if tx.Err() != nil {
				return err
			}
			o.cfg.Log.Error("the news that a runner was revoked was refused by a hook", "job", l.id, "attempt", l.attempt, "runner", id, "err", err)
		}
	}
	return nil
}

// tellFenced makes the fence of a lease durable, once.
func (o *owner) tellFenced(tx *sqlite.Tx, l *live) error {
	if l.stop != OutcomeNone {
		_, err := o.stopLive(tx, l, l.stop, l.reason, nil)
		return err
	}
	if l.told {
		return nil
	}
	ev := o.liveEvent(JobFenced, l)
	ev.Cause, ev.Deadline = CauseFenced, at(l.due())
	err := o.change(tx, &ev, nil, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateFenced, l.seq)
		return err
	})
	l.told = err == nil
	return err
}

// RunnerStatus is what the queue knows of a runner.
type RunnerStatus struct {
	Runner
	// Online: it has a session, a waiting pull, or was heard of within [Config.OnlineWindow].
	Online bool
	// Degraded is when a lease of it was last not acknowledged as started; zero if it has acknowledged one since.
	Degraded time.Time
	// LastContact is its last word, zero if there was none since the coordinator started.
	LastContact time.Time
	// Leases that it holds, and pulls that wait.
	Leases, Waiting int
}

// Runners lists the runners that are online, hold a lease, or were degraded within the hour, by id.
func (q *Queue) Runners(ctx context.Context) ([]RunnerStatus, error) {
	var all []RunnerStatus
	err := q.do(ctx, func(*sqlite.Tx) error {
		now := q.owner.now()
		for _, r := range q.owner.runners {
			s := RunnerStatus{Runner: r.Runner, Online: q.owner.online(r, now), Leases: len(r.live), Waiting: len(r.waiting)}
			s.Serves, s.Capabilities = slices.Clone(r.Serves), slices.Clone(r.Capabilities)
			if r.degraded != 0 {
				s.Degraded = at(r.degraded)
			}
			if r.contact != never {
				s.LastContact = at(r.contact)
			}
			all = append(all, s)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b RunnerStatus) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all, err
}

// SetLimit sets the admission limit of a pool's own runners, until the process ends.
func (q *Queue) SetLimit(ctx context.Context, pool string, l Limit) error {
	return q.do(ctx, func(*sqlite.Tx) error {
		q.owner.limits[pool] = l
		if h := q.owner.homes[pool]; h != nil {
			h.limit = l
			q.owner.touchHome(h)
		}
		return nil
	})
}

// SetWeight sets a workspace's share against the others, until the process ends: with weight 2 it gets two leases where one
// of weight 1 gets one. The default is 1; a weight that is not positive means 1.
func (q *Queue) SetWeight(ctx context.Context, workspace string, weight float64) error {
	if !(weight > 0) {
		weight = 1
	}
	return q.do(ctx, func(*sqlite.Tx) error {
		q.owner.weights[workspace] = weight
		if s := q.owner.spaces[workspace]; s != nil {
			s.weight = weight
		}
		return nil
	})
}
