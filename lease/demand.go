package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everdict/everdict/lease/sqlite"
)

// Demand is what somebody who launches runners for a pool must know of it, at one moment.
type Demand struct {
	// Next are queued jobs of the pool in the order in which they would be leased, without those that wait for their
	// retry: first of all those that fit its budgets one after the other, so that none is behind jobs that do not.
	Next []Waiting
	// Jobs are those that were asked for and are known, by id.
	Jobs map[string]JobState
	// Use is what the leases of the pool's own runners take of its limit, and Leases are those, without payloads.
	Use    HomeUse
	Leases []Lease
}

// Waiting is a job that is queued.
type Waiting struct {
	Job string
	// Attempt is the epoch of the attempt before; the next one is one higher.
	Attempt      int64
	Requirements Requirements
}

// JobState is where a job stands.
type JobState struct {
	State State
	// Attempt is the epoch of the lease, or of the last attempt.
	Attempt int64
	// Delayed jobs are queued and wait for their retry.
	Delayed bool
	// Lease is that of a leased job, without payload; nil otherwise.
	Lease *Lease
	// MemoryMB and CPU are what it declares, in MiB and thousandths of a core.
	MemoryMB, CPU int64
}

// Demand reads the first n queued jobs of a pool, and the state of the jobs in ids. It costs a statement per lane of the
// pool and per id that is not leased, however many jobs are queued.
func (q *Queue) Demand(ctx context.Context, pool string, n int, ids []string) (Demand, error) {
	d := Demand{Jobs: make(map[string]JobState, len(ids)), Use: HomeUse{Pool: pool}}
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		h := o.home(pool)
		defer o.dropHome(h)
		d.Use.Limit, d.Use.Leases, d.Use.MemoryMB, d.Use.CPU = h.limit, len(h.live), h.memory(), h.cpu()
		for l := range h.live {
			d.Leases = append(d.Leases, o.lease(l, o.now()))
		}
		for _, id := range ids {
			s, err := o.jobState(tx, id)
			if errors.Is(err, ErrUnknownJob) {
				continue
			}
			if err != nil {
				return err
			}
			d.Jobs[id] = s
		}
		var err error
		d.Next, err = o.next(tx, h, n)
		return err
	})
	return d, err
}

func (o *owner) jobState(tx *sqlite.Tx, id string) (JobState, error) {
	if l := o.live[id]; l != nil {
		lease := o.lease(l, o.now())
		return JobState{State: Leased, Attempt: l.attempt, Lease: &lease, MemoryMB: l.lane.key.memoryMB, CPU: l.lane.key.cpu}, nil
	}
	r, err := loadJob(tx, id)
	if err != nil {
		return JobState{}, err
	}
	l, err := o.laneByID(tx, r.lane)
	if err != nil {
		return JobState{}, err
	}
	s := JobState{State: r.state, Attempt: r.attempt, Delayed: r.delayed, MemoryMB: l.key.memoryMB, CPU: l.key.cpu}
	o.dropLane(l)
	return s, nil
}

// next are n queued jobs of the pool that has the home's name. A workspace's share does not matter here: a pool that is
// launched for belongs to one.
func (o *owner) next(tx *sqlite.Tx, h *home, n int) ([]Waiting, error) {
	p := o.pools[h.name]
	if p == nil {
		return nil, nil
	}
	type ranked struct {
		Waiting
		rank
	}
	var all []ranked
	now := o.now()
	for _, l := range p.lanes {
		if l.queued == 0 {
			continue
		}
		entries, err := loadWindow(tx, l.id, n)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			k := l.key
			all = append(all, ranked{Waiting{Job: entries[i].id, Attempt: entries[i].attempt, Requirements: Requirements{
				Capabilities: l.caps, OS: k.os, Arch: k.arch, MemoryMB: k.memoryMB, CPU: k.cpu}}, o.rank(l, &entries[i], now)})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		switch {
		case a.before(b.rank):
			return -1
		case b.before(a.rank):
			return 1
		}
		return cmp.Compare(a.seq, b.seq)
	})
	// Those that fit beside what is leased and beside those before them, then the first of the others.
	taken, left := make([]bool, len(all)), n
	memoryMB, cpu := h.memory(), h.cpu()
	for i := 0; i < len(all) && left > 0; i++ {
		need := &all[i].Requirements
		if Over(memoryMB, need.MemoryMB, h.limit.MemoryMB) || Over(cpu, need.CPU, h.limit.CPU) {
			continue
		}
		memoryMB, cpu = memoryMB+need.MemoryMB, cpu+need.CPU
		taken[i], left = true, left-1
	}
	for i := 0; i < len(all) && left > 0; i++ {
		if !taken[i] {
			taken[i], left = true, left-1
		}
	}
	first := make([]Waiting, 0, n-left)
	for i := range all {
		if taken[i] {
			first = append(first, all[i].Waiting)
		}
	}
	return first, nil
}

