package lease_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/lease"
)

// TestReady lists those that wait and have room for a job, as the matcher sees it, and nobody else.
func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		if err := q.SetLimit(t.Context(), "full", lease.Limit{MaxConcurrent: 1}); err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, job("j"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pull := func(id string, edit func(*lease.Runner)) {
			r := plain(id)
			if edit != nil {
				edit(&r)
			}
			go func() { _, _ = q.Pull(ctx, lease.PullRequest{RequestID: id, Runner: r}) }()
			synctest.Wait()
		}
		pull("holder", func(r *lease.Runner) { r.Home = "full" }) // it has the job
		pull("neighbour", func(r *lease.Runner) { r.Home = "full" })
		pull("idle", nil)
		pull("small", func(r *lease.Runner) { r.MemoryMB = 100 })
		pull("paused", func(r *lease.Runner) { r.Paused = "by its owner" })
		pull("bound", func(r *lease.Runner) { r.Job = "another" })
		pull("arm", func(r *lease.Runner) { r.Arch, r.Capabilities = "arm64", append(r.Capabilities, "gpu") })
		if err := q.SetRunner(t.Context(), plain("connected")); err != nil { // it asks for nothing
			t.Fatal(err)
		}
		for name, row := range map[string]struct {
			needs lease.Requirements
			want  []string
		}{
			"nothing":      {lease.Requirements{}, []string{"arm", "idle", "small"}},
			"memory":       {lease.Requirements{MemoryMB: 101}, []string{"arm", "idle"}},
			"a platform":   {lease.Requirements{Arch: "arm64"}, []string{"arm"}},
			"capabilities": {lease.Requirements{Capabilities: []string{"gpu", "docker"}}, []string{"arm"}},
			"none":         {lease.Requirements{OS: "darwin"}, nil},
		} {
			got, err := q.Ready(t.Context(), row.needs)
			if d := cmp.Diff(row.want, got); d != "" || err != nil {
				t.Errorf("ready for a job that needs %s: %v (-want):\n%s", name, err, d)
			}
		}
	})
}
