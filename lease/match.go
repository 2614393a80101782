package lease

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// verdict of the matcher on one runner and one lane. Explain reads the same verdicts that lease.
type verdict int8

const (
	fits              verdict = iota
	lacksPool                 // it does not serve the pool
	lacksCapabilities         // not all are offered
	otherPlatform             // another operating system or architecture
	tooSmall                  // the runner's whole memory is less than the job declares
	onPause                   // it takes nothing for now
	slotsInUse                // its home pool has all its slots in use
	budgetInUse               // its home pool's memory budget has not that much left
	coresInUse                // its home pool's CPU budget has not that much left
	memoryInUse               // the runner itself has not that much left
)

// offers says whether the runner could ever take a job of the lane: what only its owner changes while it is connected.
func (r *runner) offers(l *lane) verdict {
	if v := offer(l, r.Capabilities, r.OS, r.Arch); v != fits {
		return v
	}
	if r.MemoryMB > 0 && l.key.memoryMB > r.MemoryMB {
		return tooSmall
	}
	if r.Paused != "" {
		return onPause
	}
	return fits
}

// offer is the part of offers that is the same for a crowd.
func offer(l *lane, capabilities []string, os, arch string) verdict {
	for _, c := range l.caps {
		if !slices.Contains(capabilities, c) {
			return lacksCapabilities
		}
	}
	if (l.key.os != "" && l.key.os != os) || (l.key.arch != "" && l.key.arch != arch) {
		return otherPlatform
	}
	return fits
}

// admits says whether the runner's home and its own memory have room for a job of the lane now. It counts live leases and
// nothing else.
func (r *runner) admits(h *home, l *lane) verdict {
	if v := h.admits(l); v != fits {
		return v
	}
	if mb := l.key.memoryMB; mb > 0 && r.MemoryMB > 0 && r.memory()+mb > r.MemoryMB {
		return memoryInUse
	}
	return fits
}

// admits is the part of it that is the home's.
func (h *home) admits(l *lane) verdict {
	if h.limit.MaxConcurrent > 0 && len(h.live) >= h.limit.MaxConcurrent {
		return slotsInUse
	}
	if b := h.limit.MemoryMB; b > 0 && Over(h.memory(), l.key.memoryMB, b) {
		return budgetInUse
	}
	if b := h.limit.CPU; b > 0 && Over(h.cpu(), l.key.cpu, b) {
		return coresInUse
	}
	return fits
}

// rank is a place in the order of the queue: interactive and aged jobs first, then the workspace with the smallest virtual start,
// then the older job.
type rank struct {
	late  bool // batch, and not aged
	start float64
	seq   int64
}

func (a rank) before(b rank) bool {
	if a.late != b.late {
		return b.late
	}
	if a.start != b.start {
		return a.start < b.start
	}
	return a.seq < b.seq
}

func (o *owner) rank(l *lane, head *entry, now int64) rank {
	return rank{
		late:  l.key.class == Batch && now-head.enqueuedAt < int64(o.cfg.Aging),
		start: max(o.vtime, l.space.finish),
		seq:   head.seq,
	}
}

// choose finds the lane whose head the runner takes next; nil if it can take none. Lanes that it cannot take are skipped.
func (o *owner) choose(tx *sqlite.Tx, r *runner) (*lane, *entry, error) {
	if r.Job != "" {
		return o.chooseBound(tx, r)
	}
	var best *lane
	var first *entry
	var bestRank rank
	now := o.now()
	for _, s := range r.stands {
		for _, l := range s.crowd.pool.lanes {
			if l.queued == 0 || r.offers(l) != fits || r.admits(r.home, l) != fits {
				continue
			}
			head, err := l.head(o, tx)
			if err != nil {
				return nil, nil, err
			}
			if k := o.rank(l, head, now); best == nil || k.before(bestRank) {
				best, bestRank, first = l, k, head
			}
		}
	}
	return best, first, nil
}

