package lease

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// errDiverged says that memory and disk disagree; the group fails and memory is rebuilt.
var errDiverged = errors.New("lease: memory differs from disk")

// live is a lease in memory. A job has at most one.
type live struct {
	entry
	lane    *lane
	runner  *runner
	home    *home
	token   string
	request string
	// Times of the owner's clock.
	deadline int64 // of the lease
	startBy  int64 // of the acknowledgement, if not started
	seen     int64 // last word of the holder; never: it is not there, as far as anybody knows
	started  bool
	restored bool // read from disk, and its holder has not spoken since
	held     bool
	fenced   bool // its runner is
	told     bool // that it is fenced is on disk
	stop     Outcome
	reason   string
	wake     int64 // its key in the heap: not later than due()
	index    int   // in the heap
}

const never = math.MinInt64

// due is when something must be decided about the lease without its holder.
func (l *live) due() int64 {
	if !l.started && l.startBy < l.deadline {
		return l.startBy
	}
	return l.deadline
}

// home is a pool in its other role: as the one whose admission limits the leases of its own runners.
type home struct {
	name    string
	limit   Limit
	live    map[*live]struct{}
	waiting []*runner            // at home here, with a pull that waits
	stands  []*stand             // of these, in the crowds of the pools that they serve
	bound   map[*runner]struct{} // of these, those that take one job only
	dirty   bool
}

func (h *home) memory() int64 {
	var sum int64
	for l := range h.live {
		sum += l.lane.key.memoryMB
	}
	return sum
}

func (h *home) cpu() int64 {
	var sum int64
	for l := range h.live {
		sum += l.lane.key.cpu
	}
	return sum
}

// blocks says whether the home may have kept a pull from a job because of this lease, so that the lease's end can admit one.
func (h *home) blocks(l *live) bool {
	full := h.limit.MaxConcurrent > 0 && len(h.live) >= h.limit.MaxConcurrent
	return full || (h.limit.MemoryMB > 0 && l.lane.key.memoryMB > 0) || (h.limit.CPU > 0 && l.lane.key.cpu > 0)
}

// owner is the queue's memory. Only the writer's goroutine touches it.
type owner struct {
	cfg     *Config
	base    time.Time // when the process began to count
	broken  error     // memory is not to be trusted; the next operation rebuilds it
	seq     int64     // of the newest job
	lanes   map[laneKey]*lane
	byID    map[int64]*lane
	pools   map[string]*pool
	spaces  map[string]*workspace
	weights map[string]float64
	limits  map[string]Limit
	homes   map[string]*home
	runners map[string]*runner
	bound   map[string][]*runner // with a pull that waits, by the one job that they take
	live    map[string]*live
	heap    leaseHeap
	vtime   float64

	payloadBytes int
	nextDeadline int64 // no queued job's deadline is before it, apart from what a hook has refused
	overdue      overdue
	nextRetry    int64 // no delayed job's retry is before it
	nextPrune    int64
	nextTell     int64 // when fenced leases are told of that were not; MaxInt64: there is none
	nextForget   int64
	prune        pruner

	dirtyLanes   []*lane
	dirtyRunners []*runner
	dirtyHomes   []*home

	events    []Event
	asked     []asking // pulls that began to wait in this group
	granted   []grant  // answers of waiting pulls in this group
	scheduled int64    // when the timer last promised to tick
}

func newOwner(cfg *Config) *owner {
	o := &owner{cfg: cfg, base: cfg.Now(), weights: make(map[string]float64), limits: make(map[string]Limit),
		runners: make(map[string]*runner), bound: make(map[string][]*runner), homes: make(map[string]*home), pools: make(map[string]*pool),
		spaces: make(map[string]*workspace), scheduled: math.MaxInt64, nextTell: math.MaxInt64}
	return o
}

// now is the coordinator's time in nanoseconds since 1970: the wall time at which the process began plus what its
// monotonic clock has counted since, so that setting the wall clock ends no lease.
func (o *owner) now() int64 {
	return o.base.UnixNano() + int64(o.cfg.Now().Sub(o.base))
}

