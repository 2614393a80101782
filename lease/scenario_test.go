package lease_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

// plain is a runner of pool p that offers docker and git.
func plain(id string) lease.Runner {
	return lease.Runner{ID: id, Serves: []string{"p"}, Capabilities: []string{"docker", "git"}, OS: "linux", Arch: "amd64"}
}

func job(id string) lease.Job {
	return lease.Job{ID: id, Workspace: "w", Pool: "p", Payload: []byte("payload of " + id)}
}

func enqueue(t *testing.T, q *lease.Queue, jobs ...lease.Job) {
	t.Helper()
	for _, j := range jobs {
		if err := q.Enqueue(t.Context(), j); err != nil {
			t.Fatalf("enqueue %s: %v", j.ID, err)
		}
	}
}

// take pulls what must be there.
func take(t *testing.T, q *lease.Queue, r lease.Runner) lease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := q.Pull(ctx, lease.PullRequest{RequestID: fmt.Sprintf("%s-%d", r.ID, requests.Add(1)), Runner: r})
	if err != nil {
		t.Fatalf("pull by %s: %v", r.ID, err)
	}
	return l
}

var requests atomic.Int64

func start(t *testing.T, q *lease.Queue, l lease.Lease) {
	t.Helper()
	if err := q.Started(t.Context(), l.Ref); err != nil {
		t.Fatalf("start %s: %v", l.Job, err)
	}
}

func wantState(t *testing.T, q *lease.Queue, id string, state lease.State, outcome lease.Outcome) lease.Status {
	t.Helper()
	s, err := q.Get(t.Context(), id)
	if err != nil || s.State != state || s.Outcome != outcome {
		t.Fatalf("%s is %s %s (%+v), %v; want %s %s", id, s.State, s.Outcome, s, err, state, outcome)
	}
	return s
}

// coordinator is a life of a database and a queue that can be ended and begun again on the same file.
type coordinator struct {
	db   *sqlite.DB
	q    *lease.Queue
	stop func()
}

func begin(t *testing.T, path string, cfg lease.Config) *coordinator {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	q, err := lease.Open(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	c := &coordinator{db: db, q: q}
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// TestP1_EnqueueIsOnDiskWhenItReturns reads an accepted job from a copy of nothing but the files.
func TestP1_EnqueueIsOnDiskWhenItReturns(t *testing.T) {
	t.Parallel()
	c := begin(t, filepath.Join(t.TempDir(), "a.db"), lease.Config{})
	enqueue(t, c.q, job("j1"))
	copied := copyFiles(t, c.db.Path())
	again := begin(t, copied, lease.Config{})
	l := take(t, again.q, plain("r1"))
	if l.Job != "j1" || string(l.Payload) != "payload of j1" || l.Workspace != "w" {
		t.Errorf("after a crash the lease is %+v", l)
	}
}

// TestP2_F2_LateResultIsStale lets a start come too late: the result of that attempt is refused, the next one's counts.
func TestP2_F2_LateResultIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		enqueue(t, q, job("j1"))
		late := take(t, q, plain("slow"))
		time.Sleep(31 * time.Second) // past the start acknowledgement
		second := take(t, q, plain("r2"))
		if second.Attempt != late.Attempt+1 {
			t.Fatalf("attempts %d and %d", late.Attempt, second.Attempt)
		}
		hooked := 0
		hook := lease.With(func(*sqlite.Tx, *lease.Event) error { hooked++; return nil })
		err := q.Settle(t.Context(), late.Ref, lease.Result{Outcome: lease.Failed}, hook)
		if stale, ok := lease.IsStale(err); !ok || stale.Attempt != second.Attempt || stale.State != lease.Leased {
			t.Errorf("the late result: %v", err)
		}
		if err := q.Settle(t.Context(), second.Ref, lease.Result{Outcome: lease.Succeeded}, hook); err != nil {
			t.Error(err)
		}
		err = q.Settle(t.Context(), late.Ref, lease.Result{Outcome: lease.Failed}, hook)
		if stale, ok := lease.IsStale(err); !ok || stale.State != lease.Settled || stale.Outcome != lease.Succeeded {
			t.Errorf("the late result after the end: %v", err)
		}
		if err := q.Settle(t.Context(), second.Ref, lease.Result{Outcome: lease.Failed}, hook); !errors.Is(err, lease.ErrAlreadySettled) {
			t.Errorf("the same result again: %v", err)
		}
		wantState(t, q, "j1", lease.Settled, lease.Succeeded)
		if hooked != 1 {
			t.Errorf("the record was changed %d times", hooked)
		}
	})
}

