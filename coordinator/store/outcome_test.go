package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

// Each run is counted once, in the hour in which it ended, and what a run did not know
// is in no sum.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := open(t)
	yes, no, usd, tokens := true, false, 0.25, int64(100)
	ends := []struct {
		after time.Duration
		end   func(*protocol.Run)
	}{
		{0, func(r *protocol.Run) {
			r.Status, r.Verdict, r.Usage = protocol.StatusSucceeded, &yes, &protocol.Usage{USD: &usd, TotalTokens: &tokens}
		}},
		{time.Minute, func(r *protocol.Run) {
			r.Status, r.Verdict, r.Usage = protocol.StatusSucceeded, &yes, &protocol.Usage{USD: &usd}
		}},
		{time.Minute, func(r *protocol.Run) { r.Status, r.Verdict = protocol.StatusSucceeded, &no }},
		{time.Minute, func(r *protocol.Run) { r.Status = protocol.StatusSucceeded }},
		{time.Hour, func(r *protocol.Run) {
			r.Status, r.Failure = protocol.StatusFailed, &protocol.Failure{Class: protocol.ClassAgent}
		}},
		{time.Hour, func(r *protocol.Run) {
			r.Status, r.Error = protocol.StatusFailed, &protocol.RunError{Code: protocol.CodeCancelled}
			r.Failure = &protocol.Failure{Class: protocol.ClassInfra}
		}},
		{time.Hour, func(r *protocol.Run) { r.Status = protocol.StatusRunning }},
	}
	for i, end := range ends {
		insert(t, s, newRun(i))
		for range 2 { // a second change of a run that is over does not count
			update(t, s, newRun(i).ID, func(r *protocol.Run) error {
				end.end(r)
				r.UpdatedAt = protocol.At(start.Add(end.after))
				return nil
			})
		}
	}
	got, err := s.Outcomes(t.Context(), "default", start)
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) *protocol.Time { x := protocol.At(start.Add(d)); return &x }
	sum := 0.5
	want := []protocol.Outcomes{
		{At: at(0), Runs: 4, Passed: 2, Failed: 1, Ungraded: 1, Failures: map[string]int64{}, USD: &sum, USDRuns: 2, Tokens: &tokens, TokensRuns: 1},
		{At: at(time.Hour), Runs: 2, Cancelled: 1, Failures: map[string]int64{"agent": 1}},
	}
	same := cmp.Comparer(func(a, b protocol.Time) bool { return a.Equal(b.Time) })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if later, err := s.Outcomes(t.Context(), "default", start.Add(time.Hour)); err != nil || len(later) != 1 {
		t.Errorf("of the second hour: %+v, %v; want one", later, err)
	}
	if others, err := s.Outcomes(t.Context(), "other", start); err != nil || len(others) != 0 {
		t.Errorf("of another workspace: %+v, %v; want none", others, err)
	}
	if n, err := s.CountStatus(t.Context(), "default", protocol.StatusRunning); n != 1 || err != nil {
		t.Errorf("running: %d, %v; want 1", n, err)
	}
	// 32 days on, the hours of the beginning are gone.
	insert(t, s, newRun(50))
	update(t, s, newRun(50).ID, func(r *protocol.Run) error {
		r.Status, r.UpdatedAt = protocol.StatusSucceeded, protocol.At(start.Add(32*24*time.Hour))
		return nil
	})
	if all, err := s.Outcomes(t.Context(), "default", start); err != nil || len(all) != 1 {
		t.Errorf("a month later: %+v, %v; want the last hour alone", all, err)
	}
}
