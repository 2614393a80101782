package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

func noop(env protocol.EnvSpec) *protocol.RunRequest {
	return &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "noop", Version: "1"},
		Case: protocol.Case{ID: "c1", Env: env, Task: "Do nothing",
			Graders: []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":"true"}`)}}},
	}
}

var (
	promptEnv = protocol.EnvSpec{Kind: protocol.EnvPrompt}
	repoEnv   = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{
		"README.md": "# A small repository\n", "main.go": "package main\n\nfunc main() {}\n", "go.mod": "module x\n"}}}
)

func registerNoop(b *testing.B, h *house.House) {
	b.Helper()
	spec := []byte(`{"kind":"command","id":"noop","version":"1","command":"true"}`)
	if _, err := h.Client.RegisterHarness(context.Background(), spec); err != nil {
		b.Fatal(err)
	}
}

func benchHouse(b *testing.B, slots int) *house.House {
	h := house.New(b)
	registerNoop(b, h)
	h.Runner("bench", func(c *agent.Config) { c.Slots = slots })
	return h
}

// BenchmarkStart measures accepted -> harness process started on an idle runner.
func BenchmarkStart(b *testing.B) {
	for name, env := range map[string]protocol.EnvSpec{"prompt": promptEnv, "repo": repoEnv} {
		b.Run(name, func(b *testing.B) {
			h := benchHouse(b, 1)
			h.Settled(h.Submit(noop(env)))
			var took durations
			for b.Loop() {
				took.add(startOf(b, h.Settled(h.Submit(noop(env)))))
			}
			took.report(b)
		})
	}
}

// startOf is how long after its acceptance the harness process of a run started.
func startOf(b *testing.B, run protocol.Run) time.Duration {
	b.Helper()
	for _, ev := range run.Result.Trace {
		if ev.Kind == protocol.EventInfra && ev.Event == "started" {
			return time.Duration((ev.T - float64(run.CreatedAt.UnixMilli())) * float64(time.Millisecond))
		}
	}
	b.Fatalf("run %s did not start: %+v", run.ID, run.Failure)
	return 0
}

// BenchmarkWholeRuns measures runs a second: repo with files, a no-op command, one
// tests-pass grader, 8 slots.
func BenchmarkWholeRuns(b *testing.B) {
	h := benchHouse(b, 8)
	b.ResetTimer()
	var wg sync.WaitGroup
	ids := make(chan string, b.N)
	for range 4 {
		wg.Go(func() {
			for id := range ids {
				if r := h.Settled(id); r.Verdict == nil || !*r.Verdict {
					b.Errorf("run %s: %+v", id, r.Failure)
				}
			}
		})
	}
	for range b.N {
		ids <- h.Submit(noop(repoEnv))
	}
	close(ids)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

type durations []time.Duration

func (d *durations) add(t time.Duration) { *d = append(*d, t) }

// quantile is in milliseconds.
func (d durations) quantile(q int) float64 {
	sorted := slices.Sorted(slices.Values(d))
	return float64(sorted[(len(sorted)-1)*q/100].Microseconds()) / 1000
}

func (d durations) median() float64 { return d.quantile(50) }

func (d durations) report(b *testing.B) {
	if len(d) == 0 {
		b.Fatal("nothing was measured")
	}
	for _, q := range []int{50, 99} {
		b.ReportMetric(d.quantile(q), fmt.Sprintf("p%d-ms", q))
	}
}
