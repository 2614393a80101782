package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/everdict/everdict/lease"
)

// TestPullFuncAnswersOnce ends the wait of a pull in each way: there is one answer, the right one, and none follows from
// what happens later.
func TestPullFuncAnswersOnce(t *testing.T) {
	t.Parallel()
	type stage struct {
		q      *lease.Queue
		cancel context.CancelFunc // of the pull
		close  func()             // of the queue
	}
	again := lease.PullRequest{RequestID: "r", Runner: plain("a")}
	tests := []struct {
		name string
		end  func(*testing.T, stage)
		want error // nil: a lease
	}{
		{"a job comes", func(t *testing.T, s stage) { enqueue(t, s.q, job("j")) }, nil},
		{"its context ends", func(_ *testing.T, s stage) { s.cancel() }, context.Canceled},
		{"asked again", func(t *testing.T, s stage) {
			if err := s.q.PullFunc(t.Context(), again, func(lease.Lease, error) {}); err != nil {
				t.Errorf("pull again: %v", err)
			}
		}, lease.ErrSuperseded},
		{"the queue closes", func(_ *testing.T, s stage) { s.close() }, lease.ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := openDB(t)
				q, err := lease.Open(t.Context(), db, lease.Config{})
				if err != nil {
					t.Fatal(err)
				}
				run, stop := context.WithCancel(t.Context())
				over := make(chan error, 1)
				go func() { over <- q.Run(run) }()
				ctx, cancel := context.WithCancel(t.Context())
				s := stage{q: q, cancel: cancel, close: func() {
					stop()
					if err := <-over; err != nil {
						t.Errorf("run: %v", err)
					}
					over <- nil
				}}

				var answers []error
				if err := q.PullFunc(ctx, again, func(_ lease.Lease, err error) { answers = append(answers, err) }); err != nil {
					t.Fatalf("pull: %v", err)
				}
				synctest.Wait()
				if len(answers) > 0 {
					t.Fatalf("answered %v before anything happened", answers)
				}
				tt.end(t, s)
				synctest.Wait()
				cancel()
				s.close()
				synctest.Wait()
				if len(answers) != 1 || !errors.Is(answers[0], tt.want) {
					t.Errorf("answers %v, want one: %v", answers, tt.want)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestRepeatedPullSaysWhatIsNew: a pull waits, and comes again with more capabilities. The job that needs them is leased to
// it at once.
func TestRepeatedPullSaysWhatIsNew(t *testing.T) {
	t.Parallel()
	q := openQueue(t, openDB(t), lease.Config{})
	j := job("j")
	j.Requirements.Capabilities = []string{"gpu"}
	enqueue(t, q, j)
	answers := make(chan error, 2)
	pull := func(r lease.Runner) {
		t.Helper()
		err := q.PullFunc(t.Context(), lease.PullRequest{RequestID: "one", Runner: r}, func(_ lease.Lease, err error) { answers <- err })
		if err != nil {
			t.Fatalf("pull: %v", err)
		}
	}
	r := plain("r1")
	pull(r)
	r.Capabilities = append(r.Capabilities, "gpu")
	pull(r)
	wantState(t, q, "j", lease.Leased, lease.OutcomeNone)
	if err := <-answers; !errors.Is(err, lease.ErrSuperseded) {
		t.Errorf("the first pull: %v, want ErrSuperseded", err)
	}
	if err := <-answers; err != nil {
		t.Errorf("the pull that came again: %v", err)
	}
}
