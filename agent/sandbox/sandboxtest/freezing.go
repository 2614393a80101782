//go:build unix

package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var freezeCases = []testCase{
	{name: "P3_freeze and thaw", run: freezeThaw},
	{name: "P3_freeze catches what forks", run: freezeForking},
	{name: "P3_frozen time is not run time", run: frozenTime},
	{name: "F51_idle time does not run while frozen", run: frozenIdle},
	{name: "P3_exec waits for the thaw", run: execWhileFrozen},
	{name: "P3_kill of a frozen sandbox", run: killFrozen},
	{name: "P3_stop of a frozen sandbox", run: stopFrozen},
	{name: "P3_release of a frozen sandbox", run: releaseFrozen},
	{name: "freezes and thaws meet", run: freezesMeet},
	{name: "a kill breaks a freeze off", run: killMeetsFreeze},
}

func (x box) freeze() {
	x.b.Helper()
	if x.Info().Freezer == "" {
		x.b.Skipf("%s cannot freeze here", x.Info().Driver)
	}
	if err := x.Freeze(x.b.Context()); err != nil {
		x.b.Fatalf("freeze: %v", err)
	}
}

func (x box) thaw() {
	x.b.Helper()
	if err := x.Thaw(x.b.Context()); err != nil {
		x.b.Fatalf("thaw: %v", err)
	}
}

func freezeThaw(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	p := x.exec(sh(`(setsid sh -c '` + counter + `' &); sleep 1000`))
	for range 3 {
		x.ticks(5)
		x.freeze()
		frozen := x.size("count")
		clock.ticks(30)
		if now := x.size("count"); now != frozen {
			b.Errorf("a frozen sandbox counted on from %d to %d", frozen, now)
		}
		x.freeze() // once more changes nothing
		x.thaw()
		x.ticks(5)
		x.thaw()
	}
	if u, err := x.Usage(b.Context()); err != nil || u.Frozen <= 0 {
		b.Errorf("usage %+v, %v: wanted the frozen time", u, err)
	}
	select {
	case <-p.Done():
		b.Errorf("the command ended over freeze and thaw")
	default:
	}
}

func freezeForking(b *bench) {
	x, clock := b.start(), b.start()
	clock.exec(sh(counter))
	x.exec(sh(`hop() { printf . >>count; (hop &) ; exit; }; (hop &); while :; do (printf . >>count; :) ; done`))
	x.ticks(50)
	for range 3 {
		x.freeze()
		frozen := x.size("count")
		clock.ticks(20)
		if now := x.size("count"); now != frozen {
			b.Errorf("what was forking while the sandbox froze went on: %d, then %d", frozen, now)
		}
		x.thaw()
		x.ticks(20)
	}
}

// untilTold is shell that waits for tell: however long a freeze takes to come, it does not come too late.
const untilTold = "while [ ! -e told ]; do sleep 0.01; done; "

func (x box) tell() {
	x.b.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, "told"), nil, 0o644); err != nil {
		x.b.Fatal(err)
	}
}

func frozenTime(b *bench) {
	x, clock := b.start(), b.start()
	r := x.roll()
	// The timeout leaves room for a freeze through an engine on a busy machine.
	c := sh(hold + untilTold + "exit 3")
	c.Timeout = 5 * time.Second
	p := x.exec(c)
	r.joined(1)
	x.freeze()
	clock.ok("sleep 5.2")
	x.tell()
	x.thaw()
	exit := b.wait(p)
	if exit.Code != 3 || exit.Reason != sandbox.ReasonNone {
		b.Errorf("%+v: a timeout of %s counted frozen time", exit, c.Timeout)
	}
	if exit.Frozen < 5100*time.Millisecond || exit.Ran >= c.Timeout || exit.Ran <= 0 {
		b.Errorf("ran %s, frozen %s of %s", exit.Ran, exit.Frozen, exit.Ended.Sub(exit.Started))
	}
	// The rest of the time still counts.
	c = sh(hold + "while :; do sleep 0.01; done")
	c.Timeout, c.Ladder = 5*time.Second, quick
	p = x.exec(c)
	r.joined(1)
	x.freeze()
	clock.ok("sleep 0.5")
	x.thaw()
	exit = b.wait(p)
	if exit.Reason != sandbox.ReasonTimeout || exit.Fired.Measured < c.Timeout || exit.Fired.Measured > exit.Ended.Sub(exit.Started)-400*time.Millisecond {
		b.Errorf("%+v, fired %+v: wanted the timeout, measured without the frozen time", exit, exit.Fired)
	}
}

