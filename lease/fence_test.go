package lease_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

func fence(t *testing.T, q *lease.Queue, id string) {
	t.Helper()
	if err := q.Fence(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// TestF35_FencedRunner revokes a runner while its job runs: nothing it says counts from then on, that is told at once, and
// its job is given away only when its lease has run out.
func TestF35_FencedRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []lease.Event
		q := openQueue(t, openDB(t), lease.Config{OnChange: func(_ *sqlite.Tx, ev *lease.Event) error {
			if ev.Kind == lease.JobFenced || ev.Kind == lease.JobRequeued {
				told = append(told, *ev)
			}
			return nil
		}})
		enqueue(t, q, job("j1"))
		l := take(t, q, plain("r1"))
		start(t, q, l)
		for range 2 {
			fence(t, q, "r1")
		}
		if len(told) != 1 || told[0].Job != "j1" || told[0].Runner != "r1" || told[0].State != lease.Leased || !told[0].Deadline.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("told of the fence: %+v", told)
		}
		answers, err := q.Renew(t.Context(), "r1", []lease.Ref{l.Ref})
		if err != nil || answers[0].Verdict != lease.Stale {
			t.Errorf("renewal of a fenced lease: %+v, %v", answers, err)
		}
		if _, ok := lease.IsStale(q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded})); !ok {
			t.Error("the result of a fenced lease was taken")
		}
		time.Sleep(60*time.Second - time.Nanosecond)
		synctest.Wait()
		wantState(t, q, "j1", lease.Leased, lease.OutcomeNone)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantState(t, q, "j1", lease.Queued, lease.OutcomeNone)
		if last := told[len(told)-1]; last.Kind != lease.JobRequeued || last.Cause != lease.CauseFenced || last.Failures != 1 {
			t.Errorf("told of the end: %+v", last)
		}
	})
}

// TestF35_FencedBeforeTheStart revokes a runner that has taken a job and not begun it: its acknowledgement comes too late,
// and the job is free when the time for it has passed.
func TestF35_FencedBeforeTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		enqueue(t, q, job("j1"))
		l := take(t, q, plain("r1"))
		fence(t, q, "r1")
		if _, ok := lease.IsStale(q.Started(t.Context(), l.Ref)); !ok {
			t.Error("the start of a fenced lease was acknowledged")
		}
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		wantState(t, q, "j1", lease.Leased, lease.OutcomeNone)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantState(t, q, "j1", lease.Queued, lease.OutcomeNone)
	})
}

// TestF35_P6_CancelOfAFencedLease settles at once: there is nobody to wait for.
func TestF35_P6_CancelOfAFencedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		enqueue(t, q, job("j1"))
		start(t, q, take(t, q, plain("r1")))
		fence(t, q, "r1")
		if settled, err := q.Cancel(t.Context(), "j1", "a typo"); !settled || err != nil {
			t.Errorf("cancel: settled %v, %v", settled, err)
		}
		wantState(t, q, "j1", lease.Settled, lease.Cancelled)
	})
}

// TestF35_P6_FenceAfterACancel: there is nobody to wait for, in whichever order the two come.
func TestF35_P6_FenceAfterACancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		enqueue(t, q, job("j1"))
		start(t, q, take(t, q, plain("r1")))
		if settled, err := q.Cancel(t.Context(), "j1", "a typo"); settled || err != nil {
			t.Fatalf("cancel: settled %v, %v", settled, err)
		}
		fence(t, q, "r1")
		wantState(t, q, "j1", lease.Settled, lease.Cancelled)
	})
}

// TestF35_FencedPulls: a pull that waits is told, one that comes later is refused, and no job is leased to either.
func TestF35_FencedPulls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		if err := q.SetRunner(t.Context(), plain("r1")); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := q.Pull(t.Context(), lease.PullRequest{RequestID: "req_1", Runner: plain("r1")})
			waits <- err
		}()
		synctest.Wait()
		fence(t, q, "r1")
		if err := <-waits; !errors.Is(err, lease.ErrFenced) {
			t.Errorf("the pull that waited ended with %v", err)
		}
		if _, err := q.Pull(t.Context(), lease.PullRequest{RequestID: "req_2", Runner: plain("r1")}); !errors.Is(err, lease.ErrFenced) {
			t.Errorf("the pull that came later ended with %v", err)
		}
		enqueue(t, q, job("j1"))
		wantState(t, q, "j1", lease.Queued, lease.OutcomeNone)
	})
}

// TestF35_P4_FenceOutlivesARestart: a coordinator that was restarted meanwhile takes nothing of the runner either.
func TestF35_P4_FenceOutlivesARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		var told []lease.Event
		cfg := lease.Config{Committed: func(evs []lease.Event) { told = append(told, evs...) }}
		c := begin(t, path, cfg)
		enqueue(t, c.q, job("j1"))
		l := take(t, c.q, plain("r1"))
		start(t, c.q, l)
		if err := c.q.Fence(t.Context(), "r1"); err != nil {
			t.Fatal(err)
		}
		c.stop()

		told = nil
		c = begin(t, path, cfg)
		q := c.q
		if err := q.Fence(t.Context(), "r1"); err != nil || len(told) != 0 {
			t.Errorf("fenced once more: %v, told %+v", err, told)
		}
		if answers, err := q.Renew(t.Context(), "r1", []lease.Ref{l.Ref}); err != nil || answers[0].Verdict != lease.Stale {
			t.Errorf("renewal: %+v, %v", answers, err)
		}
		if x, err := q.Explain(t.Context(), "j1"); err != nil || x.Why != lease.WhyFenced {
			t.Errorf("explain: %+v, %v", x, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 || told[0].Kind != lease.JobRequeued || told[0].Cause != lease.CauseFenced {
			t.Errorf("told %+v", told)
		}
	})
}

