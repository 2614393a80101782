//go:build unix

package sandboxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var endCases = []testCase{
	{name: "P6_kill ends what was left behind", run: killTree},
	{name: "P6_kill ends what hops from process to process", run: killHopping},
	{name: "P6_kill then exec again", run: killThenExec},
	{name: "P6_kill with an ended context", run: killEndedContext},
	{name: "P6_release with 200 children", run: release200},
	{name: "P7_releases meet", run: releasesMeet},
	{name: "P7_release during exec", run: releaseDuringExec},
	{name: "P7_release ignores an ended context", run: releaseEndedContext},
	{name: "P6_stop ends one command and no other", run: stopOne},
	{name: "stop walks the ladder", run: stopLadder},
	{name: "stop ends with its context", run: stopContext},
	{name: "stop after the end", run: stopAfterEnd},
	{name: "two stops", run: twoStops},
	{name: "F44_fork bomb under a process limit", run: forkBomb},
}

// escapes are the ways of a process to leave its parent, its session and its group. Each ends as a process that
// holds the roll and ignores what can be ignored.
var escapes = map[string]string{
	"child":             `stay &`,
	"double fork":       `( (stay) & )`,
	"session":           `setsid sh -c "$STAY" &`,
	"daemon":            `(setsid sh -c "$STAY" </dev/null >/dev/null 2>&1 &)`,
	"daemon's child":    `(setsid sh -c "(setsid sh -c '$STAY' &) ; exit" &)`,
	"no environment":    `(env -i PATH="$PATH" setsid sh -c "$STAY" &)`,
	"own group":         `set -m; stay & set +m`,
	"changed cwd":       `(trap "" INT TERM HUP; exec 9>r; cd /; printf x >&9; while :; do sleep 0.05; done) &`,
	"stopped by itself": `sh -c "exec 9>r; printf x >&9; kill -STOP \$\$; sleep 1000" &`,
}

const stay = `stay() { trap "" INT TERM HUP QUIT; exec 9>r; printf x >&9; while :; do sleep 0.05; done; }
STAY='trap "" INT TERM HUP QUIT; exec 9>r; printf x >&9; while :; do sleep 0.05; done'
`

// escapeAll starts one process per way out and returns the roll that all of them hold.
func (x box) escapeAll(main string) (*roll, sandbox.Process) {
	x.b.Helper()
	r := x.roll()
	script := stay
	for _, e := range escapes {
		script += e + "\n"
	}
	p := x.exec(sh(script + main))
	want := len(escapes)
	if main == "stay" {
		want++
	}
	r.joined(want)
	return r, p
}

func killTree(b *bench) {
	for name, main := range map[string]string{"main process ended": "exit 3", "main process alive": "stay"} {
		x := b.start()
		r, p := x.escapeAll(main)
		if name == "main process ended" {
			if exit := b.wait(p); exit.Code != 3 {
				b.Errorf("%s: %+v, wanted code 3", name, exit)
			}
		}
		b.within(10*time.Second, name+": kill", func() error { return x.Kill(b.Context()) })
		r.empty(settle)
		exit := b.wait(p)
		if name == "main process alive" && (exit.Reason != sandbox.ReasonKilled || exit.Signal != "SIGKILL" || exit.Success()) {
			b.Errorf("%s: %+v, wanted reason killed and SIGKILL", name, exit)
		}
	}
}

func killHopping(b *bench) {
	x := b.start()
	r := x.roll()
	// Each generation starts the next and ends at once: its parent is never there to be found.
	p := x.exec(sh(hold + `hop() { echo . >>hops; (hop &) ; exit; }; (hop &)`))
	r.joined(1)
	b.wait(p)
	b.until("some hops", func() bool { return x.size("hops") > 200 })
	b.within(10*time.Second, "kill", func() error { return x.Kill(b.Context()) })
	r.empty(settle)
}

func killThenExec(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	if err := x.Kill(b.Context()); err != nil {
		b.Fatalf("kill: %v", err)
	}
	r.empty(settle)
	b.wait(p)
	if out := x.ok("echo grader; ls"); out == "" {
		b.Errorf("exec after kill printed nothing")
	}
	if err := x.Kill(b.Context()); err != nil {
		b.Errorf("kill of an empty sandbox: %v", err)
	}
}

