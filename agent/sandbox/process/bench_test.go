//go:build unix

package process

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

func benchKinds(b *testing.B, f func(b *testing.B, d *Driver)) {
	for _, kind := range []string{EnclosureCgroup, EnclosureReaper, EnclosureGroup} {
		for name, without := range map[string]bool{"": false, " without Landlock": true} {
			b.Run(kind+name, func(b *testing.B) {
				d := newDriver(b, Config{Enclosure: kind, noLandlock: without})
				defer d.Close()
				f(b, d)
			})
		}
	}
}

// percentiles reports the median and the 99th percentile.
func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkStart measures Driver.Start alone; the release is not timed.
func BenchmarkStart(b *testing.B) {
	benchKinds(b, func(b *testing.B, d *Driver) {
		dir, hide := b.TempDir(), []string{b.TempDir()}
		var took []time.Duration
		n := 0
		for b.Loop() {
			n++
			begin := time.Now()
			h, err := d.Start(b.Context(), sandbox.Spec{Attempt: fmt.Sprintf("bench-%d.1", n), Dir: dir, Hide: hide})
			took = append(took, time.Since(begin))
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := h.Release(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		percentiles(b, took)
	})
}

// BenchmarkExec measures Exec of true from a ready handle until the process is started; its end is not timed.
func BenchmarkExec(b *testing.B) {
	benchExec(b, false)
}

// BenchmarkExecWait measures Exec of true with its output until Wait has returned.
func BenchmarkExecWait(b *testing.B) {
	benchExec(b, true)
}

func benchExec(b *testing.B, wait bool) {
	benchKinds(b, func(b *testing.B, d *Driver) {
		h, err := d.Start(b.Context(), sandbox.Spec{Attempt: "bench-exec.1", Dir: b.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Hide: []string{b.TempDir()}})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Release(context.Background())
		var took []time.Duration
		for b.Loop() {
			begin := time.Now()
			p, err := h.Exec(b.Context(), sandbox.Command{Args: []string{"true"}})
			if err != nil {
				b.Fatal(err)
			}
			if !wait {
				took = append(took, time.Since(begin))
				b.StopTimer()
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
			if wait {
				took = append(took, time.Since(begin))
			} else {
				b.StartTimer()
			}
		}
		percentiles(b, took)
	})
}

// BenchmarkWhole measures a sandbox's whole life around one command.
func BenchmarkWhole(b *testing.B) {
	benchKinds(b, func(b *testing.B, d *Driver) {
		dir, hide := b.TempDir(), []string{b.TempDir()}
		var took []time.Duration
		n := 0
		for b.Loop() {
			n++
			begin := time.Now()
			h, err := d.Start(b.Context(), sandbox.Spec{Attempt: fmt.Sprintf("whole-%d.1", n), Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Hide: hide})
			if err != nil {
				b.Fatal(err)
			}
			p, err := h.Exec(b.Context(), sandbox.Command{Args: []string{"true"}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
			if err := h.Release(context.Background()); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		percentiles(b, took)
	})
}

// BenchmarkFirstStart measures Driver.Start when something else is to be hidden than before, as for a runner's first job:
// a thread is set up for it.
func BenchmarkFirstStart(b *testing.B) {
	benchKinds(b, func(b *testing.B, d *Driver) {
		dir := b.TempDir()
		var took []time.Duration
		n := 0
		for b.Loop() {
			b.StopTimer()
			hide := []string{b.TempDir()}
			n++
			b.StartTimer()
			begin := time.Now()
			h, err := d.Start(b.Context(), sandbox.Spec{Attempt: fmt.Sprintf("first-%d.1", n), Dir: dir, Hide: hide})
			took = append(took, time.Since(begin))
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := h.Release(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		percentiles(b, took)
	})
}