func frozenIdle(b *bench) {
	x, clock := b.start(), b.start()
	var out buffer
	c := sh("echo go; " + untilTold + "echo on; exit 3")
	c.Stdout, c.IdleTimeout = &out, 5*time.Second
	p := x.exec(c)
	b.until("the first line", func() bool { return out.String() != "" })
	x.freeze()
	clock.ok("sleep 5.2")
	x.tell()
	x.thaw()
	if exit := b.wait(p); exit.Code != 3 {
		b.Errorf("%+v: a frozen command was taken for idle", exit)
	}
}

func execWhileFrozen(b *bench) {
	x := b.start()
	x.freeze()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Millisecond)
	defer cancel()
	if p, err := x.Exec(ctx, sh("true")); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("exec in a frozen sandbox: %v, %v, wanted to wait for the context", p, err)
	}
	got := make(chan error, 1)
	go func() {
		p, err := x.Exec(b.Context(), sh("echo x >made"))
		if err == nil {
			_, err = p.Wait()
		}
		got <- err
	}()
	x.thaw()
	select {
	case err := <-got:
		if err != nil || x.size("made") == 0 {
			b.Errorf("exec over the thaw: %v, file of %d bytes", err, x.size("made"))
		}
	case <-time.After(patience):
		b.Errorf("exec did not go on after the thaw")
	}
}

func killFrozen(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	x.freeze()
	b.within(10*time.Second, "kill", func() error { return x.Kill(b.Context()) })
	r.empty(settle)
	if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled {
		b.Errorf("%+v: wanted reason killed", exit)
	}
	if out := x.ok("echo thawed"); out != "thawed\n" {
		b.Errorf("exec after the kill printed %q", out)
	}
}

func stopFrozen(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	x.freeze()
	b.within(10*time.Second, "stop", func() error {
		_, err := p.Stop(b.Context(), nil)
		return err
	})
	r.empty(settle)
	x.thaw()
	x.ok("true")
}

func releaseFrozen(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	x.freeze()
	b.within(10*time.Second, "release", func() error { return x.Release(b.Context()) })
	r.empty(settle)
	b.wait(p)
}

func freezesMeet(b *bench) {
	x := b.start()
	p := x.exec(sh(counter))
	x.ticks(5)
	if x.Info().Freezer == "" {
		b.Skip("cannot freeze here")
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				act := x.Freeze
				if i%2 == 0 {
					act = x.Thaw
				}
				if err := act(b.Context()); err != nil {
					b.Errorf("freeze and thaw at once: %v", err)
				}
			}
		})
	}
	wg.Wait()
	x.thaw()
	x.ticks(5)
	select {
	case <-p.Done():
		b.Errorf("the command ended over freezes and thaws")
	default:
	}
}

// killMeetsFreeze: whichever comes first, the freeze says what has become of it, and what the kill has ended.
func killMeetsFreeze(b *bench) {
	x := b.start()
	if x.Info().Freezer == "" {
		b.Skip("cannot freeze here")
	}
	for range 5 {
		p := x.exec(sh("sleep 1000"))
		frozen := make(chan error, 1)
		go func() { frozen <- x.Freeze(b.Context()) }()
		b.within(10*time.Second, "kill", func() error { return x.Kill(b.Context()) })
		if err := <-frozen; err != nil && !errors.Is(err, sandbox.ErrBrokenOff) {
			b.Errorf("freeze beside a kill: %v", err)
		}
		if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled {
			b.Errorf("%+v: wanted reason killed", exit)
		}
		x.thaw()
		x.ok("true")
	}
}