func killEndedContext(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if err := x.Kill(ctx); err != nil && !errors.Is(err, context.Canceled) {
		b.Fatalf("kill: %v", err)
	}
	r.empty(patience)
	b.wait(p)
}

func release200(b *bench) {
	x := b.start()
	r := x.roll()
	p := x.exec(sh(`i=0; while [ $i -lt 200 ]; do (trap "" TERM INT; exec 9>r; printf x >&9; exec sleep 1000) & i=$((i+1)); done; wait`))
	r.joined(200)
	b.within(10*time.Second, "release", func() error { return x.Release(b.Context()) })
	r.empty(settle)
	if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled {
		b.Errorf("%+v: wanted reason killed", exit)
	}
}

func releasesMeet(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = x.Release(b.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Errorf("eight releases at once: %v", err)
	}
	r.empty(settle)
	b.wait(p)
	if err := x.Release(b.Context()); err != nil {
		b.Errorf("one more release: %v", err)
	}
	if _, err := x.Exec(b.Context(), sh("true")); !errors.Is(err, sandbox.ErrReleased) {
		b.Errorf("exec after release: %v, wanted ErrReleased", err)
	}
	if err := x.Freeze(b.Context()); !errors.Is(err, sandbox.ErrReleased) {
		b.Errorf("freeze after release: %v, wanted ErrReleased", err)
	}
	if err := x.Kill(b.Context()); !errors.Is(err, sandbox.ErrReleased) {
		b.Errorf("kill after release: %v, wanted ErrReleased", err)
	}
}

func releaseDuringExec(b *bench) {
	x := b.start()
	r := x.roll()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var started []sandbox.Process
	for range 8 {
		wg.Go(func() {
			for {
				p, err := x.Exec(b.Context(), sh(hold+`sleep 1000 & exec sleep 1000`))
				if err != nil {
					if !errors.Is(err, sandbox.ErrReleased) {
						b.Errorf("exec during release: %v, wanted ErrReleased", err)
					}
					return
				}
				mu.Lock()
				started = append(started, p)
				mu.Unlock()
			}
		})
	}
	r.joined(8)
	if err := x.Release(b.Context()); err != nil {
		b.Errorf("release: %v", err)
	}
	wg.Wait()
	r.empty(settle)
	for _, p := range started {
		if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled {
			b.Errorf("%+v: wanted reason killed", exit)
		}
	}
}

func releaseEndedContext(b *bench) {
	x := b.start()
	r, _ := x.escapeAll("stay")
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if err := x.Release(ctx); err != nil {
		b.Errorf("release with an ended context: %v", err)
	}
	r.empty(settle)
}

func stopOne(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	other := x.exec(sh(counter))
	x.ticks(5)
	b.within(10*time.Second, "stop", func() error {
		_, err := p.Stop(b.Context(), sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: 20 * time.Millisecond, Tree: true}})
		return err
	})
	r.empty(settle)
	x.ticks(5)
	select {
	case <-other.Done():
		exit, _ := other.Wait()
		b.Errorf("stopping one command ended the other: %+v", exit)
	default:
	}
	exit := b.wait(p)
	if want := []string{"SIGTERM", "SIGKILL"}; exit.Reason != sandbox.ReasonStopped || !slices.Equal(exit.Sent, want) || exit.Signal != "SIGKILL" {
		b.Errorf("%+v: wanted reason stopped, SIGKILL after %q", exit, want)
	}
}

func stopLadder(b *bench) {
	x := b.start()
	r := x.roll()
	var out buffer
	c := sh(`trap 'echo result; exit 0' INT; ` + hold + `while :; do sleep 0.01; done`)
	c.Stdout = &out
	p := x.exec(c)
	r.joined(1)
	exit, err := p.Stop(b.Context(), nil)
	if err != nil {
		b.Fatalf("stop: %v", err)
	}
	// The answer to SIGINT may be code 0: that is no success.
	if out.String() != "result\n" || exit.Code != 0 || exit.Reason != sandbox.ReasonStopped || exit.Success() ||
		!slices.Equal(exit.Sent, []string{"SIGINT"}) {
		b.Errorf("%+v, output %q: wanted the command's answer to SIGINT and nothing more sent", exit, out.String())
	}
	p = x.exec(sh(`trap "" INT; trap 'exit 5' TERM; ` + hold + `while :; do sleep 0.01; done`))
	r.joined(1)
	grace := 30 * time.Millisecond
	exit, err = p.Stop(b.Context(), sandbox.Ladder{{Signal: syscall.SIGINT, Grace: grace}, {Signal: syscall.SIGTERM, Grace: patience}})
	if err != nil || exit.Code != 5 || !slices.Equal(exit.Sent, []string{"SIGINT", "SIGTERM"}) || exit.Ran < grace {
		b.Errorf("%+v, %v: wanted code 5 after SIGINT, %s and SIGTERM", exit, err, grace)
	}
	p = x.exec(sh(hold + `while :; do sleep 0.01; done`))
	r.joined(1)
	exit, err = p.Stop(b.Context(), sandbox.Ladder{})
	if err != nil || exit.Signal != "SIGKILL" || !slices.Equal(exit.Sent, []string{"SIGKILL"}) {
		b.Errorf("%+v, %v: an empty ladder kills at once", exit, err)
	}
}