// rebuild makes memory equal to the disk. Runners and what waits are kept, they are not on disk; leases that are on disk
// keep their deadlines, or get one fresh TTL if memory had none.
func (o *owner) rebuild(tx *sqlite.Tx) error {
	before := o.live
	o.lanes, o.byID, o.live = make(map[laneKey]*lane), make(map[int64]*lane), make(map[string]*live)
	o.heap, o.payloadBytes, o.nextDeadline, o.nextRetry = nil, 0, 0, 0
	o.overdue = overdue{}
	o.dirtyLanes, o.dirtyRunners, o.dirtyHomes = nil, nil, nil
	o.events, o.granted = nil, nil
	for _, p := range o.pools {
		p.lanes = nil
	}
	for _, s := range o.spaces {
		s.lanes = 0
	}
	for _, h := range o.homes {
		clear(h.live)
		h.dirty = false
	}
	for _, r := range o.runners {
		clear(r.live)
		r.dirty = false
	}
	if err := o.load(tx, before); err != nil {
		o.broken = fmt.Errorf("lease: read the queue: %w", err)
		return o.broken
	}
	o.broken = nil
	for _, l := range o.lanes {
		o.touchLane(l)
	}
	for job := range o.bound {
		o.touchBound(job)
	}
	return nil
}

func (o *owner) load(tx *sqlite.Tx, before map[string]*live) error {
	if err := tx.QueryRow(maxSeq).Scan(&o.seq); err != nil {
		return err
	}
	queued, err := loadCounts(tx, countQueued)
	if err != nil {
		return err
	}
	parked, err := loadCounts(tx, countParked)
	if err != nil {
		return err
	}
	waiting, err := loadCounts(tx, countDelayed)
	if err != nil {
		return err
	}
	leased, err := loadRows(tx, selectLeased)
	if err != nil {
		return err
	}
	for id, n := range queued {
		l, err := o.laneByID(tx, id)
		if err != nil {
			return err
		}
		l.queued = n
	}
	for id, n := range parked {
		l, err := o.laneByID(tx, id)
		if err != nil {
			return err
		}
		l.parked = n
	}
	for id, n := range waiting {
		l, err := o.laneByID(tx, id)
		if err != nil {
			return err
		}
		l.delayed = n
	}
	now := o.now()
	for _, r := range leased {
		ln, err := o.laneByID(tx, r.lane)
		if err != nil {
			return err
		}
		l := &live{entry: r.entry, lane: ln, token: r.token, request: r.request, started: r.startedAt != 0, held: r.held,
			stop: r.stop, reason: r.reason, deadline: now + int64(o.cfg.TTL), startBy: now + int64(o.cfg.StartAck), seen: never,
			fenced: r.fenced, told: r.fenced, restored: true}
		if old := before[r.id]; old != nil && old.attempt == r.attempt {
			l.deadline, l.startBy, l.seen, l.fenced, l.restored = old.deadline, old.startBy, old.seen, old.fenced || r.fenced, old.restored
		}
		holder := o.runner(r.runner)
		if r.fenced {
			holder.fenced = cmp.Or(holder.fenced, now)
		}
		if o.addLive(l, holder, o.home(r.home)); l.untold() {
			o.nextTell = now + int64(tickRetry)
		}
	}
	return nil
}

// laneByID finds or loads a lane by its number.
func (o *owner) laneByID(tx *sqlite.Tx, id int64) (*lane, error) {
	if l := o.byID[id]; l != nil {
		return l, nil
	}
	k, err := loadLaneKey(tx, id)
	if err != nil {
		return nil, err
	}
	return o.newLane(id, k), nil
}

func (o *owner) newLane(id int64, k laneKey) *lane {
	s := o.spaces[k.workspace]
	if s == nil {
		s = &workspace{name: k.workspace, weight: 1}
		if w := o.weights[k.workspace]; w > 0 {
			s.weight = w
		}
		o.spaces[k.workspace] = s
	}
	s.lanes++
	p := o.pool(k.pool)
	l := &lane{id: id, key: k, caps: splitCapabilities(k.capabilities), pool: p, space: s}
	p.lanes = append(p.lanes, l)
	o.lanes[k], o.byID[id] = l, l
	return l
}

// dropLane forgets a lane without jobs, so that memory follows what is in the queue and not what ever was. One that is
// forgotten already stays so.
func (o *owner) dropLane(l *lane) {
	if l.queued+l.delayed+l.parked+l.live > 0 || l.dirty || o.byID[l.id] != l {
		return
	}
	delete(o.lanes, l.key)
	delete(o.byID, l.id)
	l.pool.lanes = slices.DeleteFunc(l.pool.lanes, func(x *lane) bool { return x == l })
	o.dropPool(l.pool)
	l.space.lanes--
	if l.space.lanes == 0 && l.space.finish <= o.vtime {
		delete(o.spaces, l.space.name)
	}
}

