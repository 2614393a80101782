package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// TestP1_RecordAndJobAreOneTransaction checks that a hook's rows and the job come and go together.
func TestP1_RecordAndJobAreOneTransaction(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	if err := db.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec("CREATE TABLE record (job TEXT PRIMARY KEY, status TEXT NOT NULL)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	q := openQueue(t, db, lease.Config{OnChange: func(tx *sqlite.Tx, ev *lease.Event) error {
		_, err := tx.Exec("UPDATE record SET status = ? WHERE job = ?", ev.State.String(), ev.Job)
		return err
	}})
	insert := lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		_, err := tx.Exec("INSERT INTO record VALUES (?, 'new')", ev.Job)
		return err
	})
	status := func(job string) (s string) {
		_ = db.Reader().QueryRow("SELECT status FROM record WHERE job = ?", job).Scan(&s) // "" if there is none
		return s
	}
	if err := q.Enqueue(t.Context(), job("j1"), insert); err != nil {
		t.Fatal(err)
	}
	if s := status("j1"); s != "queued" {
		t.Errorf("the record of an accepted job is %q", s)
	}
	if err := q.Enqueue(t.Context(), job("j1"), insert); !errors.Is(err, lease.ErrExists) {
		t.Errorf("the same job again: %v", err)
	}
	if err := db.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec("INSERT INTO record VALUES ('j2', 'taken')")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var serr sqlite3.Error
	if err := q.Enqueue(t.Context(), job("j2"), insert); !errors.As(err, &serr) || serr.Code != sqlite3.ErrConstraint {
		t.Errorf("a record that exists: %v", err)
	}
	if _, err := q.Get(t.Context(), "j2"); !errors.Is(err, lease.ErrUnknownJob) {
		t.Errorf("the job of a refused record: %v", err)
	}
	l := take(t, q, plain("r1"))
	if s := status("j1"); s != "leased" {
		t.Errorf("the record of a leased job is %q", s)
	}
	if err := q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil || status("j1") != "settled" {
		t.Errorf("settle: %v, the record is %q", err, status("j1"))
	}
}

// TestP15_FullDisk has the disk fill under a submit, a pull and a settle: each gets the error, memory follows the disk, and
// renewals go on.
func TestP15_FullDisk(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	q := openQueue(t, db, lease.Config{})
	enqueue(t, q, job("held"), job("next"))
	l := take(t, q, plain("r1"))
	limit := func(pages int) {
		err := db.Apply(t.Context(), func(tx *sqlite.Tx) error {
			var n int
			return tx.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // SQLite makes it the present size
	big := job("big")
	big.Payload = make([]byte, 1<<20)
	full := func(what string, err error) {
		t.Helper()
		var serr sqlite3.Error
		if !errors.As(err, &serr) || serr.Code != sqlite3.ErrFull {
			t.Errorf("%s: %v, want a full disk", what, err)
		}
	}
	full("enqueue", q.Enqueue(t.Context(), big))
	growing := lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		_, err := tx.Exec("INSERT INTO lease_payload VALUES (99, ?)", big.Payload)
		return err
	})
	full("settle", q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded}, growing))
	full("cancel", func() error { _, err := q.Cancel(t.Context(), "next", "", growing); return err }())
	answers, err := q.Renew(t.Context(), "r1", []lease.Ref{l.Ref})
	if err != nil || answers[0].Verdict != lease.Stands {
		t.Errorf("renewal: %+v, %v", answers, err)
	}
	wantState(t, q, "held", lease.Leased, lease.OutcomeNone)
	wantState(t, q, "next", lease.Queued, lease.OutcomeNone)
	if _, err := q.Get(t.Context(), "big"); !errors.Is(err, lease.ErrUnknownJob) {
		t.Errorf("the refused job: %v", err)
	}
	limit(1 << 30)
	if err := q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
		t.Errorf("settle with room again: %v", err)
	}
	if next := take(t, q, plain("r1")); next.Job != "next" {
		t.Errorf("leased %s, want next", next.Job)
	}
}