// matchAll leases to waiting pulls what this group's changes allow: a runner that asks or has memory again, a home with
// room again, a lane with a new job. Everything else has been tried before and cannot have become possible.
func (o *owner) matchAll(tx *sqlite.Tx) error {
	for len(o.dirtyRunners)+len(o.dirtyHomes)+len(o.dirtyLanes) > 0 {
		runners := o.dirtyRunners
		o.dirtyRunners = nil
		for _, r := range runners {
			r.dirty = false
			if err := o.serve(tx, r); err != nil {
				return err
			}
			o.dropRunner(r)
		}
		homes := o.dirtyHomes
		o.dirtyHomes = nil
		for _, h := range homes {
			h.dirty = false
			for _, st := range h.stands { // its waiting runners, thousands perhaps, are found by the lanes
				for _, l := range st.crowd.pool.lanes {
					o.touchLane(l)
				}
			}
			for r := range h.bound {
				o.touchRunner(r)
			}
			o.dropHome(h)
		}
		lanes := o.dirtyLanes
		o.dirtyLanes = nil
		for _, l := range lanes {
			l.dirty = false
			if err := o.offer(tx, l); err != nil {
				return err
			}
			o.dropLane(l)
		}
	}
	return nil
}

// serve leases to a runner's waiting pulls as long as it can take something.
func (o *owner) serve(tx *sqlite.Tx, r *runner) error {
	for len(r.waiting) > 0 {
		l, head, err := o.choose(tx, r)
		if err != nil || l == nil {
			return err
		}
		if err := o.grant(tx, r, l, head); err != nil {
			return err
		}
	}
	return nil
}

// offer looks for waiting runners for a lane. What such a runner gets is its best job, which may be another lane's.
func (o *owner) offer(tx *sqlite.Tx, l *lane) error {
	for l.queued > 0 {
		r := l.pool.find(l)
		if r == nil {
			return nil
		}
		best, head, err := o.choose(tx, r)
		if err != nil {
			return err
		}
		if err := o.grant(tx, r, best, head); err != nil {
			return err
		}
	}
	return nil
}

// grant leases a queued job of a lane to the oldest waiting pull of a runner. If a hook refuses, the pull gets its error.
func (o *owner) grant(tx *sqlite.Tx, r *runner, l *lane, head *entry) (err error) {
	w := r.waiting[0]
	now := o.now()
	g := &live{entry: *head, lane: l, request: w.request, token: rand.Text(), deadline: now + int64(o.cfg.TTL),
		startBy: now + int64(o.cfg.StartAck), seen: now}
	g.attempt++
	payload := g.payload
	g.payload = nil
	if payload == nil {
		if payload, err = loadPayload(tx, g.seq); err != nil {
			return err
		}
	}
	h := r.home
	ev := o.event(JobLeased, l, &g.entry)
	ev.State, ev.Runner = Leased, r.ID
	err = o.change(tx, &ev, nil, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(updateLeased, g.attempt, g.token, r.ID, h.name, g.request, now, g.seq)
		return err
	})
	if err != nil {
		if tx.Err() != nil {
			return err
		}
		o.granted = append(o.granted, grant{w: w, err: err})
		o.withdraw(r.ID, w)
		return nil
	}
	l.remove(o, g.seq)
	start := max(o.vtime, l.space.finish)
	o.vtime = start
	l.space.finish = start + 1/l.space.weight
	o.addLive(g, r, h)
	o.withdraw(r.ID, w)
	lease := o.lease(g, now)
	lease.Payload = payload
	o.granted = append(o.granted, grant{w: w, lease: lease, at: o.now()})
	return nil
}

// lease is a live lease as its holder is told it.
func (o *owner) lease(l *live, now int64) Lease {
	out := Lease{
		Ref:    Ref{Job: l.id, Attempt: l.attempt, Token: l.token},
		Runner: l.runner.ID, Workspace: l.lane.key.workspace, Pool: l.lane.key.pool, Class: l.lane.key.class,
		TTL: max(0, dur(l.deadline-now)), Deadline: o.at(l.deadline), Started: l.started, Parked: l.held, Stop: l.stop,
	}
	if !l.started {
		out.StartWithin = max(time.Millisecond, dur(l.startBy-now)) // 0 would say that it was acknowledged
	}
	return out
}