func stopContext(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Millisecond)
	defer cancel()
	exit, err := p.Stop(ctx, sandbox.Ladder{{Signal: syscall.SIGINT, Grace: time.Hour}})
	if err != nil || exit.Signal != "SIGKILL" || exit.Reason != sandbox.ReasonStopped {
		b.Errorf("%+v, %v: wanted a kill when the context ended", exit, err)
	}
	r.empty(settle)
}

func stopAfterEnd(b *bench) {
	x := b.start()
	r, p := x.escapeAll("exit 6")
	if exit := b.wait(p); exit.Code != 6 {
		b.Fatalf("%+v: wanted code 6", exit)
	}
	exit, err := p.Stop(b.Context(), nil)
	if err != nil || exit.Code != 6 || exit.Reason != sandbox.ReasonNone {
		b.Errorf("%+v, %v: stop after the end changed the exit", exit, err)
	}
	r.empty(settle)
}

func twoStops(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	first := make(chan error, 1)
	go func() {
		_, err := p.Stop(b.Context(), sandbox.Ladder{{Signal: syscall.SIGINT, Grace: time.Hour}})
		first <- err
	}()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Millisecond)
	defer cancel()
	exit, err := p.Stop(ctx, nil)
	if err != nil || exit.Signal != "SIGKILL" {
		b.Errorf("%+v, %v: a second, more urgent stop must not wait for the first one's ladder", exit, err)
	}
	if err := <-first; err != nil {
		b.Errorf("first stop: %v", err)
	}
	r.empty(settle)
}

func forkBomb(b *bench) {
	s := b.start()
	if _, ok := limited(s, "pids"); !ok {
		spec := b.spec()
		spec.Resources.PIDs = 64
		var not *sandbox.UnsupportedError
		if _, err := b.driver.Start(b.Context(), spec); !errors.As(err, &not) {
			b.Errorf("a limit that %s cannot enforce here (%s): got %v, want that it is refused", s.Info().Driver, s.Info().Enclosure, err)
		}
		return
	}
	x := b.start(func(s *sandbox.Spec) { s.Resources.PIDs = 64 })
	if l, _ := limited(x, "pids"); l.Value != 64 || l.Default || l.By == "" {
		b.Errorf("limit in force is %+v, 64 was declared", l)
	}
	p := x.exec(sh(`bomb() { bomb | bomb & }; bomb; sleep 1000`))
	var u sandbox.Usage
	b.until("the limit to be hit", func() bool {
		var err error
		u, err = x.Usage(b.Context())
		return err == nil && u.PIDsHits != nil && *u.PIDsHits > 0
	})
	if u.PIDs == nil || *u.PIDs > 64 {
		b.Errorf("usage says %v processes under a limit of 64", u.PIDs)
	}
	if out := s.ok("echo other sandboxes live"); out == "" {
		b.Errorf("another sandbox could not work beside the bomb")
	}
	b.within(10*time.Second, "kill", func() error { return x.Kill(b.Context()) })
	b.wait(p)
	if out := x.ok("echo again"); out != "again\n" {
		b.Errorf("exec after the bomb printed %q", out)
	}
	if err := x.Release(b.Context()); err != nil {
		b.Errorf("release: %v", err)
	}
	if u, _ := x.Usage(b.Context()); u.PIDsHits == nil || *u.PIDsHits == 0 {
		b.Errorf("after release the hits of the limit are gone: %+v", u)
	}
}
