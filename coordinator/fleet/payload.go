package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// payloadNote is the note of a unit that is given its run as a payload.
const payloadNote = "payload"

// handOutError is an error of what a launch needs and the cluster has no part in.
type handOutError struct{ err error }

func (e *handOutError) Error() string { return "hand out the run: " + e.err.Error() }

func (e *handOutError) Unwrap() error { return e.err }

// handOut is the payload of a unit: the same one for a launch that is repeated.
func (p *pool) handOut(ctx context.Context, unit string, w lease.Waiting, life time.Duration) ([]byte, error) {
	p.mu.Lock()
	doc := p.handed[unit]
	p.mu.Unlock()
	if doc != nil {
		return doc, nil
	}
	doc, err := p.cfg.Runs.HandOut(ctx, Handing{Workspace: p.workspace, Runtime: p.runtime, Unit: unit, Run: w.Job, Before: w.Attempt, Life: life})
	if err != nil {
		return nil, &handOutError{err}
	}
	p.mu.Lock()
	p.handed[unit] = doc
	p.mu.Unlock()
	return doc, nil
}

// isHanded says whether the payload of a unit is known, which it is until its launch is seen
// to be complete.
func (p *pool) isHanded(unit string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handed[unit] != nil
}

func (p *pool) forgetHanded(unit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.handed, unit)
}

// revocation is the end of an attempt whose unit does not come to run it. What is out may
// be at work, so the attempt is ended when the unit was removed and is not there any more.
type revocation struct {
	failure protocol.Failure
	on      *cluster
	// listed says that the cluster has shown the unit.
	listed bool
	// terminated is when the cluster was first told to end it, told when it last was.
	terminated, told time.Time
}

// sealed ends the attempt of a run that cannot be in a payload; false: it can, and size is
// the most bytes that it has.
func (l *look) sealed(ctx context.Context, w *wanted) (size int, over bool, err error) {
	size, err = l.cfg.Runs.PayloadSize(ctx, w.Job)
	var why *protocol.Problem
	if !errors.As(err, &why) {
		return size, false, err
	}
	f := protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner,
		Code: protocol.CodeUpstreamMisconfigured, Message: why.Message, Hint: why.Hint}
	return 0, true, l.cfg.Runs.Unplaced(ctx, w.Job, w.Attempt, f)
}

// out is for a unit that holds its run as a payload, and has not begun with it as far as
// its cluster knows; false: it is judged as every unit that holds a lease. Nothing runs
// out here: the coordinator itself renews the lease of a payload.
func (l *look) out(ctx context.Context, u seen, job lease.JobState, current *cluster) bool {
	m, t := l.mark(u.Name), u.Trouble
	if r := l.revoked[u.Name]; r != nil && u.State != Ended {
		r.listed = r.listed || u.listed
		l.withdraw(u, r)
		return true
	}
	if _, going := l.launching[u.Name]; going || u.Note != payloadNote {
		return going && u.Note == payloadNote
	}
	if u.listed && u.State != Launching {
		l.forgetHanded(u.Name) // its launch will not be repeated
	}
	switch u.State {
	case Launching:
		if l.now.Sub(m.completed) < listLag { // the list does not show it yet
			l.due(m.completed.Add(listLag))
			return true
		}
		if l.isHanded(u.Name) && u.on == current {
			if l.notYet(m) {
				return true
			}
			l.resumed = append(l.resumed, wanted{Waiting: lease.Waiting{Job: u.Job, Attempt: u.Attempt - 1}, unit: u.Name, payload: true})
			return true
		}
		l.revoke(ctx, u, job, &Trouble{Cause: CauseEvicted, Message: "its launch was cut off"})
	case Pending:
		waited := l.since(&m.awaited)
		if m.forgetting { // perhaps it has ended, and what was started beside it waits in vain
			if settled, _, _ := l.adopt(ctx, u, job, l.cfg.PendingTimeout); settled {
				return true
			}
		}
		switch {
		case t != nil && t.Cause == CauseNodeLost && waited < l.cfg.TokenLife:
			l.due(m.awaited.Add(l.cfg.TokenLife))
			return false // nobody knows, as with one that runs
		case t == nil && waited < l.cfg.TokenLife:
			m.trouble = time.Time{}
			l.due(m.awaited.Add(l.cfg.TokenLife))
		case t == nil:
			l.revoke(ctx, u, job, &Trouble{Cause: CauseStart, Message: fmt.Sprintf("it did not start within %v", l.cfg.TokenLife)})
		case t.Final:
			l.revoke(ctx, u, job, t)
		case l.since(&m.trouble) < l.cfg.PendingTimeout:
			l.due(m.trouble.Add(l.cfg.PendingTimeout))
		default:
			l.revoke(ctx, u, job, t)
			if r := l.revoked[u.Name]; r != nil {
				r.failure = overdue(r.failure, l.since(&m.trouble), l.cfg.PendingTimeout)
			}
		}
	case Running:
		l.forgetPayload(ctx, u, m)
		return false
	default:
		return false
	}
	return true
}

