//go:build unix

package sandboxtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var deadlineCases = []testCase{
	{name: "P3_deadline and freeze hold one by one", run: deadlineAndFreeze},
	{name: "P3_deadline catches what forks", run: deadlineForking},
	{name: "P3_time behind a deadline is not run time", run: deadlineTime},
	{name: "P3_starts meet a deadline", run: startsMeetDeadline},
	{name: "P3_kill of what its deadline holds", run: killHeld},
	{name: "P3_stop of what its deadline holds", run: stopHeld},
	{name: "P3_release of what its deadline holds", run: releaseHeld},
	{name: "P3_deadline of a released sandbox", run: deadlineReleased},
}

// in moves the deadline to some time from now.
func (x box) in(d time.Duration) {
	x.b.Helper()
	x.deadline(time.Now().Add(d))
}

func (x box) deadline(at time.Time) {
	x.b.Helper()
	err := x.FreezeAt(x.b.Context(), at)
	if errors.Is(err, sandbox.ErrNoDeadline) {
		x.b.Skipf("%s has no deadlines here", x.Info().Driver)
	}
	if err != nil {
		x.b.Fatalf("deadline at %s: %v", at, err)
	}
}

// Deadlines that pass at once, and that do not.
const (
	soon = 50 * time.Millisecond
	late = time.Hour
)

// still waits until a sandbox that counts has stopped to, for what another one counts meanwhile.
func (x box) still(clock box, when string) {
	x.b.Helper()
	last, since := x.size("count"), clock.size("count")
	x.b.until(when+" it stands still", func() bool {
		if now := x.size("count"); now != last {
			last, since = now, clock.size("count")
		}
		return clock.size("count") >= since+50
	})
}

// counting starts a sandbox that counts, and one beside it that goes on doing so.
func (b *bench) counting() (x, clock box) {
	x, clock = b.start(), b.start()
	x.exec(sh(counter))
	clock.exec(sh(counter))
	return x, clock
}

func deadlineAndFreeze(b *bench) {
	x, clock := b.counting()
	x.in(late)
	x.ticks(5)
	x.in(soon)
	x.still(clock, "after the deadline")
	x.thaw()
	x.in(-time.Second)
	x.still(clock, "after a thaw that does not move it")
	x.in(late)
	x.ticks(5)

	x.freeze()
	x.in(soon)
	x.still(clock, "held by both")
	x.thaw()
	x.still(clock, "held by the deadline, which passed when Freeze held it")
	x.in(late)
	x.ticks(5)

	x.freeze()
	x.in(soon)
	x.still(clock, "held by both")
	x.in(late)
	x.still(clock, "held by Freeze")
	x.thaw()
	x.ticks(5)

	x.in(soon)
	x.still(clock, "after the deadline")
	x.freeze()
	x.thaw()
	x.still(clock, "held by the deadline")
	x.freeze()
	x.deadline(time.Time{})
	x.still(clock, "held by Freeze, without a deadline")
	x.thaw()
	x.ticks(5)
	x.in(soon)
	x.still(clock, "after the deadline")
	x.deadline(time.Time{})
	x.ticks(5)
}

func deadlineForking(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	x.exec(sh(`hop() { printf . >>count; (hop &) ; exit; }; (hop &); while :; do (printf . >>count; :) ; done`))
	// What stopped itself was not stopped by a deadline.
	x.exec(sh(`(setsid sh -c 'printf . >asleep; kill -STOP $$; printf . >own' &)`))
	b.until("a process that stops itself", func() bool { return x.size("asleep") > 0 })
	clock.ticks(20)
	for range 3 {
		x.ticks(50)
		x.in(soon)
		x.still(clock, "what was forking")
		x.in(late)
	}
	x.ticks(50)
	if x.size("own") > 0 {
		b.Errorf("what the job had stopped itself was continued")
	}
}

func deadlineTime(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	c := sh(counter)
	c.Timeout, c.Ladder = 5*time.Second, quick // it must not run out before the freeze is in force
	p := x.exec(c)
	x.ticks(5)
	x.in(soon)
	x.still(clock, "after the deadline")
	clock.ok("sleep 5.2")
	select {
	case <-p.Done():
		exit, err := p.Wait()
		b.Fatalf("a timeout counted frozen time: %+v, %v", exit, err)
	default:
	}
	x.in(late)
	x.ticks(5)
	exit := b.wait(p)
	if exit.Reason != sandbox.ReasonTimeout || exit.Frozen < c.Timeout || exit.Fired.Measured > exit.Ended.Sub(exit.Started)-c.Timeout {
		b.Errorf("%+v, fired %+v: wanted the timeout, measured without the frozen time", exit, exit.Fired)
	}
	if u, err := x.Usage(b.Context()); err != nil || u.Frozen < c.Timeout {
		b.Errorf("usage %+v, %v: wanted the frozen time", u, err)
	}
}

// A command that is being started when the deadline passes must neither run on nor hold up the freeze, the next deadline
// or the end: where its cgroup freezes before its exec, it holds the thread that started it.
func startsMeetDeadline(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	x.in(late)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var starts sync.WaitGroup
	defer starts.Wait()
	for range 3 {
		starts.Go(func() {
			for {
				p, err := x.Exec(ctx, sh("printf . >>count"))
				if errors.Is(err, sandbox.ErrReleased) {
					return
				}
				if err != nil {
					b.Errorf("exec: %v", err)
					return
				}
				_, _ = p.Wait()
			}
		})
	}
	for i := range 6 {
		x.ticks(5)
		x.in(time.Duration(i) * time.Millisecond)
		x.still(clock, "after the deadline")
		if i%2 == 0 {
			x.freeze()
		}
		if i == 5 {
			break // the release meets it
		}
		x.in(late)
		x.thaw()
	}
	if err := x.Release(b.Context()); err != nil {
		b.Errorf("release: %v", err)
	}
}

// held is a sandbox that its deadline holds, with whatever can escape in it.
func (b *bench) held() (box, *roll, sandbox.Process) {
	x, clock := b.counting()
	r, p := x.escapeAll("stay")
	x.in(soon)
	x.still(clock, "after the deadline")
	return x, r, p
}

func killHeld(b *bench) {
	x, r, p := b.held()
	b.within(10*time.Second, "kill", func() error { return x.Kill(b.Context()) })
	r.empty(settle)
	if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled {
		b.Errorf("%+v: wanted reason killed", exit)
	}
	if out := x.ok("echo thawed"); out != "thawed\n" {
		b.Errorf("exec after the kill printed %q", out)
	}
	x.exec(sh(counter))
	x.in(late)
	x.ticks(5)
}

func stopHeld(b *bench) {
	x, r, p := b.held()
	b.within(10*time.Second, "stop", func() error {
		_, err := p.Stop(b.Context(), nil)
		return err
	})
	r.empty(settle)
	x.in(late)
	x.ok("true")
}

func releaseHeld(b *bench) {
	x, r, p := b.held()
	b.within(10*time.Second, "release", func() error { return x.Release(b.Context()) })
	r.empty(settle)
	b.wait(p)
}

func deadlineReleased(b *bench) {
	x := b.start()
	x.in(late)
	if err := x.Release(b.Context()); err != nil {
		b.Fatalf("release: %v", err)
	}
	if err := x.FreezeAt(b.Context(), time.Now()); !errors.Is(err, sandbox.ErrReleased) {
		b.Errorf("deadline of a released sandbox: %v, wanted ErrReleased", err)
	}
}
