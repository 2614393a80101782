//go:build unix

package agent

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// heedSuspend makes a keyboard's stop (Ctrl-Z) stop the jobs as well until ctx
// ends. They run in sessions of their own, so that the terminal stops the runner
// alone: its jobs would go on while nobody renews their leases and another runner
// is given their runs (P3). SIGSTOP cannot be heeded.
func (r *Runner) heedSuspend(ctx context.Context) {
	stop, resume := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTSTP)
	defer signal.Stop(stop)
	for {
		select {
		case <-stop:
		case <-ctx.Done():
			return
		}
		signal.Notify(resume, syscall.SIGCONT)
		release := r.hold()
		r.log.Warn("suspended, and the jobs with it; fg or SIGCONT lets them go on")
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err == nil {
			// The stop need not have come by the time that kill returns.
			select {
			case <-resume:
			case <-ctx.Done():
			}
		}
		signal.Stop(resume)
		release()
	}
}

// hold freezes every attempt that there is and lets none begin, and returns what ends
// both, as far as the leases stand then.
func (r *Runner) hold() (release func()) {
	r.mu.Lock()
	r.suspended = true
	var held []*tenure
	for _, a := range r.active {
		held = append(held, a.tenure)
	}
	r.mu.Unlock()
	for _, t := range held {
		t.ask(true)
	}
	for _, t := range held { // a second word is taken when the first one was acted on
		t.ask(true)
		t.ask(false)
	}
	return func() {
		r.mu.Lock()
		r.suspended = false
		r.mu.Unlock()
		for _, t := range held {
			t.ask(false)
		}
	}
}
