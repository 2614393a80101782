package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/everdict/everdict/protocol"
)

const (
	// earlierWait is how long a look waits for the places of earlier versions that have
	// answered in time before, or were never asked.
	earlierWait = 2 * time.Second
	// maxEarlier is how many of them are looked at after a start.
	maxEarlier = 8
)

// place is where a version has its units. Whoever looks there sees those of every version
// of the runtime, since units carry its name and no version. A token for the same address
// makes no other place; a kubeconfig does, which has the address. inside is what only a client
// knows, since the kubeconfig's value says it.
type place struct{ kind, addr, server, context, kubeconfig, namespace, inside string }

func (p *pool) placeOf(spec *protocol.RuntimeSpec) place {
	if applied, err := p.cfg.Isolation.Apply(p.workspace, spec); err == nil {
		spec = applied
	}
	return place{kind: spec.Kind, addr: spec.Addr, server: spec.Server, context: spec.Context, kubeconfig: spec.KubeconfigSecret, namespace: spec.Namespace}
}

// earlier is a place of earlier versions that the latest does not have. It has a client
// until nothing of ours is there. It is asked beside the looks: one that does not answer
// holds up nothing.
type earlier struct {
	spec *protocol.RuntimeSpec
	// on is its client; nil: it never answered. renew: the next question makes another.
	on    *cluster
	renew bool
	// outdated: it was made with a secret that has another value by now, and no other client
	// for this place can be made.
	outdated bool
	// asked is the question that goes on, or whose answer was not taken in; nil: none.
	asked *question
	// units are what it answered last, and heard says that it did; slow, that no look waits
	// for it.
	units       []Unit
	heard, slow bool
	// failures in a row, and when it is asked again.
	failures  int
	notBefore time.Time
}

// question asks an earlier place what it has. done is closed when the rest is set.
type question struct {
	began time.Time
	done  chan struct{}
	took  time.Duration
	on    *cluster
	units []Unit
	err   error
	// late: the look that asked does not wait for it.
	late atomic.Bool
}

func (q *question) over() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// findEarlier finds, once after a start, the places that units may have been left in.
func (l *look) findEarlier(ctx context.Context) {
	p := l.pool
	if p.sought || p.cfg.Versions == nil || p.seek.After(p.cfg.Now()) {
		return
	}
	versions, err := p.cfg.Versions(ctx, p.workspace, p.runtime)
	if err != nil {
		p.seek = p.cfg.Now().Add(p.cfg.MaxBackoff)
		if ctx.Err() == nil {
			p.log.Error("the versions of a runtime cannot be read", "err", err)
		}
		return
	}
	p.sought = true
	known := map[place]bool{}
	if !l.blind { // else an earlier version may have a better credential for where the latest is
		known[p.placeOf(l.spec)] = true
	}
	for _, e := range l.elsewhere() {
		known[p.placeOf(e.spec)] = true
	}
	for i := range versions {
		spec := &versions[len(versions)-1-i]
		at := p.placeOf(spec)
		if known[at] || p.cfg.Openers[spec.Kind] == nil || sameCluster(spec, l.spec) {
			continue
		}
		if len(p.earlier) >= maxEarlier {
			p.log.Warn("the runtime had more places than are looked at: units there are left to their cluster", "version", spec.Version, "most", maxEarlier)
			return
		}
		known[at] = true
		p.earlier = append(p.earlier, &earlier{spec: spec})
	}
}

// retire takes the latest cluster for an earlier one, until merge finds that the next is
// where it was; renew gives up its client.
func (p *pool) retire(renew bool) {
	if renew {
		p.latest.end()
	}
	p.absorb(func(e *earlier) bool { return sameCluster(e.spec, p.latest.spec) && p.isAt(e, p.latest) })
	p.earlier = append(p.earlier, &earlier{spec: p.latest.spec, on: p.latest, renew: renew})
	p.latest = nil
}

// merge drops the clients of earlier versions that are where the latest is, which has
// answered.
func (p *pool) merge() {
	p.absorb(func(e *earlier) bool { return p.isAt(e, p.latest) })
}

// isAt says whether an earlier place is where a cluster is.
func (p *pool) isAt(e *earlier, c *cluster) bool {
	if e.on == nil { // what its client would say is not known
		return p.placeOf(e.spec) == p.placeOf(c.spec)
	}
	return e.on.at == c.at
}

// absorb gives up earlier clients for the latest.
func (p *pool) absorb(which func(e *earlier) bool) {
	p.earlier = slices.DeleteFunc(p.earlier, func(e *earlier) bool {
		if !which(e) {
			return false
		}
		if e.on != nil {
			p.replace(e.on, p.latest)
		}
		return true
	})
}

