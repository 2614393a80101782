package agent

import (
	"context"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// sweepEvery is how often a runner looks for what is labelled as its own kind and
// belongs to nobody.
const sweepEvery = 5 * time.Minute

// sweep ends what runners that are gone have left in this machine's sandboxes.
func (r *Runner) sweep(ctx context.Context) {
	drivers := []sandbox.Driver{r.cfg.Driver}
	if r.cfg.Images != nil && r.cfg.Images != r.cfg.Driver {
		drivers = append(drivers, r.cfg.Images)
	}
	for _, d := range drivers {
		swept, err := d.Sweep(ctx, r.holds)
		for _, s := range swept {
			r.log.Warn("ended what an earlier runner left", "attempt", s.Attempt, "kind", s.Kind)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Error("what an earlier runner left could not all be ended", "driver", d.Name(), "err", err)
		}
	}
}

// sweepOften sweeps until ctx ends.
func (r *Runner) sweepOften(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.sweep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// holds reports whether this runner works on an attempt.
func (r *Runner) holds(attempt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active[attempt] != nil
}
