//go:build unix

package sandboxtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

var lifeCases = []testCase{
	{name: "info", run: info},
	{name: "an attempt has one sandbox", run: oneSandbox},
	{name: "usage", run: usage},
	{name: "F15_the kernel's kill for memory is counted", run: oomKill},
	{name: "P6_sweep leaves the living alone", run: sweepLiving},
	{name: "a hundred commands at once", run: hundred},
}

func info(b *bench) {
	x := b.start()
	i := x.Info()
	if i.Driver != b.driver.Name() || i.Enclosure == "" {
		b.Errorf("info %+v: wanted the driver %q and its enclosure", i, b.driver.Name())
	}
	for _, l := range i.Limits {
		if l.Name == "" || l.Value <= 0 || l.By == "" {
			b.Errorf("limit %+v is not complete", l)
		}
	}
}

func oneSandbox(b *bench) {
	s := b.spec()
	h, err := b.driver.Start(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.driver.Start(b.Context(), s); !errors.Is(err, sandbox.ErrInUse) {
		b.Errorf("second start of %s: %v, wanted ErrInUse", s.Attempt, err)
	}
	if err := h.Release(b.Context()); err != nil {
		b.Fatalf("release: %v", err)
	}
	h, err = b.driver.Start(b.Context(), s)
	if err != nil {
		b.Fatalf("start after release: %v", err)
	}
	if err := h.Release(b.Context()); err != nil {
		b.Fatalf("release: %v", err)
	}
}

func usage(b *bench) {
	x := b.start()
	p := x.exec(sh("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; (sleep 1000 &); exit 0"))
	b.wait(p)
	u, err := x.Usage(b.Context())
	if err != nil {
		b.Fatalf("usage: %v", err)
	}
	if u.CPU != nil && (*u.CPU <= 0 || *u.CPU > patience) {
		b.Errorf("cpu time of a busy loop: %s", *u.CPU)
	}
	if u.PIDs != nil && *u.PIDs < 1 {
		b.Errorf("%d processes while one sleeps", *u.PIDs)
	}
	if u.PeakMemory != nil && *u.PeakMemory < 100_000 {
		b.Errorf("peak memory %d bytes", *u.PeakMemory)
	}
	if _, ok := limited(x, "pids"); ok && (u.PIDs == nil || u.PIDsHits == nil || *u.PIDsHits != 0) {
		b.Errorf("usage %+v: a limit of processes without its counters", u)
	}
	if err := x.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	last, err := x.Usage(b.Context())
	if err != nil {
		b.Fatalf("usage after release: %v", err)
	}
	if (last.CPU == nil) != (u.CPU == nil) || u.CPU != nil && *last.CPU < *u.CPU {
		b.Errorf("cpu time after release %v, before %v", last.CPU, u.CPU)
	}
	if last.PIDs != nil && *last.PIDs != 0 {
		b.Errorf("%d processes after release", *last.PIDs)
	}
}

func oomKill(b *bench) {
	s := b.spec()
	s.Resources.MemoryMB = 48
	h, err := b.driver.Start(b.Context(), s)
	var not *sandbox.UnsupportedError
	if errors.As(err, &not) {
		if not.Driver != b.driver.Name() || not.What == "" || not.Wanted == "" || not.Reason == "" {
			b.Errorf("refusal %+v is not complete", not)
		}
		b.Logf("refused as it must be: %v", err)
		return
	}
	if err != nil {
		b.Fatal(err)
	}
	x := box{ComputeHandle: h, b: b, dir: s.Dir}
	defer func() {
		if err := h.Release(b.Context()); err != nil {
			b.Errorf("release: %v", err)
		}
	}()
	if l, ok := limited(x, "memory"); !ok || l.Value != 48<<20 || l.Default {
		b.Errorf("limit in force is %+v, 48 MiB were declared", l)
	}
	// A child dies, not the main process: exit codes would not tell. tail keeps a line that never ends in memory.
	exit, _, errOut := x.run(sh("head -c 300000000 /dev/zero | tail -n 1 | head -c 10 >/dev/null; echo survived >&2; exit 4"))
	if exit.Code != 4 {
		b.Fatalf("%+v: the main process must survive; stderr %q", exit, errOut)
	}
	u, err := x.Usage(b.Context())
	if err != nil || u.OOMKills == nil || *u.OOMKills < 1 {
		b.Errorf("usage %+v, %v: wanted the kernel's kill counted", u, err)
	}
	if u.PeakMemory != nil && *u.PeakMemory > 48<<20 {
		b.Errorf("peak memory %d beyond the limit", *u.PeakMemory)
	}
	y := b.start()
	if u, _ := y.Usage(b.Context()); u.OOMKills != nil && *u.OOMKills != 0 {
		b.Errorf("a kill in one sandbox is counted in another")
	}
}

func sweepLiving(b *bench) {
	x := b.start()
	r, p := x.escapeAll("stay")
	swept, err := b.driver.Sweep(b.Context(), func(string) bool { return false })
	if err != nil {
		b.Errorf("sweep: %v", err)
	}
	for _, s := range swept {
		if s.Attempt == x.attempt() {
			b.Errorf("sweep ended a living sandbox: %+v", s)
		}
	}
	select {
	case <-p.Done():
		b.Errorf("the sweep ended the command of a living sandbox")
	default:
	}
	x.ok("true")
	if err := x.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	r.empty(settle)
}

// attempt asks the sandbox for its name.
func (x box) attempt() string { return x.ok(`printf %s "$` + sandbox.EnvAttempt + `"`) }

func hundred(b *bench) {
	x := b.start()
	start := time.Now()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			var out buffer
			c := sh(fmt.Sprintf("echo %d; exit %d", i, i%7))
			c.Stdout = &out
			p, err := x.Exec(b.Context(), c)
			if err != nil {
				b.Errorf("exec %d: %v", i, err)
				return
			}
			exit, err := p.Wait()
			if err != nil || exit.Code != i%7 || out.String() != fmt.Sprintf("%d\n", i) {
				b.Errorf("command %d: %+v, %v, output %q", i, exit, err, out.String())
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took > patience {
		b.Errorf("a hundred commands took %s", took)
	}
}