// replace gives up a client for another of the same place.
func (p *pool) replace(old, c *cluster) {
	old.end()
	for name, u := range p.launching {
		if u.on == old {
			u.on = c
			p.launching[name] = u
		}
	}
	for name, u := range p.launched {
		if u.on == old {
			u.on = c
			p.launched[name] = u
		}
	}
	for _, r := range p.revoked {
		if r.on == old {
			r.on = c
		}
	}
}

// busy says whether a cluster is still needed, whatever it lists.
func (p *pool) busy(c *cluster) bool {
	for _, u := range p.launching {
		if u.on == c {
			return true
		}
	}
	for _, u := range p.launched {
		if u.on == c {
			return true
		}
	}
	for _, r := range p.revoked {
		if r.on == c {
			return true
		}
	}
	return false
}

// inquire begins a question.
func (p *pool) inquire(ctx context.Context, e *earlier) {
	q := &question{began: p.cfg.Now(), done: make(chan struct{}), on: e.on}
	if !e.outdated && (e.renew || e.on != nil && e.on.lost()) {
		q.on = nil
	}
	e.asked = q
	p.calls.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, callBound)
		defer cancel()
		labelled(bounded, "watch", func(ctx context.Context) { q.err = p.answer(ctx, e.spec, q) })
		q.took = p.cfg.Now().Sub(q.began)
		close(q.done)
		if q.late.Load() {
			p.kick()
		}
	})
}

func (p *pool) answer(ctx context.Context, spec *protocol.RuntimeSpec, q *question) (err error) {
	if q.on == nil {
		if q.on, err = p.open(ctx, spec); err != nil {
			return err
		}
	}
	q.units, err = q.on.List(ctx)
	return err
}

// elsewhere are the earlier places but one that is the latest version's own, whose client is
// to be made anew.
func (l *look) elsewhere() []*earlier {
	return slices.DeleteFunc(slices.Clone(l.earlier), func(e *earlier) bool { return sameCluster(e.spec, l.spec) && !e.outdated })
}

// askEarlier takes in what earlier places have answered since the last look, and asks the
// others.
func (l *look) askEarlier(ctx context.Context) {
	for _, e := range l.elsewhere() {
		switch {
		case e.asked != nil && e.asked.over():
			l.hear(ctx, e)
		case e.asked != nil:
		case e.notBefore.After(l.now):
			l.due(e.notBefore)
		default:
			l.inquire(ctx, e)
		}
	}
}

// hearEarlier waits for earlier places, as far as they are worth it, and shows what they
// have.
func (l *look) hearEarlier(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, earlierWait)
	defer cancel()
	for _, e := range l.elsewhere() {
		if e.asked != nil && !e.slow && e.failures == 0 {
			select {
			case <-e.asked.done:
			case <-waiting.Done():
				e.slow = true
			}
		}
		if e.asked == nil {
			continue
		}
		e.asked.late.Store(true)
		if e.asked.over() {
			l.hear(ctx, e)
		}
	}
	for _, e := range l.elsewhere() {
		l.unheard = l.unheard || !e.heard
		l.show(e.on, e.units)
	}
}

// hear takes in what an earlier place has answered.
func (l *look) hear(ctx context.Context, e *earlier) {
	q := e.asked
	e.asked, e.slow = nil, q.took > earlierWait
	if q.err != nil {
		if ctx.Err() == nil {
			l.unanswered(e, q.err)
		}
		return
	}
	if e.failures > 0 {
		l.log.Info("place of an earlier version answers again", "version", e.spec.Version)
	}
	if e.on != nil && e.on != q.on {
		l.replace(e.on, q.on)
	}
	e.on, e.renew, e.units, e.heard, e.failures = q.on, false, q.units, true, 0
	l.answered[e.on] = true
	if len(e.units) == 0 && !l.busy(e.on) {
		e.on.end()
		l.earlier = slices.DeleteFunc(l.earlier, func(other *earlier) bool { return other == e })
		return
	}
	l.watch(ctx, e.on)
}

// unanswered notes that an earlier place did not answer, and when it is asked again. What
// it has is not seen until then.
func (l *look) unanswered(e *earlier, err error) {
	delay := l.cfg.delay(e.failures)
	if e.failures == 0 {
		l.log.Warn("place of an earlier version does not answer: its units are not seen", "version", e.spec.Version, "err", err, "asked again", fmt.Sprintf("every %v or sooner", l.cfg.MaxBackoff))
	} else {
		l.log.Debug("place of an earlier version does not answer yet", "version", e.spec.Version, "err", err)
	}
	e.failures++
	e.notBefore = l.cfg.Now().Add(delay)
	e.units, e.heard = nil, false
	l.due(e.notBefore)
	var auth *AuthError
	e.renew = e.renew || errors.As(err, &auth) // with what the secret is by then
}
