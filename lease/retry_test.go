package lease_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/lease"
)

// fail leases a job that must be there, starts it and gives it back as failed.
func fail(t *testing.T, q *lease.Queue, id, reason string) {
	t.Helper()
	l := take(t, q, plain("r"))
	if l.Job != id {
		t.Fatalf("leased %s, want %s", l.Job, id)
	}
	start(t, q, l)
	if d, err := q.Retry(t.Context(), l.Ref, reason); err != nil || d.State != lease.Queued {
		t.Fatalf("retry %s: %+v, %v", id, d, err)
	}
}

// wait pulls until there is a lease and says how long that took.
func wait(t *testing.T, q *lease.Queue) (lease.Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	l, err := q.Pull(ctx, lease.PullRequest{RequestID: "wait" + began.String(), Runner: plain("r")})
	if err != nil {
		t.Fatalf("pull: %v", err)
	}
	return l, time.Since(began)
}

// TestRetryWaitsLongerEachTime fails a job again and again, with a restart in the middle: a runner that waits all the time
// gets it after 1 s, 4 s, 16 s and then a minute, or half of it.
func TestRetryWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		c := begin(t, path, lease.Config{MaxAttempts: 100})
		enqueue(t, c.q, job("j"))
		for _, most := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second, time.Minute, time.Minute} {
			fail(t, c.q, "j", "the image could not be pulled")
			failed := time.Now()
			x, err := c.q.Explain(t.Context(), "j")
			want := "retries at " + x.RetryAt.Format(time.RFC3339) + " after: the image could not be pulled"
			if err != nil || x.Why != lease.WhyRetry || x.Sentence != want || x.State != lease.Queued {
				t.Errorf("explained as %+v, %v; want %q", x, err, want)
			}
			if s, err := c.q.Stats(t.Context()); err != nil || len(s.Counts) != 1 || s.Counts[0].Queued != 1 {
				t.Errorf("counted as %+v, %v; want one queued", s.Counts, err)
			}
			c.stop()
			c = begin(t, path, lease.Config{MaxAttempts: 100})
			l, _ := wait(t, c.q)
			if took := time.Since(failed); took < most/2 || took > most || l.Job != "j" {
				t.Errorf("leased %s after %v, want j after %v to %v", l.Job, took, most/2, most)
			}
			if _, err := c.q.GiveBack(t.Context(), l.Ref, lease.Return{Reason: "drain"}); err != nil {
				t.Fatal(err)
			}
			// An uncounted return is leased again at once: fail, at the top, takes it with no time to pass.
			if s := wantState(t, c.q, "j", lease.Queued, lease.OutcomeNone); s.Reason != "drain" {
				t.Errorf("reason %q, want drain", s.Reason)
			}
		}
	})
}

// TestRetryKeepsNobodyWaiting: while a job waits for its retry a younger one goes, is behind nobody, and the older one is
// first again when its time has come.
func TestRetryKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, filepath.Join(t.TempDir(), "x.db"), lease.Config{})
		enqueue(t, c.q, job("old"))
		fail(t, c.q, "old", "no space left")
		enqueue(t, c.q, job("young"), job("younger"))
		if x, err := c.q.Explain(t.Context(), "young"); err != nil || x.Why == lease.WhyBehind {
			t.Errorf("young: %+v, %v; want it behind nobody", x, err)
		}
		if l := take(t, c.q, plain("r")); l.Job != "young" {
			t.Errorf("leased %s, want young", l.Job)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l := take(t, c.q, plain("r")); l.Job != "old" {
			t.Errorf("leased %s, want old, whose turn it was", l.Job)
		}
	})
}

// TestRetryCanBeEnded: cancelled and parked at any time while it waits, and unschedulable at its own deadline, not later.
func TestRetryCanBeEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, filepath.Join(t.TempDir(), "x.db"), lease.Config{RetryDelay: 40 * time.Second})
		for _, id := range []string{"cancelled", "parked", "late"} {
			j := job(id)
			if id == "late" {
				j.QueueDeadline = 10 * time.Second
			}
			enqueue(t, c.q, j)
			fail(t, c.q, id, "broken")
		}
		if settled, err := c.q.Cancel(t.Context(), "cancelled", "not needed"); err != nil || !settled {
			t.Errorf("cancel: settled %t, %v", settled, err)
		}
		wantState(t, c.q, "cancelled", lease.Settled, lease.Cancelled)

		if err := c.q.Park(t.Context(), "parked", "look at it"); err != nil {
			t.Errorf("park: %v", err)
		}
		if err := c.q.Resume(t.Context(), "parked"); err != nil {
			t.Errorf("resume: %v", err)
		}
		if l := take(t, c.q, plain("r")); l.Job != "parked" {
			t.Errorf("leased %s, want the job that was resumed", l.Job)
		}

		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantState(t, c.q, "late", lease.Settled, lease.Unschedulable)
		var state *lease.StateError
		if err := c.q.Park(t.Context(), "late", "too late"); !errors.As(err, &state) {
			t.Errorf("parking a settled job: %v", err)
		}
	})
}

// TestRetryDelayCanBeNone: a negative delay leases a failed job again at once.
func TestRetryDelayCanBeNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, filepath.Join(t.TempDir(), "x.db"), lease.Config{RetryDelay: -1})
		enqueue(t, c.q, job("j"))
		fail(t, c.q, "j", "broken")
		l, took := wait(t, c.q)
		if took != 0 {
			t.Errorf("leased after %v, want at once", took)
		}
		x, err := c.q.Explain(t.Context(), "j")
		if err != nil || x.Why != lease.WhyStarting || !strings.HasPrefix(x.Sentence, "leased to runner "+l.Runner) {
			t.Errorf("explained as %+v, %v", x, err)
		}
	})
}