// TestP15_AFullDiskIsTriedNowAndThen: a retry is due, a runner waits for it, and the disk takes no lease. The queue tries
// again once a second, and not as fast as it can.
func TestP15_AFullDiskIsTriedNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		full, tried := false, 0
		const most = 100
		q := openQueue(t, db, lease.Config{OnChange: func(tx *sqlite.Tx, ev *lease.Event) error {
			if ev.Kind != lease.JobLeased || !full {
				return nil
			}
			if tried++; tried > most {
				full = false
				return nil
			}
			_, err := tx.Exec("INSERT OR REPLACE INTO lease_payload VALUES (99, ?)", make([]byte, 1<<20))
			return err
		}})
		enqueue(t, q, job("j1"))
		l := take(t, q, plain("r1"))
		start(t, q, l)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			_, err := q.Pull(ctx, lease.PullRequest{RequestID: "req_waits", Runner: plain("r2")})
			over <- err
		}()
		synctest.Wait()
		err := db.Apply(t.Context(), func(tx *sqlite.Tx) error {
			full = true
			var n int
			return tx.QueryRow("PRAGMA max_page_count = 1").Scan(&n) // SQLite makes it the present size
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Retry(t.Context(), l.Ref, "again"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if tried == 0 || tried > most {
			t.Errorf("tried %d times in 20 s", tried)
		}
		cancel()
		<-over
	})
}

// TestF41_ManyGoroutinesOneProcessor mixes every operation from 200 goroutines on one processor.
func TestF41_ManyGoroutinesOneProcessor(t *testing.T) {
	// Not parallel: it takes the processors of the whole process.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q := openQueue(t, openDB(t), lease.Config{Limit: &lease.Limit{}})
	var wg sync.WaitGroup
	for g := range 200 {
		wg.Go(func() {
			r := plain(fmt.Sprintf("r%d", g))
			for i := range 10 {
				id := fmt.Sprintf("j%d-%d", g, i)
				err := q.Enqueue(t.Context(), job(id))
				var l lease.Lease
				if err == nil {
					l, err = q.Pull(t.Context(), lease.PullRequest{RequestID: id, Runner: r})
				}
				if err == nil {
					err = q.Started(t.Context(), l.Ref)
				}
				if err == nil {
					_, err = q.Renew(t.Context(), r.ID, []lease.Ref{l.Ref})
				}
				if err == nil {
					_, err = q.Explain(t.Context(), id)
				}
				if err == nil {
					err = q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded})
				}
				if err != nil {
					if strings.Contains(err.Error(), "locked") {
						t.Error("a locked error left the package")
					}
					t.Errorf("%s: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	s, err := q.Stats(t.Context())
	if err != nil || len(s.Counts) != 0 || len(s.Homes) != 0 {
		t.Errorf("left over: %+v, %v", s, err)
	}
}

// TestSelfDecidedChangeRefusedByHook has OnChange refuse an expiry for a while: the change is tried again, and its record
// and the job never part.
func TestSelfDecidedChangeRefusedByHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		q := openQueue(t, openDB(t), lease.Config{
			Log: slog.New(slog.DiscardHandler),
			OnChange: func(tx *sqlite.Tx, ev *lease.Event) error {
				if refuse.Load() {
					return errHook
				}
				return nil
			}})
		j := job("waits")
		j.Requirements.Capabilities, j.QueueDeadline = []string{"gpu"}, time.Minute
		enqueue(t, q, job("j1"), j)
		start(t, q, take(t, q, plain("r1")))
		refuse.Store(true)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		wantState(t, q, "j1", lease.Leased, lease.OutcomeNone)
		wantState(t, q, "waits", lease.Queued, lease.OutcomeNone)
		if err := q.Enqueue(t.Context(), job("j2")); !errors.Is(err, errHook) {
			t.Errorf("enqueue: %v", err)
		}
		refuse.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantState(t, q, "j1", lease.Queued, lease.OutcomeNone)
		wantState(t, q, "waits", lease.Settled, lease.Unschedulable)
		refuse.Store(true)
		if _, err := q.Pull(t.Context(), lease.PullRequest{RequestID: "x", Runner: plain("r1")}); !errors.Is(err, errHook) {
			t.Errorf("a lease that the hook refuses: %v", err)
		}
		refuse.Store(false)
		if l := take(t, q, plain("r1")); l.Job != "j1" || l.Attempt != 2 {
			t.Errorf("leased %+v", l)
		}
	})
}

// TestRefusedDeadlinesHoldUpNoOthers has OnChange refuse the end of more jobs than one tick looks at: a job with a later
// deadline still meets it, and the refused ones are tried again.
func TestRefusedDeadlinesHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		refuse.Store(true)
		q := openQueue(t, openDB(t), lease.Config{
			Log: slog.New(slog.DiscardHandler),
			OnChange: func(tx *sqlite.Tx, ev *lease.Event) error {
				if refuse.Load() && ev.Job != "good" && ev.Kind == lease.JobSettled {
					return errHook
				}
				return nil
			}})
		var bad []lease.Job
		for n := range 300 {
			j := job(fmt.Sprintf("bad%d", n))
			j.QueueDeadline = 115 * time.Second
			bad = append(bad, j)
		}
		good := job("good")
		good.QueueDeadline = 2 * time.Minute
		if err := q.EnqueueAll(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, good)
		time.Sleep(2*time.Minute + 2*time.Second)
		synctest.Wait()
		wantState(t, q, "good", lease.Settled, lease.Unschedulable)
		for _, j := range bad {
			wantState(t, q, j.ID, lease.Queued, lease.OutcomeNone)
		}
		refuse.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, j := range bad {
			wantState(t, q, j.ID, lease.Settled, lease.Unschedulable)
		}
	})
}

