package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// Launches and removals go on beside the looks of a pool: they take several calls of a
// cluster that may be slow, and a slot that becomes free meanwhile does not wait for them.
// A look begins them, and takes in how they ended at the beginning of a later one.

const (
	// callBound is how long one launch or removal, or one question, may take.
	callBound = 30 * time.Second
	// callWidth is how many units are launched at a time, and how many are removed.
	callWidth = 8
)

// launching is a launch that goes on.
type launching struct {
	Unit
	on    *cluster
	began time.Time
}

// removing is a removal that goes on.
type removing struct {
	seen
	began time.Time
}

// callEnd is how a launch or a removal ended, or that a payload was forgotten.
type callEnd struct {
	unit             string
	removal, forgets bool
	err              error
	// full is what a quota had no room for, first at since; empty: there was.
	full  string
	since time.Time
	// refused is what the cluster's refusal means for the attempt; nil: there was none.
	refused *protocol.Failure
	// cold is why no unit of this kind can be kept ready; empty: it can.
	cold string
}

// call does something beside the looks, when one of width is free, and keeps how it ended.
func (p *pool) call(ctx context.Context, width chan struct{}, end callEnd, do func(ctx context.Context, end *callEnd)) {
	p.calls.Go(func() {
		select {
		case width <- struct{}{}:
			bounded, cancel := context.WithTimeout(ctx, callBound)
			labelled(bounded, "call", func(ctx context.Context) { do(ctx, &end) })
			cancel()
			<-width
		case <-ctx.Done():
			end.err = ctx.Err()
		}
		p.mu.Lock()
		p.ends = append(p.ends, end)
		p.mu.Unlock()
		p.kick()
	})
}

// beginLaunch launches a unit.
func (l *look) beginLaunch(ctx context.Context, c *cluster, o Order) {
	p := l.pool
	p.launching[o.Unit] = launching{Unit{Name: o.Unit, Job: o.Job, Attempt: o.Attempt, Note: o.Note, State: Pending}, c, l.now}
	since := l.now
	if q, again := p.quotas[o.Unit]; again {
		since = q.since
	}
	p.call(ctx, p.launchWidth, callEnd{unit: o.Unit, since: since}, func(ctx context.Context, end *callEnd) {
		end.err = p.launchOne(ctx, c, o, end)
	})
}

func (p *pool) launchOne(ctx context.Context, c *cluster, o Order, end *callEnd) error {
	err := c.Launch(ctx, o)
	var refused *RefusedError
	var full *QuotaError
	switch {
	case errors.As(err, &refused):
		return p.refuse(ctx, o, &Trouble{Cause: refused.Cause, Message: refused.Message, Final: true}, end)
	case errors.As(err, &full) && o.Job != "" && p.cfg.Now().Sub(end.since) < p.cfg.PendingTimeout:
		end.full = full.Message
		return nil
	case errors.As(err, &full):
		return p.refuse(ctx, o, &Trouble{Cause: CauseQuota, Message: full.Message}, end)
	case err == nil:
		p.log.Info("unit launched", "run", o.Job, "unit", o.Unit)
	}
	return err
}

// refuse ends the attempt of an order that the cluster does not take, or has not taken for
// too long.
func (p *pool) refuse(ctx context.Context, o Order, t *Trouble, end *callEnd) error {
	if o.Job == "" {
		end.cold = t.Message
		return nil
	}
	needs, err := p.cfg.Runs.Needs(ctx, o.Job)
	if err != nil {
		return err
	}
	f := failure(&Unit{Name: o.Unit}, t, needs, true)
	if !t.Final {
		f = overdue(f, p.cfg.Now().Sub(end.since), p.cfg.PendingTimeout)
	}
	end.refused = &f
	return p.cfg.Runs.Unplaced(ctx, o.Job, o.Attempt-1, f)
}

// beginRemoval terminates a unit.
func (l *look) beginRemoval(ctx context.Context, u seen) {
	p := l.pool
	p.removing[u.Name] = removing{u, l.now}
	had := l.mark(u.Name).had
	if had.Job == "" { // before this process
		had = lease.Ref{Job: u.Job, Attempt: u.Attempt}
	}
	p.call(ctx, p.removeWidth, callEnd{unit: u.Name, removal: true}, func(ctx context.Context, end *callEnd) {
		end.err = p.removeOne(ctx, u, had)
	})
}

const (
	// lastWords is how long the removal of a unit waits for the result that its runner prints
	// when it is told to end, and cannot deliver.
	lastWords = 8 * time.Second
	// outputBound is how long it may take to read an output then.
	outputBound = 5 * time.Second
	lastPause   = 500 * time.Millisecond
)