// TestP4_F1_F8_RestartReadopts stops the coordinator for longer than the TTL with one runner that stays and one that dies.
func TestP4_F1_F8_RestartReadopts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		var events []lease.Event
		cfg := lease.Config{Committed: func(evs []lease.Event) { events = append(events, evs...) }}
		c := begin(t, path, cfg)
		enqueue(t, c.q, job("stays"), job("dies"))
		stays, dies := take(t, c.q, plain("r1")), take(t, c.q, plain("r2"))
		start(t, c.q, stays)
		start(t, c.q, dies)
		c.stop()
		time.Sleep(5 * time.Minute)

		events = nil
		c = begin(t, path, cfg)
		leases, err := c.q.List(t.Context())
		if err != nil || len(leases) != 2 || leases[1].Ref != stays.Ref || leases[1].TTL != time.Minute {
			t.Fatalf("after the restart: %+v, %v", leases, err)
		}
		time.Sleep(55 * time.Second)
		a, err := c.q.Adopt(t.Context(), plain("r1"), []lease.Ref{stays.Ref})
		if err != nil || a.Held[0].Verdict != lease.Stands || len(a.Missing) != 0 {
			t.Fatalf("adoption: %+v, %v", a, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantState(t, c.q, "stays", lease.Leased, lease.OutcomeNone)
		wantState(t, c.q, "dies", lease.Queued, lease.OutcomeNone)
		if len(events) != 1 || events[0].Cause != lease.CauseRestart || events[0].Runner != "r2" || events[0].Failures != 1 {
			t.Errorf("events %+v", events)
		}
		if err := c.q.Settle(t.Context(), stays.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
			t.Errorf("the adopted attempt: %v", err)
		}
	})
}

// TestP4_LostAnswer leases, loses the answer with the coordinator, and asks the next one again with the same request.
func TestP4_LostAnswer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	c := begin(t, path, lease.Config{})
	enqueue(t, c.q, job("j1"), job("j2"))
	req := lease.PullRequest{RequestID: "once", Runner: plain("r1")}
	first, err := c.q.Pull(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
	c = begin(t, path, lease.Config{})
	again, err := c.q.Pull(t.Context(), req)
	if err != nil || again.Ref != first.Ref || string(again.Payload) != string(first.Payload) {
		t.Errorf("asked again: %+v, %v; want %+v", again, err, first)
	}
	a, err := c.q.Adopt(t.Context(), plain("r1"), nil)
	if err != nil || len(a.Missing) != 1 || a.Missing[0].Ref != first.Ref {
		t.Errorf("adoption: %+v, %v", a, err)
	}
	wantState(t, c.q, "j2", lease.Queued, lease.OutcomeNone)
}

// TestP14_WallClock restarts the coordinator under a wall clock that somebody has set a day forwards, then two back: live
// leases get their fresh TTL by durations alone.
func TestP14_WallClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		c := begin(t, path, lease.Config{})
		enqueue(t, c.q, job("j1"))
		l := take(t, c.q, plain("r1"))
		start(t, c.q, l)
		for _, shift := range []time.Duration{25 * time.Hour, -50 * time.Hour} {
			c.stop()
			c = begin(t, path, lease.Config{Now: func() time.Time { return time.Now().Add(shift) }})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			answers, err := c.q.Renew(t.Context(), "r1", []lease.Ref{l.Ref})
			if err != nil || answers[0].Verdict != lease.Stands || answers[0].TTL != time.Minute {
				t.Errorf("wall clock shifted by %s: %+v, %v", shift, answers, err)
			}
			time.Sleep(59 * time.Second)
			synctest.Wait()
			wantState(t, c.q, "j1", lease.Leased, lease.OutcomeNone)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantState(t, c.q, "j1", lease.Queued, lease.OutcomeNone)
	})
}

// TestP14_RunnersSendNoTimes looks for a time in anything that a runner hands in: there is none that could be compared.
func TestP14_RunnersSendNoTimes(t *testing.T) {
	t.Parallel()
	for _, v := range []any{lease.PullRequest{}, lease.Ref{}, lease.Result{}, lease.Return{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.Type == reflect.TypeFor[time.Time]() || f.Type == reflect.TypeFor[time.Duration]() {
				t.Errorf("%T has a time of the sender: %s", v, f.Name)
			}
		}
	}
}

// TestF6_NoStartAcknowledgement keeps the heartbeat of a runner alive while it never starts what it got.
func TestF6_NoStartAcknowledgement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var settled lease.Event
		q := openQueue(t, openDB(t), lease.Config{MaxUnstarted: 3, Committed: func(events []lease.Event) {
			if ev := events[len(events)-1]; ev.Kind == lease.JobSettled {
				settled = ev
			}
		}})
		enqueue(t, q, job("j1"))
		hung := plain("hung")
		if err := q.SetRunner(t.Context(), hung); err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			l := take(t, q, hung)
			for range 4 {
				if _, err := q.Renew(t.Context(), "hung", []lease.Ref{l.Ref}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
			}
			synctest.Wait()
			want, outcome := lease.Queued, lease.OutcomeNone
			if round == 2 {
				want, outcome = lease.Settled, lease.Exhausted
			}
			if s := wantState(t, q, "j1", want, outcome); s.Failures != 0 {
				t.Errorf("a lease that nobody started counts as attempt: %+v", s)
			}
			runners, err := q.Runners(t.Context())
			if err != nil || len(runners) != 1 || runners[0].Degraded.IsZero() || !runners[0].Online {
				t.Errorf("runners %+v, %v", runners, err)
			}
		}
		if settled.Unstarted != 3 || settled.MaxUnstarted != 3 || settled.Failures != 0 || settled.MaxAttempts != 3 {
			t.Errorf("the event says neither limit: %+v", settled)
		}
		enqueue(t, q, job("j2"))
		start(t, q, take(t, q, hung))
		if runners, err := q.Runners(t.Context()); err != nil || !runners[0].Degraded.IsZero() {
			t.Errorf("after an acknowledged start: %+v, %v", runners, err)
		}
	})
}

