package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everdict/everdict/lease"
)

// wanted is a unit to launch.
type wanted struct {
	lease.Waiting // none: it is to be kept ready
	unit          string
	// note of a standing unit whose kind is settled already; nil: that follows from
	// what the job declares.
	note *note
}

// launch makes the units that are missing, in the queue's order, as far as the limits
// of the pool admit. Units that are there and have nothing to do come first.
func (l *look) launch(ctx context.Context, current *cluster) {
	l.sortIdle()
	for _, u := range l.idle {
		l.memory += int64(u.note.MemoryMB)
	}
	all, slots, short := l.missing(ctx)
	if short > 0 {
		l.giveWay(short)
	} else {
		all = append(all, l.keepWarm(ctx, slots)...)
	}
	for _, u := range l.idle {
		if l.cutOff(u.Name) && !l.mark(u.Name).going { // its launch was cut off
			all = append(all, wanted{unit: u.Name, note: u.note})
		}
	}
	if wait := l.notBefore.Sub(l.now); wait > 0 {
		l.due(l.notBefore) // what it waits for has been said
		return
	}
	for _, w := range all {
		o, err := l.order(ctx, &w)
		if err != nil {
			if ctx.Err() == nil {
				l.failed("launch", err)
				l.due(l.notBefore)
			}
			return
		}
		if w.Job != "" {
			l.words[w.Job] = fmt.Sprintf("unit %s is %s", w.unit, Pending)
		}
		l.begin(ctx, current, o)
	}
}

// cutOff says that the launch of a unit has not come to its end and is not going on.
func (l *look) cutOff(unit string) bool {
	_, going := l.launching[unit]
	return l.units[unit].State == Launching && !going
}

// missing are the units that waiting jobs have not, how many slots are left, and how
// many jobs do not fit now.
func (l *look) missing(ctx context.Context) (all []wanted, slots, short int) {
	use := &l.demand.Use
	slots = use.Limit.MaxConcurrent - use.Leases - len(l.awaited) - l.leaving - len(l.idle)
	for _, w := range l.demand.Next {
		unit := UnitName(w.Job, w.Attempt+1)
		if l.awaited[w.Job] != "" {
			if l.awaited[w.Job] == unit && l.cutOff(unit) {
				all = append(all, wanted{Waiting: w, unit: unit}) // its launch was cut off
			}
			continue
		}
		mb := w.Requirements.MemoryMB
		if l.assign(ctx, w) {
			continue
		}
		switch {
		case l.units[unit].Name != "": // it is being removed
		case slots <= 0:
			short++
			l.full = fmt.Sprintf("waits for a slot: %d of %d in use", use.Limit.MaxConcurrent-slots, use.Limit.MaxConcurrent)
		case !l.room(int(mb)):
			short++
			l.words[w.Job] = fmt.Sprintf("waits for memory: %d of %d MiB in use and the run declares %d", use.MemoryMB+l.memory, use.Limit.MemoryMB, mb)
		default:
			slots--
			l.memory += mb
			all = append(all, wanted{Waiting: w, unit: unit})
		}
	}
	return all, slots, short
}

// room says whether the pool's memory has room for so many MiB more.
func (l *look) room(mb int) bool {
	use := &l.demand.Use
	return use.Limit.MemoryMB <= 0 || mb == 0 || use.MemoryMB+l.memory+int64(mb) <= use.Limit.MemoryMB
}

// order is what the cluster is asked for; it settles the note of w.
func (l *look) order(ctx context.Context, w *wanted) (o Order, err error) {
	o = Order{Unit: w.unit, URL: l.cfg.URL}
	if w.Job != "" {
		needs, err := l.cfg.Runs.Needs(ctx, w.Job)
		if err != nil {
			return o, err
		}
		o.Job, o.Attempt = w.Job, w.Attempt+1
		o.Image, o.CPU, o.MemoryMB, o.GPU = needs.Image, needs.CPU, needs.MemoryMB, needs.GPU
		o.Deadline, o.Network = needs.Deadline, needs.Network
		w.note = l.reused(l.spec, &needs)
	}
	if w.note != nil {
		w.note.apply(&o)
	}
	o.Token = func(ctx context.Context) (string, error) {
		return l.cfg.Runners.CreateJoinToken(ctx, l.workspace, l.runtime, w.unit, o.Job, l.cfg.TokenLife)
	}
	return o, nil
}

// launching is a launch that goes on while the pool looks again: it takes several calls
// of a cluster that may be slow, and a slot that becomes free meanwhile does not wait for
// them.
type launching struct {
	Unit
	on    *cluster
	began time.Time
}

// launchEnd is how a launch ended.
type launchEnd struct {
	unit string
	err  error
	// cold is why no unit of this kind can be kept ready; empty: it can.
	cold string
}

// begin launches a unit.
func (l *look) begin(ctx context.Context, c *cluster, o Order) {
	p := l.pool
	p.launching[o.Unit] = launching{Unit{Name: o.Unit, Job: o.Job, Attempt: o.Attempt, Note: o.Note, State: Pending}, c, l.now}
	p.launches.Go(func() {
		end := launchEnd{unit: o.Unit}
		select {
		case p.width <- struct{}{}:
			end.cold, end.err = p.launchOne(ctx, c, o)
			<-p.width
		case <-ctx.Done():
			end.err = ctx.Err()
		}
		p.mu.Lock()
		p.ends = append(p.ends, end)
		p.mu.Unlock()
		p.kick()
	})
}

func (p *pool) launchOne(ctx context.Context, c *cluster, o Order) (cold string, err error) {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	err = c.Launch(bounded, o)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused) && o.Job == "":
		return refused.Message, nil
	case errors.As(err, &refused):
		needs, err := p.cfg.Runs.Needs(ctx, o.Job)
		if err != nil {
			return "", err
		}
		t := &Trouble{Cause: refused.Cause, Message: refused.Message, Final: true}
		return "", p.cfg.Runs.Unplaced(ctx, o.Job, o.Attempt-1, failure(&Unit{Name: o.Unit}, t, needs, true))
	case err == nil:
		p.log.Info("unit launched", "run", o.Job, "unit", o.Unit)
	}
	return "", err
}

// launchesOn says whether a unit is being launched on a cluster.
func (p *pool) launchesOn(c *cluster) bool {
	for _, u := range p.launching {
		if u.on == c {
			return true
		}
	}
	return false
}

// launchesEnded takes in how launches ended.
func (p *pool) launchesEnded(ctx context.Context) {
	p.mu.Lock()
	ends := p.ends
	p.ends = nil
	p.mu.Unlock()
	for _, end := range ends {
		was := p.launching[end.unit]
		delete(p.launching, end.unit)
		switch {
		case ctx.Err() != nil:
		case end.err != nil && was.began.Before(p.failedAt):
			p.log.Debug("launch failed with the others", "unit", end.unit, "err", end.err)
		case end.err != nil:
			p.failed("launch", end.err)
		case end.cold != "":
			p.coldUntil(end.cold)
		default:
			if !was.began.Before(p.failedAt) {
				p.failures = 0
			}
			p.launched[end.unit] = launched{was.Unit, p.cfg.Now()}
		}
	}
}
