package lease

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// runner is what the queue knows of who pulls.
type runner struct {
	Runner
	session  bool  // SetRunner was called, RemoveRunner was not
	fenced   int64 // when Fence was called, 0 if it was not
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

func (o *owner) isFenced(id string) bool {
	r := o.runners[id]
	return r != nil && r.fenced != 0
}

// meet notes that a runner has spoken, and what it says of itself. Pulls that wait are tried again if that is new.
func (o *owner) meet(rn *Runner) *runner {
	r := o.runner(rn.ID)
	r.contact = o.now()
	if !r.equal(rn) {
		o.unlist(r)
		r.Runner = *rn
		r.Serves, r.Capabilities = slices.Clone(rn.Serves), slices.Clone(rn.Capabilities)
		o.list(r)
		o.touchRunner(r)
	}
	return r
}

// online says whether the runner is there: it has a session, a pull that waits, or was heard of within the window.
func (o *owner) online(r *runner, now int64) bool {
	return r.session || len(r.waiting) > 0 || (r.contact != never && now-r.contact < int64(o.cfg.OnlineWindow))
}

// memory is how long a runner that has gone is remembered if it did not acknowledge a start, or was fenced.
const memory = time.Hour

func (o *owner) dropRunner(r *runner) {
	now := o.now()
	if len(r.live) > 0 || r.dirty || o.online(r, now) || (r.degraded != 0 && now-r.degraded < int64(memory)) ||
		(r.fenced != 0 && now-r.fenced < int64(memory)) {
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
		if q.owner.isFenced(r.ID) {
			return ErrFenced
		}
		q.owner.meet(&r).session = true
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
// from now on, also after a restart, and their pulls, SetRunner and Adopt with [ErrFenced] for an hour at least, in which
// the caller must have seen to it that they do not come any more. Their jobs are given away only when the leases' deadlines
// pass, by which they must have frozen them; each lease is told of as JobFenced. A held attempt waits for no person any
// more. A job that a person has asked to stop settles at once, as with a cancel that comes later: there is nobody to wait
// for. The fence holds whatever becomes of the writing; what a hook or the disk refuses is tried again.
func (q *Queue) Fence(ctx context.Context, ids ...string) error {
	for fenced := false; !fenced; {
		// Not through do: this needs nothing from the disk, and must work when the disk does not.
		err := q.db.Apply(context.WithoutCancel(ctx), func(*sqlite.Tx) error {
			if fenced = true; !q.ended {
				for _, id := range ids {
					q.owner.fence(id)
				}
			}
			return nil
		})
		if errors.Is(err, sqlite.ErrClosed) {
			return ErrClosed
		}
	}
	return q.do(ctx, func(tx *sqlite.Tx) error { return q.owner.tellFenced(tx) })
}

// fence takes the trust from a runner, in memory. It comes before anything that can fail.
func (o *owner) fence(id string) {
	r := o.runner(id)
	r.fenced = o.now()
	for _, w := range slices.Clone(r.waiting) {
		o.withdraw(id, w)
		o.granted = append(o.granted, grant{w: w, err: ErrFenced})
	}
	for l := range r.live {
		l.fence()
	}
	o.nextTell = o.now() + int64(tickRetry) // should the caller not come to it
}

func (l *live) fence() { l.fenced, l.seen = true, never }

// tellFenced makes durable what is fenced and was not told yet.
func (o *owner) tellFenced(tx *sqlite.Tx) error {
	o.nextTell = math.MaxInt64
	byArrival := func(a, b *live) int { return cmp.Compare(a.seq, b.seq) }
	told := 0
	for _, l := range slices.SortedFunc(maps.Values(o.live), byArrival) {
		if !l.untold() {
			continue
		}
		if told++; told > tickChunk {
			o.nextTell = o.now()
			return nil
		}
		if err := o.tellOne(tx, l); err != nil {
			o.nextTell = o.now() + int64(tickRetry)
			if tx.Err() != nil {
				return err
			}
			o.cfg.Log.Error("the news that a runner was revoked was refused by a hook", "job", l.id, "attempt", l.attempt, "runner", l.runner.ID, "err", err)
		}
	}
	return nil
}

// untold says that a fenced lease is not on disk as it should be.
func (l *live) untold() bool { return l.fenced && (!l.told || l.stop != OutcomeNone) }

func (o *owner) tellOne(tx *sqlite.Tx, l *live) error {
	if l.stop != OutcomeNone {
		_, err := o.stopLive(tx, l, l.stop, l.reason, nil)
		return err
	}
	ev := o.liveEvent(JobFenced, l)
	ev.Cause, ev.Deadline = CauseFenced, o.at(l.due())
	if l.held {
		ev.Reason = l.reason
	}
	err := o.change(tx, &ev, nil, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateFenced, l.seq)
		return err
	})
	if err == nil {
		l.told, l.held, l.reason = true, false, ""
	}
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

// Runners lists the runners that are online, hold a lease, or were degraded within the hour, by id. Of those that were
// fenced it lists the holders of leases.
func (q *Queue) Runners(ctx context.Context) ([]RunnerStatus, error) {
	var all []RunnerStatus
	err := q.do(ctx, func(*sqlite.Tx) error {
		now := q.owner.now()
		for _, r := range q.owner.runners {
			if r.fenced != 0 && len(r.live) == 0 {
				continue // it is remembered for one thing only
			}
			s := RunnerStatus{Runner: r.Runner, Online: q.owner.online(r, now), Leases: len(r.live), Waiting: len(r.waiting)}
			s.Serves, s.Capabilities = slices.Clone(r.Serves), slices.Clone(r.Capabilities)
			if r.degraded != 0 {
				s.Degraded = q.owner.at(r.degraded)
			}
			if r.contact != never {
				s.LastContact = q.owner.at(r.contact)
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
