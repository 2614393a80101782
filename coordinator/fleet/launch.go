package fleet

import (
	"context"
	"fmt"
	"slices"

	"github.com/everdict/everdict/lease"
)

// wanted is a unit to launch.
type wanted struct {
	lease.Waiting // none: it is to be kept ready
	unit          string
	// note of a standing unit whose kind is settled already; nil: that follows from
	// what the job declares.
	note *note
	// payload says that the unit is given its job as a payload.
	payload bool
}

// launch makes the units that are missing, in the queue's order, as far as the limits
// of the pool admit. Units that are there and have nothing to do come first.
func (l *look) launch(ctx context.Context, current *cluster) {
	l.sortIdle()
	for _, u := range l.idle {
		l.promised.add(u.note.amount())
	}
	all, slots, short := l.missing(ctx)
	all = append(all, l.resumed...)
	l.giveWay(short)
	all = append(all, l.keepWarm(slots, short)...)
	for _, u := range l.idle {
		switch {
		case !l.cutOff(u.Name) || l.mark(u.Name).going:
		case l.cold.After(l.now):
			l.due(l.cold)
		default: // its launch was cut off
			all = append(all, wanted{unit: u.Name, note: u.note})
		}
	}
	if wait := l.notBefore.Sub(l.now); wait > 0 {
		l.due(l.notBefore) // what it waits for has been said
		return
	}
	for _, w := range all {
		size, over, err := 0, false, error(nil)
		if w.payload {
			size, over, err = l.sealed(ctx, &w)
		}
		if over && err == nil {
			l.due(l.now.Add(settle))
			continue
		}
		var o Order
		if err == nil {
			o, err = l.order(ctx, &w, size)
		}
		if err != nil {
			if ctx.Err() == nil {
				l.failed("launch", err)
				l.due(l.notBefore)
			}
			return
		}
		if w.Job != "" && l.words[w.Job] == "" {
			l.words[w.Job] = fmt.Sprintf("unit %s is %s", w.unit, Launching)
		}
		l.beginLaunch(ctx, current, o)
	}
}

// cutOff says that the launch of a unit has not come to its end and is not going on.
func (l *look) cutOff(unit string) bool {
	_, going := l.launching[unit]
	return l.units[unit].State == Launching && !going
}

// shortage is how many jobs wait for a slot, for memory and for CPU, of those that fit
// when the pool is empty.
type shortage struct{ slots, memory, cpu int }

// missing are the units that waiting jobs have not, how many slots are left, and what
// those jobs wait for that do not fit now.
func (l *look) missing(ctx context.Context) (all []wanted, slots int, short shortage) {
	use, vacant := &l.demand.Use, l.vacated()
	slots = use.Limit.MaxConcurrent - use.Leases - len(l.awaited) - l.leaving - len(l.idle)
	for _, w := range l.demand.Next {
		unit := UnitName(w.Job, w.Attempt+1)
		noRoom := l.waitsForQuota(w.Job, unit, &vacant)
		if l.awaited[w.Job] != "" {
			if l.awaited[w.Job] == unit && l.cutOff(unit) && !l.notYet(l.mark(unit)) { // its launch was cut off
				all = append(all, wanted{Waiting: w, unit: unit, payload: l.units[unit].Note == payloadNote})
			}
			continue
		}
		needs := amount{w.Requirements.MemoryMB, w.Requirements.CPU}
		if l.assign(ctx, w) {
			continue
		}
		memory, cpu := l.lacks(needs)
		switch {
		case l.units[unit].Name != "": // it is being removed
		case slots <= 0:
			short.slots++
			l.full = fmt.Sprintf("waits for a slot: %d of %d in use", use.Limit.MaxConcurrent-slots, use.Limit.MaxConcurrent)
			if n := len(l.stranded); n > 0 {
				l.full += fmt.Sprintf(", %d of them by what may still run on a node that does not answer, as unit %s: if the node is gone for good, delete its Pod or job by force",
					n, slices.Min(l.stranded))
			}
		case memory:
			l.words[w.Job] = fmt.Sprintf("waits for memory: %d of %d MiB in use and the run declares %d", use.MemoryMB+l.promised.memoryMB, use.Limit.MemoryMB, needs.memoryMB)
			if needs.within(use.Limit) {
				short.memory++
			}
		case cpu:
			l.words[w.Job] = fmt.Sprintf("waits for CPU: %s of %s cores in use and the run declares %s", lease.Cores(use.CPU+l.promised.cpu), lease.Cores(use.Limit.CPU), lease.Cores(needs.cpu))
			if needs.within(use.Limit) {
				short.cpu++
			}
		case noRoom:
		default:
			slots--
			l.promised.add(needs)
			all = append(all, wanted{Waiting: w, unit: unit, payload: l.spec.Payload})
		}
	}
	return all, slots, short
}

// amount is what a job or a unit declares, in MiB and in thousandths of a core.
type amount struct{ memoryMB, cpu int64 }

func (a *amount) add(b amount) { a.memoryMB, a.cpu = a.memoryMB+b.memoryMB, a.cpu+b.cpu }

// within says whether the budgets of a pool have room for it when nothing else is there.
func (a amount) within(l lease.Limit) bool {
	return !lease.Over(0, a.memoryMB, l.MemoryMB) && !lease.Over(0, a.cpu, l.CPU)
}

// lacks says which budgets of the pool have no room now for so much more.
func (l *look) lacks(a amount) (memory, cpu bool) {
	use := &l.demand.Use
	return lease.Over(use.MemoryMB+l.promised.memoryMB, a.memoryMB, use.Limit.MemoryMB), lease.Over(use.CPU+l.promised.cpu, a.cpu, use.Limit.CPU)
}

// order is what the cluster is asked for; it settles the note of w. size is that of its
// payload.
func (l *look) order(ctx context.Context, w *wanted, size int) (o Order, err error) {
	o = Order{Unit: w.unit, URL: l.cfg.URL}
	if w.Job != "" {
		needs, err := l.cfg.Runs.Needs(ctx, w.Job)
		if err != nil {
			return o, err
		}
		o.Job, o.Attempt = w.Job, w.Attempt+1
		o.Image, o.CPU, o.MemoryMB, o.GPU = needs.Image, needs.CPU, needs.MemoryMB, needs.GPU
		o.Deadline, o.Network = backstop(needs, w.payload), needs.Network
		if w.payload {
			life := l.cfg.TokenLife + needs.Deadline
			o.Note, o.PayloadSize, o.Env = payloadNote, size, map[string]string{EnvDeliver: l.cfg.Deliver.String()}
			o.Payload = func(ctx context.Context) ([]byte, error) { return l.handOut(ctx, w.unit, w.Waiting, life) }
			return o, nil
		}
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