// TestRefusedEnqueueAllLeavesTheShare: several jobs of one new lane are refused together. Their workspace goes on to get
// its share.
func TestRefusedEnqueueAllLeavesTheShare(t *testing.T) {
	t.Parallel()
	q := openQueue(t, openDB(t), lease.Config{})
	of := func(workspace, id string, caps ...string) lease.Job {
		j := job(id)
		j.Workspace, j.Requirements.Capabilities = workspace, caps
		return j
	}
	enqueue(t, q, of("a", "a", "git"))
	if err := q.EnqueueAll(t.Context(), []lease.Job{of("a", "x"), of("a", "y"), of("a", "a")}); !errors.Is(err, lease.ErrExists) {
		t.Fatalf("a job that exists: %v, want ErrExists", err)
	}
	for n := range 8 {
		enqueue(t, q, of("a", fmt.Sprint("a-git-", n), "git"), of("a", fmt.Sprint("a-docker-", n), "docker"), of("b", fmt.Sprint("b-", n), "git"))
	}
	got := make(map[string]int)
	for range 12 {
		got[take(t, q, plain("r1")).Workspace]++
	}
	if got["a"] != 6 || got["b"] != 6 {
		t.Errorf("12 leases over two equal workspaces are %v, want 6 and 6", got)
	}
}

// TestClose_EndsWaitingPulls and refuses what comes after.
func TestClose_EndsWaitingPulls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, filepath.Join(t.TempDir(), "x.db"), lease.Config{})
		ended := make(chan error, 1)
		go func() {
			_, err := c.q.Pull(t.Context(), lease.PullRequest{RequestID: "x", Runner: plain("r1")})
			ended <- err
		}()
		synctest.Wait()
		c.stop()
		if err := <-ended; !errors.Is(err, lease.ErrClosed) {
			t.Errorf("the waiting pull: %v", err)
		}
		if err := c.q.Enqueue(t.Context(), job("j1")); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("enqueue after the end: %v", err)
		}
	})
}

// TestBadJobs are refused with what is wrong, and change nothing.
func TestBadJobs(t *testing.T) {
	t.Parallel()
	q := openQueue(t, openDB(t), lease.Config{})
	long := strings.Repeat("x", 600)
	for name, j := range map[string]lease.Job{
		"no id":               {Pool: "p"},
		"no pool":             {ID: "j"},
		"long id":             {ID: long, Pool: "p"},
		"class":               {ID: "j", Pool: "p", Class: 7},
		"negative memory":     {ID: "j", Pool: "p", Requirements: lease.Requirements{MemoryMB: -1}},
		"negative deadline":   {ID: "j", Pool: "p", QueueDeadline: -1},
		"capability in comma": {ID: "j", Pool: "p", Requirements: lease.Requirements{Capabilities: []string{"a,b"}}},
	} {
		var bad *lease.JobError
		if err := q.Enqueue(t.Context(), j); !errors.As(err, &bad) || bad.Problem == "" {
			t.Errorf("%s: %v", name, err)
		}
		if err := q.EnqueueAll(t.Context(), []lease.Job{job("good"), j}); !errors.As(err, &bad) {
			t.Errorf("%s, with a good one: %v", name, err)
		}
	}
	if _, err := q.Get(t.Context(), "good"); !errors.Is(err, lease.ErrUnknownJob) {
		t.Errorf("the good one: %v", err)
	}
}
