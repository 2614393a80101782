//go:build unix

package docker

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// median reports the middle of what was measured, in milliseconds.
func median(b *testing.B, name string, took []time.Duration) time.Duration {
	slices.Sort(took)
	m := took[len(took)/2]
	b.ReportMetric(float64(m.Microseconds())/1000, name)
	return m
}

func benchDriver(b *testing.B) *Driver {
	d := New(Config{Image: busybox})
	b.Cleanup(func() { _ = d.Close() })
	return d
}

var benchAttempts int

func benchSpec(b *testing.B) sandbox.Spec {
	benchAttempts++
	return sandbox.Spec{Attempt: fmt.Sprintf("bench-%s-%d.1", thisProcess()[len(thisProcess())-6:], benchAttempts), Dir: b.TempDir(), Env: []string{"PATH=/bin"}}
}

// BenchmarkWhole measures a sandbox's whole life around two commands, a harness and a grader, beside what the docker CLI
// takes for one bare container of the same image in the same minute. ratio is the one over the other.
func BenchmarkWhole(b *testing.B) {
	d := benchDriver(b)
	var ours, bare, start, release []time.Duration
	for b.Loop() {
		begin := time.Now()
		if out, err := exec.CommandContext(b.Context(), "docker", "run", "--rm", "--pull", "never", busybox, "true").CombinedOutput(); err != nil {
			b.Fatalf("docker run: %v %s", err, out)
		}
		bare = append(bare, time.Since(begin))
		spec := benchSpec(b)
		begin = time.Now()
		h, err := d.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		start = append(start, time.Since(begin))
		for range 2 {
			runTrue(b, h)
		}
		last := time.Now()
		if err := h.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
		release = append(release, time.Since(last))
		ours = append(ours, time.Since(begin))
	}
	median(b, "start-ms", start)
	median(b, "release-ms", release)
	m, n := median(b, "ours-ms", ours), median(b, "docker-run-ms", bare)
	b.ReportMetric(float64(m)/float64(n), "ratio")
}

func runTrue(b *testing.B, h sandbox.ComputeHandle) {
	b.Helper()
	p, err := h.Exec(b.Context(), sandbox.Command{Args: []string{"true"}})
	if err != nil {
		b.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || !exit.Success() {
		b.Fatalf("%+v %v", exit, err)
	}
}

// BenchmarkExec measures one command in a ready sandbox, from Exec until Wait has returned.
func BenchmarkExec(b *testing.B) {
	d := benchDriver(b)
	h, err := d.Start(b.Context(), benchSpec(b))
	if err != nil {
		b.Fatal(err)
	}
	defer h.Release(context.Background())
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		runTrue(b, h)
		took = append(took, time.Since(begin))
	}
	median(b, "p50-ms", took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkWarm measures what passes from the request for a sandbox until a command has run in it, with containers ready.
func BenchmarkWarm(b *testing.B) {
	d := New(Config{Image: busybox, Warm: 4, WarmRoot: b.TempDir()})
	defer d.Close()
	d.Reserve(benchSpec(b))
	var took []time.Duration
	for b.Loop() {
		until(b, "a container to be ready", func() bool {
			d.pool.mu.Lock()
			defer d.pool.mu.Unlock()
			return len(d.pool.kinds[0].ready) > 0
		})
		spec := benchSpec(b)
		begin := time.Now()
		dir, ok := d.Reserve(spec)
		if !ok {
			b.Fatal("nothing was ready")
		}
		spec.Dir = dir
		h, err := d.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		runTrue(b, h)
		took = append(took, time.Since(begin))
		if err := h.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	median(b, "ready-ms", took)
}

// BenchmarkOutput measures output through the sandbox beside the docker CLI's, in MB/s.
func BenchmarkOutput(b *testing.B) {
	d := benchDriver(b)
	h, err := d.Start(b.Context(), benchSpec(b))
	if err != nil {
		b.Fatal(err)
	}
	defer h.Release(context.Background())
	const size = 200_000_000
	script := fmt.Sprintf("head -c %d /dev/zero", size)
	var ours, bare []time.Duration
	for b.Loop() {
		begin := time.Now()
		cmd := exec.CommandContext(b.Context(), "docker", "run", "--rm", "--pull", "never", busybox, "sh", "-c", script)
		cmd.Stdout = onlyWriter{io.Discard} // through a pipe and a copy, as a reader of it would
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(begin))
		begin = time.Now()
		p, err := h.Exec(b.Context(), sandbox.Command{Args: []string{"sh", "-c", script}, Stdout: onlyWriter{io.Discard}})
		if err != nil {
			b.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || !exit.Success() {
			b.Fatalf("%+v %v", exit, err)
		}
		ours = append(ours, time.Since(begin))
	}
	for name, took := range map[string][]time.Duration{"ours-MB/s": ours, "docker-run-MB/s": bare} {
		slices.Sort(took)
		b.ReportMetric(size/1e6/took[len(took)/2].Seconds(), name)
	}
}

type onlyWriter struct{ io.Writer }