func (o *owner) pool(name string) *pool {
	p := o.pools[name]
	if p == nil {
		p = &pool{name: name}
		o.pools[name] = p
	}
	return p
}

func (o *owner) dropPool(p *pool) {
	if len(p.lanes) == 0 && len(p.crowds) == 0 {
		delete(o.pools, p.name)
	}
}

func (o *owner) home(name string) *home {
	h := o.homes[name]
	if h == nil {
		h = &home{name: name, limit: *o.cfg.Limit, live: make(map[*live]struct{})}
		if l, ok := o.limits[name]; ok {
			h.limit = l
		}
		o.homes[name] = h
	}
	return h
}

func (o *owner) dropHome(h *home) {
	if len(h.live) == 0 && len(h.waiting) == 0 && !h.dirty {
		delete(o.homes, h.name)
	}
}

func (o *owner) addLive(l *live, r *runner, h *home) {
	l.runner, l.home = r, h
	if r.fenced != 0 {
		l.fence()
	}
	r.live[l], h.live[l] = struct{}{}, struct{}{}
	l.lane.live++
	o.live[l.id] = l
	l.wake = l.due()
	heap.Push(&o.heap, l)
}

// removeLive forgets a lease and notes what its end may admit.
func (o *owner) removeLive(l *live) {
	blocked := l.home.blocks(l)
	delete(l.runner.live, l)
	delete(l.home.live, l)
	l.lane.live--
	delete(o.live, l.id)
	heap.Remove(&o.heap, l.index)
	if blocked {
		o.touchHome(l.home)
	}
	o.touchRunner(l.runner)
	o.dropHome(l.home)
	o.dropRunner(l.runner)
}

func (o *owner) touchLane(l *lane) {
	if !l.dirty && l.queued > 0 {
		l.dirty = true
		o.dirtyLanes = append(o.dirtyLanes, l)
	}
}

func (o *owner) touchRunner(r *runner) {
	if !r.dirty && len(r.waiting) > 0 {
		r.dirty = true
		o.dirtyRunners = append(o.dirtyRunners, r)
	}
}

func (o *owner) touchHome(h *home) {
	if !h.dirty && len(h.waiting) > 0 {
		h.dirty = true
		o.dirtyHomes = append(o.dirtyHomes, h)
	}
}

// event starts the description of a change of a job.
func (o *owner) event(k Kind, ln *lane, e *entry) Event {
	return Event{Kind: k, Job: e.id, Workspace: ln.key.workspace, Pool: ln.key.pool, Class: ln.key.class, Attempt: e.attempt,
		Failures: e.failures, MaxAttempts: e.maxAttempts, Unstarted: e.unstarted, MaxUnstarted: o.cfg.MaxUnstarted, At: o.at(o.now())}
}

func (o *owner) liveEvent(k Kind, l *live) Event {
	ev := o.event(k, l.lane, &l.entry)
	ev.Runner, ev.Started, ev.Stop, ev.State = l.runner.ID, l.started, l.stop, Leased
	return ev
}

// change runs the statements of one change, the operation's hook and the configured one. With hooks they are inside a
// savepoint, because a hook may fail; the queue's own statements fail only with the whole group. The caller changes
// memory after it, never before.
func (o *owner) change(tx *sqlite.Tx, ev *Event, hook Hook, write func(*sqlite.Tx) error) error {
	var err error
	if hook == nil && o.cfg.OnChange == nil {
		err = write(tx)
	} else {
		err = tx.Nested(func(tx *sqlite.Tx) error {
			if err := write(tx); err != nil {
				return err
			}
			if hook != nil {
				if err := hook(tx, ev); err != nil {
					return err
				}
			}
			if o.cfg.OnChange != nil {
				return o.cfg.OnChange(tx, ev)
			}
			return nil
		})
	}
	if err == nil && o.cfg.Committed != nil {
		o.events = append(o.events, *ev)
	}
	return err
}

// at is a moment of now's clock as the wall clock has it: that may have been set since, and goes on while the machine
// sleeps. What people read is of one clock so, theirs.
func (o *owner) at(ns int64) time.Time {
	wall := o.cfg.Now()
	return time.Unix(0, ns+wall.UnixNano()-o.base.UnixNano()-int64(wall.Sub(o.base))).UTC()
}

// leaseHeap orders leases by wake. Renewals only move due, not wake: a lease that comes up early is put back.
type leaseHeap []*live

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].wake < h[j].wake }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *leaseHeap) Push(x any) {
	l := x.(*live)
	l.index = len(*h)
	*h = append(*h, l)
}
func (h *leaseHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
