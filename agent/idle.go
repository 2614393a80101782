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
			r.mu.Lock()
			busy := len(r.active) > 0
			r.mu.Unlock()
			if !busy {
				r.log.Info("idle: no run came", "for", r.cfg.ExitWhenIdle)
				r.Drain()
				return
			}
		}
		timer.Reset(r.cfg.ExitWhenIdle)
	}
}