// removeOne terminates a unit. A result that is in its output alone is taken first.
func (p *pool) removeOne(ctx context.Context, u seen, had lease.Ref) (err error) {
	told := false
	terminate := func() {
		if !told {
			told, err = true, u.on.Terminate(ctx, u.Name)
		}
	}
	lost := p.cfg.Runs.Recover(ctx, p.workspace, had.Job, had.Attempt, u.Name, func(ctx context.Context) []byte {
		found := p.printed(ctx, u)
		if found != nil || u.State != Running {
			return found
		}
		terminate()
		for until := p.cfg.Now().Add(lastWords); found == nil && err == nil && p.cfg.Now().Before(until); found = p.printed(ctx, u) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(lastPause):
			}
		}
		return found
	})
	if lost != nil {
		p.log.Warn("a result in the output of a unit could not be kept", "run", had.Job, "unit", u.Name, "err", lost)
	}
	terminate()
	return err
}

// printed is the result in the output of a unit that is removed; nil: there is none, or it
// cannot be read.
func (p *pool) printed(ctx context.Context, u seen) []byte {
	bounded, cancel := context.WithTimeout(ctx, outputBound)
	defer cancel()
	out, err := u.on.Output(bounded, u.Name, resultBytes)
	if err != nil {
		p.log.Debug("output of a unit that is removed cannot be read", "unit", u.Name, "err", err)
	}
	return result(out)
}

// callsEnded takes in how launches and removals ended.
func (p *pool) callsEnded(ctx context.Context) {
	p.mu.Lock()
	ends := p.ends
	p.ends = nil
	p.mu.Unlock()
	for _, end := range ends {
		switch {
		case end.removal:
			p.removalEnded(ctx, end)
		case end.forgets:
			p.forgetEnded(ctx, end)
		default:
			p.launchEnded(ctx, end)
		}
	}
}

func (p *pool) launchEnded(ctx context.Context, end callEnd) {
	was := p.launching[end.unit]
	delete(p.launching, end.unit)
	if end.err != nil {
		p.unsay(was.Job)
	}
	handed := p.isHanded(end.unit)
	if end.err == nil && end.full == "" && handed {
		p.mark(end.unit).completed = p.cfg.Now()
	}
	var notHanded *handOutError
	switch {
	case ctx.Err() != nil:
	case errors.As(end.err, &notHanded):
		p.log.Warn("run could not be handed out to its unit", "run", was.Job, "unit", end.unit, "err", end.err)
		p.mark(end.unit).retry = p.cfg.Now().Add(p.cfg.Backoff)
	case end.err != nil && was.began.Before(p.failedAt):
		p.log.Debug("launch failed with the others", "unit", end.unit, "err", end.err)
	case end.err != nil:
		p.failed("launch", end.err)
	case end.cold != "":
		p.coldUntil(end.cold)
	case end.full != "":
		p.noRoom(&end)
	default:
		delete(p.quotas, end.unit)
		if !was.began.Before(p.failedAt) {
			p.failures = 0
		}
		if end.refused != nil && handed {
			p.revoked[end.unit] = &revocation{failure: *end.refused, on: was.on}
		}
		p.launched[end.unit] = launched{was.Unit, was.on, p.cfg.Now()}
	}
}

func (p *pool) removalEnded(ctx context.Context, end callEnd) {
	was := p.removing[end.unit]
	delete(p.removing, end.unit)
	switch {
	case ctx.Err() != nil:
		return
	case end.err != nil && was.on != p.latest:
		p.log.Warn("unit could not be removed from the cluster of an earlier version", "unit", end.unit, "err", end.err)
	case end.err != nil && was.began.Before(p.failedAt):
		p.log.Debug("removal failed with the others", "unit", end.unit, "err", end.err)
		return
	case end.err != nil:
		p.failed("remove what is over from its cluster", end.err)
		return
	}
	if r := p.revoked[end.unit]; r != nil && end.err == nil {
		r.told = p.cfg.Now()
		if r.terminated.IsZero() {
			r.terminated = r.told
		}
	}
	m := p.marks[end.unit]
	if m == nil {
		m = &marks{} // it is not seen any more
	}
	m.unwanted = p.cfg.Now() // if it is still there after another Grace, it is told again
	if end.err == nil && !m.removed {
		m.removed = true
		p.log.Info("unit removed", "unit", end.unit, "run", was.Job)
	}
}