// forgetPayload has the cluster forget the payload of a unit that has it.
func (l *look) forgetPayload(ctx context.Context, u seen, m *marks) {
	if m.forgetting || l.notYet(m) {
		return
	}
	m.forgetting = true
	l.call(ctx, l.removeWidth, callEnd{unit: u.Name, forgets: true}, func(ctx context.Context, end *callEnd) {
		end.err = u.on.Forget(ctx, u.Name)
	})
}

func (p *pool) forgetEnded(ctx context.Context, end callEnd) {
	if end.err == nil || ctx.Err() != nil {
		return
	}
	p.log.Warn("the payload of a unit could not be removed from its cluster yet", "unit", end.unit, "err", end.err)
	m := p.mark(end.unit)
	m.forgetting, m.retry = false, p.cfg.Now().Add(p.cfg.MaxBackoff)
}

// revoke begins to end the attempt of a unit.
func (l *look) revoke(ctx context.Context, u seen, job lease.JobState, t *Trouble) {
	patience := l.cfg.PendingTimeout
	if t.Cause == CauseNodeLost {
		patience = 0 // which has the output
	}
	// Perhaps it has begun after all, and the cluster calls it by what else it has started.
	if settled, _, _ := l.adopt(ctx, u, job, patience); settled {
		return
	}
	f := failure(&u.Unit, t, l.needs(ctx, u.Job), true)
	l.log.Info("unit does not begin with its payload, and is removed", "run", u.Job, "unit", u.Name, "message", f.Message)
	r := &revocation{failure: f, on: u.on, listed: u.listed}
	l.revoked[u.Name] = r
	l.withdraw(u, r)
}

// withdraw removes a unit whose attempt is to end.
func (l *look) withdraw(u seen, r *revocation) {
	_, launching := l.launching[u.Name]
	if _, removing := l.removing[u.Name]; launching || removing {
		return // the look after that goes on
	}
	if !r.told.IsZero() && l.now.Sub(r.told) < l.cfg.Grace {
		l.due(r.told.Add(l.cfg.Grace))
		return
	}
	l.over = append(l.over, u)
}

// gone ends the attempt of a unit that was removed, when it is sure that nothing of it runs.
func (l *look) gone(ctx context.Context, h lease.Lease, unit string, r *revocation) {
	switch {
	case !l.answered[r.on]:
		return // whoever has the unit does not say
	case r.terminated.IsZero():
		l.withdraw(seen{Unit: Unit{Name: unit, Job: h.Job, Attempt: h.Attempt}, on: r.on}, r)
		return
	case !r.listed && l.now.Sub(r.terminated) < listLag:
		l.due(r.terminated.Add(listLag))
		return
	}
	if err := l.cfg.Runs.Ended(ctx, h, r.failure); err != nil {
		l.log.Warn("the end of an attempt could not be written", "run", h.Job, "unit", unit, "err", err)
		l.due(l.now.Add(l.cfg.Backoff))
		return
	}
	delete(l.revoked, unit)
	l.log.Info("unit came to nothing", "run", h.Job, "unit", unit, "reason", r.failure.Reason, "message", r.failure.Message)
}

// notYet says that a launch is not tried again yet, because its run could not be handed out.
func (l *look) notYet(m *marks) bool {
	if !m.retry.After(l.now) {
		return false
	}
	l.due(m.retry)
	return true
}

// tidyHanded forgets the payloads of units that are not there any more.
func (l *look) tidyHanded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.handed {
		if _, there := l.units[name]; !there {
			delete(l.handed, name)
		}
	}
}
