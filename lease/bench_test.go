package lease_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// The baseline is what a durable queue cannot avoid on SQLite: one writer, group commit, the same three writes per job
// (insert with its payload, mark leased, mark settled) on the same file settings, with no order, no matching, no leases.
const (
	bareSchema = `CREATE TABLE bare (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state INTEGER NOT NULL, payload BLOB NOT NULL)`
	bareIndex  = `CREATE INDEX bare_queued ON bare (seq) WHERE state = 0`
	bareInsert = `INSERT INTO bare (id, state, payload) VALUES (?, 0, ?)`
	bareHead   = `SELECT seq, payload FROM bare WHERE state = 0 ORDER BY seq LIMIT 1`
	bareLease  = `UPDATE bare SET state = 1 WHERE seq = ?`
	bareSettle = `UPDATE bare SET state = 2 WHERE seq = ?`
)

func openDB(tb testing.TB) *sqlite.DB {
	tb.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "queue.db")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// openQueue opens a queue and lets its time pass until the test is over.
func openQueue(tb testing.TB, db *sqlite.DB, cfg lease.Config) *lease.Queue {
	tb.Helper()
	q, err := lease.Open(context.Background(), db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	return q
}

const (
	benchSubmitters = 16
	benchWorkers    = 32
)

// cycle is one durable queue, as far as the benchmark needs it.
type cycle struct {
	enqueue func(i int64) error
	// work takes one job and settles it.
	work func(worker int) error
}

// run does n cycles and returns how long they took.
func (c cycle) run(tb testing.TB, n int64) time.Duration {
	tb.Helper()
	var submitted, worked atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range benchSubmitters {
		wg.Go(func() {
			for {
				i := submitted.Add(1)
				if i > n {
					return
				}
				if err := c.enqueue(i); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	for w := range benchWorkers {
		wg.Go(func() {
			for worked.Add(1) <= n {
				if err := c.work(w); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

var benchPayload = make([]byte, 1024)

func bareCycle(tb testing.TB, db *sqlite.DB) cycle {
	ctx := context.Background()
	for _, s := range []string{bareSchema, bareIndex} {
		if err := db.Write(ctx, func(tx *sqlite.Tx) error { _, err := tx.Exec(s); return err }); err != nil {
			tb.Fatal(err)
		}
	}
	queued := make(chan struct{}, 1<<20)
	return cycle{
		enqueue: func(i int64) error {
			id := fmt.Sprintf("run_%016d", i)
			err := db.Apply(ctx, func(tx *sqlite.Tx) error {
				_, err := tx.Exec(bareInsert, id, benchPayload)
				return err
			})
			queued <- struct{}{}
			return err
		},
		work: func(int) error {
			<-queued
			var seq int64
			var payload []byte
			err := db.Apply(ctx, func(tx *sqlite.Tx) error {
				if err := tx.QueryRow(bareHead).Scan(&seq, &payload); err != nil {
					return err
				}
				_, err := tx.Exec(bareLease, seq)
				return err
			})
			if err != nil {
				return err
			}
			return db.Apply(ctx, func(tx *sqlite.Tx) error {
				_, err := tx.Exec(bareSettle, seq)
				return err
			})
		},
	}
}

// queueCycle gives each of its runs ids of its own.
func queueCycle(q *lease.Queue, prefix string) cycle {
	ctx := context.Background()
	var requests atomic.Int64
	runners := make([]lease.Runner, benchWorkers)
	for i := range runners {
		runners[i] = lease.Runner{ID: fmt.Sprintf("rnr_%02d", i), Home: "w1/prod", Serves: []string{"w1/prod", "w1/auto"},
			Capabilities: []string{"docker", "git"}, OS: "linux", Arch: "amd64"}
	}
	return cycle{
		enqueue: func(i int64) error {
			return q.Enqueue(ctx, lease.Job{ID: fmt.Sprintf("%s_%016d", prefix, i), Workspace: "w1", Pool: "w1/prod", Payload: benchPayload})
		},
		work: func(w int) error {
			l, err := q.Pull(ctx, lease.PullRequest{RequestID: fmt.Sprint(requests.Add(1)), Runner: runners[w]})
			if err != nil {
				return err
			}
			return q.Settle(ctx, l.Ref, lease.Result{Outcome: lease.Succeeded})
		},
	}
}

// BenchmarkCycle measures enqueue -> lease -> settle, 16 submitters, 32 workers, 1 kB payloads, every step on the disk
// before it is acknowledged. It alternates with the baseline in slices of 4096 cycles, so that a busy machine is as busy for
// both, and reports the ratio. With hooks, each of the three changes runs one, in a savepoint.
func BenchmarkCycle(b *testing.B) {
	bench := func(b *testing.B, onChange lease.Hook) {
		const slice = 4096
		bare := bareCycle(b, openDB(b))
		q := openQueue(b, openDB(b), lease.Config{Limit: &lease.Limit{}, OnChange: onChange})
		var bareTime, queueTime time.Duration
		var n int64
		b.ResetTimer()
		for round := 0; b.Loop(); round++ {
			shifted := cycle{enqueue: func(i int64) error { return bare.enqueue(n + i) }, work: bare.work}
			bareTime += shifted.run(b, slice)
			queueTime += queueCycle(q, fmt.Sprintf("run_%d", round)).run(b, slice)
			n += slice
		}
		b.ReportMetric(float64(n)/queueTime.Seconds(), "cycles/s")
		b.ReportMetric(float64(n)/bareTime.Seconds(), "bare-cycles/s")
		b.ReportMetric(bareTime.Seconds()/queueTime.Seconds(), "ratio")
	}
	b.Run("plain", func(b *testing.B) { bench(b, nil) })
	b.Run("hooks", func(b *testing.B) { bench(b, func(*sqlite.Tx, *lease.Event) error { return nil }) })
}
