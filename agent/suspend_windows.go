package agent

import "context"

// heedSuspend has nothing to heed: no key stops a process here.
func (r *Runner) heedSuspend(context.Context) {}
