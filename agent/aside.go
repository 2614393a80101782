package agent

import "context"

// aside does something small that nobody waits for but Run, which ends ctx when it is over.
// Nothing is begun any more then.
func (r *Runner) aside(do func(ctx context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() == nil {
		r.asides.Go(func() { do(r.life) })
	}
}

// endAsides ends what aside has begun, and waits for it.
func (r *Runner) endAsides() {
	r.mu.Lock()
	r.endLife()
	r.mu.Unlock()
	r.asides.Wait()
}