// TestF35_FenceHoldsWithoutItsRecord: a hook that cannot write the news of it down takes nothing of the fence away, nor the
// news of other leases.
func TestF35_FenceHoldsWithoutItsRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		refuse := true
		q := openQueue(t, openDB(t), lease.Config{OnChange: func(_ *sqlite.Tx, ev *lease.Event) error {
			if ev.Kind != lease.JobFenced {
				return nil
			}
			if ev.Job == "j2" && refuse {
				return errors.New("no")
			}
			told = append(told, ev.Job)
			return nil
		}})
		var all []lease.Lease
		for _, id := range []string{"j1", "j2", "j3"} {
			enqueue(t, q, job(id))
			l := take(t, q, plain("r1"))
			start(t, q, l)
			all = append(all, l)
		}
		tells := func(want ...string) {
			t.Helper()
			told = nil
			if err := q.Fence(t.Context(), "r1"); err != nil || !slices.Equal(told, want) {
				t.Errorf("fence: %v, told of %q, want %q", err, told, want)
			}
		}
		tells("j1", "j3")
		for _, l := range all {
			if _, ok := lease.IsStale(q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded})); !ok {
				t.Errorf("the result of %s was taken", l.Job)
			}
		}
		refuse = false
		tells("j2")
		tells()
	})
}

// TestF35_FencedIsRemembered: a runner that was gone, or not known yet, when its trust ended comes too late.
func TestF35_FencedIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		enqueue(t, q, job("j1"))
		if err := q.SetRunner(t.Context(), plain("left")); err != nil {
			t.Fatal(err)
		}
		if err := q.Fence(t.Context(), "left", "comes"); err != nil {
			t.Fatal(err)
		}
		if err := q.RemoveRunner(t.Context(), "left"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"left", "comes"} {
			if err := q.SetRunner(t.Context(), plain(id)); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("%s is set: %v", id, err)
			}
			if _, err := q.Adopt(t.Context(), plain(id), nil); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("%s is adopted: %v", id, err)
			}
			if _, err := q.Pull(t.Context(), lease.PullRequest{RequestID: "req_" + id, Runner: plain(id)}); !errors.Is(err, lease.ErrFenced) {
				t.Errorf("%s pulls: %v", id, err)
			}
		}
	})
}

// TestF35_P15_FenceOnAFullDisk: the writing of a fence fails, in the middle of several leases, one of which is being
// stopped. Nothing of any of them is taken from then on, and all is written down when there is room.
func TestF35_P15_FenceOnAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		db := openDB(t)
		q := openQueue(t, db, lease.Config{
			OnChange: func(tx *sqlite.Tx, ev *lease.Event) error {
				if ev.Kind != lease.JobFenced {
					return nil
				}
				_, err := tx.Exec("INSERT OR REPLACE INTO lease_payload VALUES (99, ?)", make([]byte, 1<<20))
				return err
			},
			Committed: func(evs []lease.Event) {
				for _, ev := range evs {
					if ev.Kind == lease.JobFenced || ev.Kind == lease.JobSettled {
						told = append(told, ev.Job+" "+ev.Kind.String())
					}
				}
			},
		})
		limit := func(pages int) {
			err := db.Apply(t.Context(), func(tx *sqlite.Tx) error {
				var n int
				return tx.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(&n)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var all []lease.Lease
		for _, l := range []struct{ job, runner string }{{"stopped", "r1"}, {"first", "r1"}, {"second", "r1"}, {"others", "r2"}} {
			enqueue(t, q, job(l.job))
			held := take(t, q, plain(l.runner))
			start(t, q, held)
			all = append(all, held)
		}
		if settled, err := q.Cancel(t.Context(), "stopped", "a typo"); settled || err != nil {
			t.Fatalf("cancel: settled %v, %v", settled, err)
		}
		limit(1) // SQLite makes it the present size
		if err := q.Fence(t.Context(), "r1", "r2"); err == nil {
			t.Fatal("the disk took it")
		}
		for _, l := range all {
			if _, ok := lease.IsStale(q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded})); !ok {
				t.Errorf("the result of %s was taken", l.Job)
			}
			if answers, err := q.Renew(t.Context(), l.Runner, []lease.Ref{l.Ref}); err != nil || answers[0].Verdict != lease.Stale {
				t.Errorf("renewal of %s: %+v, %v", l.Job, answers, err)
			}
		}
		if len(told) > 0 {
			t.Errorf("told of %q, and nothing of it is on disk", told)
		}
		limit(1 << 30)
		time.Sleep(3 * time.Second) // the queue tries again by itself
		synctest.Wait()
		if want := []string{"stopped settled", "first fenced", "second fenced", "others fenced"}; !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	})
}
