package lease_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

func bound(id, job string) lease.Runner {
	r := plain(id)
	r.Job = job
	return r
}

// pulls asks without waiting; the answer comes on the channel.
func pulls(t *testing.T, q *lease.Queue, r lease.Runner) <-chan lease.Lease {
	t.Helper()
	answers := make(chan lease.Lease, 1)
	err := q.PullFunc(t.Context(), lease.PullRequest{RequestID: r.ID, Runner: r}, func(l lease.Lease, _ error) { answers <- l })
	if err != nil {
		t.Fatalf("pull by %s: %v", r.ID, err)
	}
	return answers
}

func got(t *testing.T, who string, answers <-chan lease.Lease) lease.Lease {
	t.Helper()
	select {
	case l := <-answers:
		return l
	case <-time.After(10 * time.Second):
		t.Fatalf("%s got no lease in 10 s", who)
	}
	return lease.Lease{}
}

// none checks that nobody was answered; every earlier operation of the queue is over when Stats returns.
func none(t *testing.T, q *lease.Queue, who string, answers <-chan lease.Lease) {
	t.Helper()
	if _, err := q.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case l := <-answers:
		t.Fatalf("%s got %s, want it to wait", who, l.Job)
	default:
	}
}

func TestBoundRunnerTakesItsJobOnly(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{})
	enqueue(t, c.q, job("j1"), job("j2"), job("j3"))
	if l := take(t, c.q, bound("b3", "j3")); l.Job != "j3" {
		t.Errorf("the runner of j3 got %s, want j3 although it is the third", l.Job)
	}
	early := pulls(t, c.q, bound("b9", "j9"))
	none(t, c.q, "the runner of a job that is not there", early)
	enqueue(t, c.q, job("j8"), job("j9"))
	if l := got(t, "the runner of j9", early); l.Job != "j9" {
		t.Errorf("the runner of j9 got %s", l.Job)
	}
	for _, want := range []string{"j1", "j2", "j8"} {
		if l := take(t, c.q, plain("r")); l.Job != want {
			t.Errorf("the free runner got %s, want %s", l.Job, want)
		}
	}
}

func TestBoundRunnerWaitsForItsPool(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{Limit: &lease.Limit{MaxConcurrent: 1}})
	enqueue(t, c.q, job("j1"), job("j2"))
	l1 := take(t, c.q, bound("b1", "j1"))
	start(t, c.q, l1)
	second := pulls(t, c.q, bound("b2", "j2"))
	none(t, c.q, "the runner of j2 beyond the limit", second)
	x, err := c.q.Explain(t.Context(), "j2")
	if err != nil || x.Why != lease.WhySlots {
		t.Errorf("j2 waits because of %+v, %v; want the slots", x, err)
	}
	if err := c.q.Settle(t.Context(), l1.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if l := got(t, "the runner of j2", second); l.Job != "j2" {
		t.Errorf("got %s, want j2", l.Job)
	}
}

func TestBoundRunnerDoesNotExplainOthers(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{})
	enqueue(t, c.q, job("j1"))
	pulls(t, c.q, bound("b2", "j2"))
	x, err := c.q.Explain(t.Context(), "j1")
	if err != nil || x.Why != lease.WhyNoRunner {
		t.Errorf("j1 waits because of %+v, %v; want that there is no runner for it", x, err)
	}
}

func TestDemand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	c := begin(t, path, lease.Config{})
	batch := job("batch")
	batch.Class = lease.Batch
	big := job("big")
	big.Requirements = lease.Requirements{MemoryMB: 512, Capabilities: []string{"git"}}
	parked := job("parked")
	parked.Parked = "wait"
	enqueue(t, c.q, batch, job("j1"), big, job("j2"), parked)
	l := take(t, c.q, bound("b", "j1"))
	check := func(q *lease.Queue) {
		t.Helper()
		d, err := q.Demand(t.Context(), "p", 2, []string{"j1", "j2", "parked", "unknown"})
		if err != nil {
			t.Fatal(err)
		}
		var next []string
		for _, w := range d.Next {
			next = append(next, w.Job)
		}
		if !slices.Equal(next, []string{"big", "j2"}) || d.Next[0].Requirements.MemoryMB != 512 {
			t.Errorf("next are %+v, want big and j2, before the batch", d.Next)
		}
		j1 := d.Jobs["j1"]
		if len(d.Jobs) != 3 || j1.State != lease.Leased || j1.Lease == nil || j1.Lease.Ref != l.Ref || d.Jobs["parked"].State != lease.Parked {
			t.Errorf("jobs are %+v", d.Jobs)
		}
		if d.Use.Leases != 1 || len(d.Leases) != 1 || d.Leases[0].Ref != l.Ref || d.Use.Limit.MaxConcurrent != lease.DefaultMaxConcurrent {
			t.Errorf("use is %+v, want one lease", d.Use)
		}
	}
	check(c.q)
	c.stop()
	check(begin(t, path, lease.Config{}).q)
}

