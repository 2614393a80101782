package lease_test

import (
	"fmt"
	"testing"

	"github.com/everdict/everdict/lease"
)

// BenchmarkEnqueueBeforeCrowd measures an enqueue that nobody takes while runners wait: one, and 5,000. The crowd must not
// be seen in the time. A hundred workspaces enqueue in one commit, so that the disk is not all of it.
func BenchmarkEnqueueBeforeCrowd(b *testing.B) {
	const workspaces = 100
	none := lease.Requirements{Capabilities: []string{"gpu"}}
	large := lease.Requirements{MemoryMB: 1 << 40}
	for _, bb := range []struct {
		name  string
		home  func(i int) string
		limit lease.Limit
		needs lease.Requirements
	}{
		{"nobody offers it", func(i int) string { return fmt.Sprint("home ", i) }, lease.Limit{}, none},
		{"their pool is full", func(int) string { return "home" }, lease.Limit{MemoryMB: 1}, large},
	} {
		for _, runners := range []int{1, 5000} {
			b.Run(fmt.Sprintf("%s/%d", bb.name, runners), func(b *testing.B) {
				q := openQueue(b, openDB(b), lease.Config{Limit: &bb.limit})
				for i := range runners {
					r := plain(fmt.Sprint("r", i))
					r.Home = bb.home(i)
					err := q.PullFunc(b.Context(), lease.PullRequest{RequestID: "1", Runner: r}, func(lease.Lease, error) {})
					if err != nil {
						b.Fatal(err)
					}
				}
				jobs := make([]lease.Job, workspaces)
				n := 0
				for b.Loop() {
					for i := range jobs {
						n++
						jobs[i] = lease.Job{ID: fmt.Sprint("run_", n), Workspace: fmt.Sprint("w", i), Pool: "p",
							Payload: benchPayload, Requirements: bb.needs}
					}
					if err := q.EnqueueAll(b.Context(), jobs); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "us/job")
			})
		}
	}
}
