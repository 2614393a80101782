package lease_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// BenchmarkEnqueue measures durable enqueues at 1, 16 and 128 submitters, against the baseline's insert in the same run.
func BenchmarkEnqueue(b *testing.B) {
	for _, submitters := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(submitters), func(b *testing.B) {
			bare := bareCycle(b, openDB(b))
			queue := queueCycle(openQueue(b, openDB(b), lease.Config{}), "run")
			slice := int64(400 * submitters)
			all := func(enqueue func(int64) error, from int64) time.Duration {
				var next atomic.Int64
				var wg sync.WaitGroup
				begin := time.Now()
				for range submitters {
					wg.Go(func() {
						for {
							i := next.Add(1)
							if i > slice {
								return
							}
							if err := enqueue(from + i); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begin)
			}
			var bareTime, queueTime time.Duration
			var n int64
			for b.Loop() {
				bareTime += all(bare.enqueue, n)
				queueTime += all(queue.enqueue, n)
				n += slice
			}
			b.ReportMetric(float64(n)/queueTime.Seconds(), "jobs/s")
			b.ReportMetric(float64(n)/bareTime.Seconds(), "bare-jobs/s")
			b.ReportMetric(bareTime.Seconds()/queueTime.Seconds(), "ratio")
		})
	}
}

// BenchmarkAckToHandler measures, at 100 jobs a second, how long after the enqueue is acknowledged a waiting worker has the
// job. A negative time is a worker that had it before the submitter was told; it counts as 0.
func BenchmarkAckToHandler(b *testing.B) {
	q := openQueue(b, openDB(b), lease.Config{Limit: &lease.Limit{}})
	ctx, cancel := context.WithCancel(context.Background())
	handled := make(chan time.Time, 1)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				l, err := q.Pull(ctx, lease.PullRequest{RequestID: strconv.Itoa(i), Runner: plain(fmt.Sprint("r", w))})
				if err != nil {
					return
				}
				handled <- time.Now()
				if err := q.Settle(context.Background(), l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	var took []time.Duration
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; b.Loop(); i++ {
		<-tick.C
		if err := q.Enqueue(ctx, lease.Job{ID: fmt.Sprint("run_", i), Pool: "p", Payload: benchPayload}); err != nil {
			b.Fatal(err)
		}
		acknowledged := time.Now()
		took = append(took, max(0, (<-handled).Sub(acknowledged)))
	}
	cancel()
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(0, "ns/op") // the pace is the ticker's
}

// resident is the memory of this process in MiB.
func resident(b *testing.B) float64 {
	b.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")))
			if err != nil {
				b.Fatal(err)
			}
			return float64(n) / 1024
		}
	}
	b.Fatal("no VmRSS in /proc/self/status")
	return 0
}

// BenchmarkMillion fills a queue with 1,000,000 jobs of 1 kB, restarts it, and reports the memory of the process, the time
// from opening the file to the first lease, and pull latency and cycle rate against an empty queue in the same run. Half of
// the jobs are in a lane that nobody can take.
func BenchmarkMillion(b *testing.B) {
	const jobs, chunk = 1_000_000, 1000
	path := filepath.Join(b.TempDir(), "million.db")
	ctx := context.Background()
	open := func() (*sqlite.DB, *lease.Queue) {
		db, err := sqlite.Open(ctx, sqlite.Config{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		q, err := lease.Open(ctx, db, lease.Config{Limit: &lease.Limit{}})
		if err != nil {
			b.Fatal(err)
		}
		return db, q
	}
	db, q := open()
	batch := make([]lease.Job, chunk)
	for i := range jobs / chunk {
		for k := range batch {
			n := i*chunk + k
			batch[k] = lease.Job{ID: fmt.Sprintf("old_%08d", n), Workspace: "w1", Pool: "w1/prod", Class: lease.Batch, Payload: benchPayload}
			if n%2 == 1 {
				batch[k].Requirements.Capabilities = []string{"gpu"}
			}
		}
		if err := q.EnqueueAll(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	filled := resident(b)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	var first, cycles, emptyCycles time.Duration
	var latency, emptyLatency []time.Duration
	var reopened float64
	var n int64
	const slice = 4096
	empty := openQueue(b, openDB(b), lease.Config{Limit: &lease.Limit{}})
	round := 0
	for b.Loop() {
		round++
		begin := time.Now()
		db, q := open()
		r := plain("first")
		r.Serves = []string{"w1/prod"}
		pull := func(q *lease.Queue) (lease.Lease, time.Duration) {
			begin := time.Now()
			l, err := q.Pull(ctx, lease.PullRequest{RequestID: "once", Runner: r})
			if err != nil {
				b.Fatal(err)
			}
			return l, time.Since(begin)
		}
		settle := func(q *lease.Queue, l lease.Lease) {
			if err := q.Settle(ctx, l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
				b.Fatal(err)
			}
		}
		l, _ := pull(q)
		first += time.Since(begin)
		settle(q, l)
		for part := range 4 {
			emptyCycles += queueCycle(empty, fmt.Sprintf("e_%d_%d", round, part)).run(b, slice)
			cycles += queueCycle(q, fmt.Sprintf("f_%d_%d", round, part)).run(b, slice)
			n += slice
		}
		// Only now: a new write-ahead log is slower to append to than an old one to overwrite, and only one of the two is new.
		for i := range 200 { // one job in, one job out
			job := lease.Job{ID: fmt.Sprintf("one_%d_%d", round, i), Workspace: "w1", Pool: "w1/prod", Payload: benchPayload}
			for into, q := range map[*[]time.Duration]*lease.Queue{&emptyLatency: empty, &latency: q} {
				if err := q.Enqueue(ctx, job); err != nil {
					b.Fatal(err)
				}
				l, took := pull(q)
				*into = append(*into, took)
				settle(q, l)
			}
		}
		reopened = max(reopened, resident(b))
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(filled, "filled-MiB")
	b.ReportMetric(reopened, "reopened-MiB")
	b.ReportMetric(float64(first.Milliseconds())/float64(round), "restart-to-lease-ms")
	b.ReportMetric(float64(n)/cycles.Seconds(), "cycles/s")
	b.ReportMetric(emptyCycles.Seconds()/cycles.Seconds(), "cycle-ratio")
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	b.ReportMetric(median(latency), "pull-p50-us")
	b.ReportMetric(median(emptyLatency)/median(latency), "pull-ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdleRunners measures an enqueue, durable, while 5,000 runners wait for jobs of its pool: one that none of them can
// take, and one that any can, which is then leased in the same commit.
func BenchmarkIdleRunners(b *testing.B) {
	for _, needs := range []string{"gpu", "docker"} {
		b.Run(needs, func(b *testing.B) {
			q := openQueue(b, openDB(b), lease.Config{Limit: &lease.Limit{}})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wait := func(id string) {
				for i := 0; ; i++ {
					l, err := q.Pull(ctx, lease.PullRequest{RequestID: strconv.Itoa(i), Runner: plain(id)})
					if err != nil {
						return
					}
					if err := q.Settle(context.Background(), l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
						b.Error(err)
					}
				}
			}
			const runners = 5000
			for w := range runners {
				wg.Go(func() { wait(fmt.Sprintf("r%04d", w)) })
			}
			for {
				s, err := q.Stats(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if s.Waiting == runners {
					break
				}
			}
			for i := 0; b.Loop(); i++ {
				err := q.Enqueue(ctx, lease.Job{ID: fmt.Sprint("run_", i), Pool: "p", Payload: benchPayload,
					Requirements: lease.Requirements{Capabilities: []string{needs}}})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}