// TestF9_DemandSkips: jobs that do not fit the budgets of their pool hide none that does, however many they are.
func TestF9_DemandSkips(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{})
	if err := c.q.SetLimit(t.Context(), "p", lease.Limit{MaxConcurrent: 2, MemoryMB: 1000, CPU: 2000}); err != nil {
		t.Fatal(err)
	}
	needs := func(id string, r lease.Requirements) lease.Job {
		j := job(id)
		j.Requirements = r
		return j
	}
	for i := range 5 {
		enqueue(t, c.q, needs(fmt.Sprint("never", i), lease.Requirements{CPU: 3000}), needs(fmt.Sprint("big", i), lease.Requirements{MemoryMB: 600}))
	}
	enqueue(t, c.q, needs("wide", lease.Requirements{CPU: 1500, MemoryMB: 100}), job("small"))
	next := func() (ids []string) {
		t.Helper()
		d, err := c.q.Demand(t.Context(), "p", 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range d.Next {
			ids = append(ids, w.Job)
		}
		return ids
	}
	if got := next(); !slices.Equal(got, []string{"never0", "big0", "wide", "small"}) {
		t.Errorf("next are %v, want those that fit, and of the others the first", got)
	}
	take(t, c.q, bound("b", "big0"))
	if got := next(); !slices.Equal(got, []string{"never0", "never1", "wide", "small"}) {
		t.Errorf("with one leased, next are %v", got)
	}
	if err := c.q.SetLimit(t.Context(), "p", lease.Limit{MaxConcurrent: 2}); err != nil {
		t.Fatal(err)
	}
	if got := next(); !slices.Equal(got, []string{"never0", "never1", "big1", "never2"}) {
		t.Errorf("without budgets next are %v, want the first", got)
	}
}

// An attempt for which no place could be made counts once, however often it is said, waits for its retry, and is the
// last when there have been enough.
func TestUnplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	cfg := lease.Config{RetryDelay: -1, MaxAttempts: 2}
	c := begin(t, path, cfg)
	enqueue(t, c.q, job("j1"), job("j2"))
	why := lease.Unplaced{Reason: "evicted"}
	d, err := c.q.Unplaced(t.Context(), "j1", 0, why)
	if err != nil || d.State != lease.Queued {
		t.Fatalf("the first time: %+v, %v; want it queued again", d, err)
	}
	var state *lease.StateError
	if _, err := c.q.Unplaced(t.Context(), "j1", 0, why); !errors.As(err, &state) {
		t.Errorf("the same attempt again: %v, want a StateError", err)
	}
	c.stop()
	c = begin(t, path, cfg)
	l := take(t, c.q, bound("b", "j1"))
	if l.Attempt != 2 {
		t.Errorf("the lease has epoch %d, want 2: the first attempt is over", l.Attempt)
	}
	if _, err := c.q.Unplaced(t.Context(), "j1", 2, why); !errors.As(err, &state) {
		t.Errorf("of a leased job: %v, want a StateError", err)
	}
	if _, err := c.q.GiveBack(t.Context(), l.Ref, lease.Return{Reason: "drained"}); err != nil {
		t.Fatal(err)
	}
	if d, err = c.q.Unplaced(t.Context(), "j1", 2, why); err != nil || d.Outcome != lease.Exhausted {
		t.Errorf("the last attempt: %+v, %v; want it exhausted", d, err)
	}
	wantState(t, c.q, "j1", lease.Settled, lease.Exhausted)
	if d, err = c.q.Unplaced(t.Context(), "j2", 0, lease.Unplaced{Reason: "no such image", Final: true}); err != nil || d.Outcome != lease.Failed {
		t.Errorf("for good: %+v, %v; want it failed", d, err)
	}
	if s := wantState(t, c.q, "j2", lease.Settled, lease.Failed); s.Reason != "no such image" {
		t.Errorf("reason %q", s.Reason)
	}
	if _, err := c.q.Unplaced(t.Context(), "j3", 0, why); !errors.Is(err, lease.ErrUnknownJob) {
		t.Errorf("of an unknown job: %v", err)
	}
}

// A job that waits for its retry is not among the next.
func TestUnplacedWaitsForItsRetry(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{RetryDelay: time.Hour, MaxRetryDelay: time.Hour})
	enqueue(t, c.q, job("j1"))
	if _, err := c.q.Unplaced(t.Context(), "j1", 0, lease.Unplaced{Reason: "evicted"}); err != nil {
		t.Fatal(err)
	}
	d, err := c.q.Demand(t.Context(), "p", 5, []string{"j1"})
	if err != nil || len(d.Next) != 0 || !d.Jobs["j1"].Delayed || d.Jobs["j1"].Attempt != 1 {
		t.Errorf("demand %+v, %v; want j1 delayed after attempt 1", d, err)
	}
}

// BenchmarkDemand is one look at a pool of 20 for which 10,000 jobs are queued.
func BenchmarkDemand(b *testing.B) {
	db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "a.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	q, err := lease.Open(b.Context(), db, lease.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	jobs := make([]lease.Job, 10_000)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("j%05d", i))
		if i < 20 {
			ids = append(ids, jobs[i].ID)
		}
	}
	if err := q.EnqueueAll(b.Context(), jobs); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if d, err := q.Demand(b.Context(), "p", 40, ids); err != nil || len(d.Next) != 40 {
			b.Fatalf("%d next, %v", len(d.Next), err)
		}
	}
}