// TestF7_CancelWithoutHolder cancels in every state: at once if nobody can be told, through the holder if somebody can.
func TestF7_CancelWithoutHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		c := begin(t, path, lease.Config{})
		cancel := func(id string, wantSettled bool) {
			t.Helper()
			if settled, err := c.q.Cancel(t.Context(), id, "not needed"); err != nil || settled != wantSettled {
				t.Errorf("cancel %s: settled %t, %v; want %t", id, settled, err, wantSettled)
			}
		}
		enqueue(t, c.q, job("queued"))
		cancel("queued", true)
		parked := job("parked")
		parked.Parked = "waits for approval"
		enqueue(t, c.q, parked)
		cancel("parked", true)
		var state *lease.StateError
		if _, err := c.q.Cancel(t.Context(), "parked", ""); !errors.As(err, &state) || state.State != lease.Settled {
			t.Errorf("cancelled twice: %v", err)
		}

		enqueue(t, c.q, job("held"))
		held := take(t, c.q, plain("r1"))
		start(t, c.q, held)
		cancel("held", false)
		cancel("held", false)
		answers, err := c.q.Renew(t.Context(), "r1", []lease.Ref{held.Ref})
		if err != nil || answers[0].Verdict != lease.Stop || answers[0].Stop != lease.Cancelled || answers[0].Reason != "not needed" {
			t.Errorf("the holder is told %+v, %v", answers, err)
		}
		d, err := c.q.GiveBack(t.Context(), held.Ref, lease.Return{Reason: "stopped"})
		if err != nil || d.Outcome != lease.Cancelled {
			t.Errorf("given back: %+v, %v", d, err)
		}

		enqueue(t, c.q, job("silent"), job("gone"), job("told"), job("over"))
		silent, gone, told, over := take(t, c.q, plain("r2")), take(t, c.q, plain("r3")), take(t, c.q, plain("r4")), take(t, c.q, plain("r5"))
		for _, l := range []lease.Lease{silent, gone, told, over} {
			start(t, c.q, l)
		}
		if err := c.q.RemoveRunner(t.Context(), "r3"); err != nil {
			t.Fatal(err)
		}
		cancel("gone", true)
		cancel("told", false)
		time.Sleep(31 * time.Second)
		cancel("silent", true)
		if _, ok := lease.IsStale(c.q.Settle(t.Context(), silent.Ref, lease.Result{Outcome: lease.Succeeded})); !ok {
			t.Error("the result of a cancelled job was taken")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantState(t, c.q, "told", lease.Settled, lease.Cancelled) // its holder never came back

		c.stop()
		time.Sleep(2 * time.Minute)
		c = begin(t, path, lease.Config{})
		wantState(t, c.q, "over", lease.Queued, lease.OutcomeNone)
		cancel("over", true)
	})
}

// TestF7_CancelAfterRestart cancels what was leased when the coordinator stopped, before any runner came back.
func TestF7_CancelAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		c := begin(t, path, lease.Config{})
		enqueue(t, c.q, job("j1"))
		l := take(t, c.q, plain("r1"))
		start(t, c.q, l)
		c.stop()
		time.Sleep(2 * time.Minute)
		c = begin(t, path, lease.Config{})
		if settled, err := c.q.Cancel(t.Context(), "j1", ""); err != nil || !settled {
			t.Errorf("cancel: settled %t, %v", settled, err)
		}
		a, err := c.q.Adopt(t.Context(), plain("r1"), []lease.Ref{l.Ref})
		if err != nil || a.Held[0].Verdict != lease.Stale {
			t.Errorf("the runner that comes back is told %+v, %v", a, err)
		}
	})
}

// TestP3_StalledCoordinatorForgives holds the coordinator up for longer than a TTL: renewals that waited unread count, and
// nothing is given away before the holder had a chance to speak.
func TestP3_StalledCoordinatorForgives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		q := openQueue(t, db, lease.Config{})
		enqueue(t, q, job("j1"), job("j2"))
		speaks, silent := take(t, q, plain("r1")), take(t, q, plain("r2"))
		start(t, q, speaks)
		start(t, q, silent)
		if err := db.Apply(t.Context(), func(*sqlite.Tx) error {
			time.Sleep(90 * time.Second)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantState(t, q, "j1", lease.Leased, lease.OutcomeNone)
		time.Sleep(59 * time.Second)
		if answers, err := q.Renew(t.Context(), "r1", []lease.Ref{speaks.Ref}); err != nil || answers[0].Verdict != lease.Stands {
			t.Errorf("after the stall: %+v, %v", answers, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantState(t, q, "j1", lease.Leased, lease.OutcomeNone)
		wantState(t, q, "j2", lease.Queued, lease.OutcomeNone)
	})
}