// Over says whether a budget of a [Limit], 0 for none, has no room for so much more beside what is in use. What declares
// nothing always has room.
func Over(use, more, budget int64) bool { return budget > 0 && more > 0 && use+more > budget }

// loadWindow reads the first queued jobs of a lane, without payloads.
func loadWindow(tx *sqlite.Tx, lane int64, n int) ([]entry, error) {
	rows, err := tx.Query(selectWindow, lane, n)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for rows.Next() {
		var e entry
		err := rows.Scan(&e.seq, &e.id, &e.maxAttempts, &e.wait, &e.enqueuedAt, &e.deadlineAt, &e.attempt, &e.failures, &e.unstarted)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		entries = append(entries, e)
	}
	return entries, rows.Err()
}

// Unplaced says why a job got no runner.
type Unplaced struct {
	// Reason in words.
	Reason string
	// Final: no other attempt can help, and the job settles as Failed.
	Final bool
}

// Unplaced ends an attempt of a queued job that was never leased: the place to run it could not be made. It takes the
// next epoch, so that saying it twice of one attempt is a [*StateError], and counts as an attempt: the job is queued
// again when its retry is due, or settles as Exhausted after the last, or as Failed if u is Final. before is the epoch
// of the attempt before it.
func (q *Queue) Unplaced(ctx context.Context, job string, before int64, u Unplaced, opts ...Option) (Disposition, error) {
	hook := hookOf(opts)
	var d Disposition
	err := q.do(ctx, func(tx *sqlite.Tx) error {
		o := q.owner
		if l := o.live[job]; l != nil {
			return &StateError{Job: job, Action: "unplace", State: Leased}
		}
		r, err := loadJob(tx, job)
		if err != nil {
			return err
		}
		if r.state != Queued || r.delayed || r.attempt != before {
			return &StateError{Job: job, Action: "unplace", State: r.state}
		}
		l, err := o.laneByID(tx, r.lane)
		if err != nil {
			return err
		}
		e := r.entry
		e.attempt++
		e.failures++
		d, err = o.unplace(tx, l, r, e, u, hook)
		return err
	})
	if err != nil {
		return Disposition{}, fmt.Errorf("lease: unplaced %s: %w", job, err)
	}
	return d, nil
}

// unplace writes the end of the attempt that e counts already.
func (o *owner) unplace(tx *sqlite.Tx, l *lane, r *row, e entry, u Unplaced, hook Hook) (Disposition, error) {
	ev := o.event(JobRequeued, l, &e)
	ev.Reason = u.Reason
	if u.Final || e.failures >= e.maxAttempts {
		ev.Kind, ev.State, ev.Outcome = JobSettled, Settled, Exhausted
		if u.Final {
			ev.Outcome = Failed
		}
		err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
			if _, err := tx.Exec(updateAttempt, e.attempt, r.seq); err != nil {
				return err
			}
			_, err := tx.Exec(updateSettled, int64(ev.Outcome), 0, o.now(), e.failures, u.Reason, r.seq)
			return err
		})
		if err != nil {
			return Disposition{}, err
		}
		l.unqueue(o, r)
		o.dropLane(l)
		return Disposition{State: Settled, Outcome: ev.Outcome}, nil
	}
	state, retryAt := Queued, o.retryAt(&e)
	ev.State, ev.Deadline = Queued, o.at(e.deadlineAt)
	if retryAt > 0 {
		state, ev.RetryAt = delayed, o.at(retryAt)
	}
	err := o.change(tx, &ev, hook, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(updateAttempt, e.attempt, r.seq); err != nil {
			return err
		}
		_, err := tx.Exec(updateRequeued, int64(state), retryAt, e.deadlineAt, e.failures, e.unstarted, u.Reason, r.seq)
		return err
	})
	if err != nil {
		return Disposition{}, err
	}
	l.unqueue(o, r)
	if state == delayed {
		o.delay(l, retryAt)
	} else {
		o.enqueue(l, e)
	}
	return Disposition{State: Queued}, nil
}
