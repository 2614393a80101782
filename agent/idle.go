package agent

import (
	"context"
	"time"
)

// stir says that an attempt has begun or ended.
func (r *Runner) stir() {
	select {
	case r.stirred <- struct{}{}:
	default: // somebody has said so, and nobody has heard it yet
	}
}

// DrainIdle drains the runner if it works on no attempt. False: it works on one, nothing has
// changed, and an Idle is to come. It looks and drains in one step: an offer that is being
// begun in this moment goes back to the queue and never begins. A result that waits for the
// coordinator is no work; it is delivered as after Drain.
func (r *Runner) DrainIdle() bool {
	return r.drainIf(func() bool { return r.working() == 0 })
}

// drainIf drains the runner if idle, which is called with the mutex, says that it may.
func (r *Runner) drainIf(idle func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !idle() {
		return false
	}
	r.drainNow()
	return true
}

// working is how many attempts are worked on. The caller has the mutex.
func (r *Runner) working() int {
	n := 0
	for _, a := range r.active {
		if !a.over {
			n++
		}
	}
	return n
}

// unused says that there is no attempt, and none is coming: an offer that is being begun is
// what the runner has waited for. The caller has the mutex.
func (r *Runner) unused() bool { return len(r.active)+r.arriving == 0 }

// worked says that nobody works on an attempt any more.
func (r *Runner) worked(a *attempt) {
	r.mu.Lock()
	a.over = true
	idle := r.working() == 0
	r.mu.Unlock()
	if idle {
		r.news.put(Idle{})
	}
}

// untilIdle drains the runner when it has been connected and without an attempt for
// Config.ExitWhenIdle. It ends with the session: a coordinator that is away may have
// work.
func (r *Runner) untilIdle(ctx context.Context) {
	timer := time.NewTimer(r.cfg.ExitWhenIdle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.stirred:
		case <-timer.C:
			if r.drainIf(r.unused) {
				r.log.Info("idle: no run came", "for", r.cfg.ExitWhenIdle)
				return
			}
		}
		timer.Reset(r.cfg.ExitWhenIdle)
	}
}
