package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestAQuestionDoesNotUseUpTheDeadline: what an attempt waits for a person is no part of
// what it may take, and what it runs is.
func TestAQuestionDoesNotUseUpTheDeadline(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{Deadline: 3 * time.Hour}, "run_a")
		w.taken("run_a")
		w.pass(time.Hour)
		w.move("run_a", func(j *job) { j.asks = true })
		w.pass(3 * 24 * time.Hour)
		if got := w.told(&w.ended); len(got) != 0 || len(w.units()) != 1 {
			t.Fatalf("after days of waiting: ended %+v, units %v; want it to wait", got, w.units())
		}
		w.move("run_a", func(j *job) { j.asks = false })
		w.pass(110 * time.Minute)
		if got := w.told(&w.ended); len(got) != 0 {
			t.Fatalf("within its time it was ended: %+v", got)
		}
		w.pass(15 * time.Minute)
		got := w.told(&w.ended)
		if len(got) != 1 || got[0].Reason != protocol.ReasonTimeout || got[0].Retryable || !strings.Contains(got[0].Message, "its deadline is 3h0m0s") || got[0].Limit.Configured != 3*60*60 {
			t.Fatalf("ended %+v, want once, as a timeout at its deadline", got)
		}
		w.pass(time.Minute)
		if units := w.units(); len(units) != 0 {
			t.Errorf("units %v are left", units)
		}
	})
}

// TestADeadlineIsNotMetUnseen: what a coordinator did not see is not held against an
// attempt, which may have waited.
func TestADeadlineIsNotMetUnseen(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{Deadline: 3 * time.Hour}, "run_a")
		w.taken("run_a")
		w.pass(time.Hour)
		w.stop()
		w.pass(24 * time.Hour)
		w.begin()
		w.pass(2 * time.Hour)
		if got := w.told(&w.ended); len(got) != 0 {
			t.Fatalf("it was ended: %+v", got)
		}
		w.pass(2 * time.Hour)
		if got := w.told(&w.ended); len(got) != 1 || got[0].Reason != protocol.ReasonTimeout {
			t.Errorf("ended %+v, want it ended at last", got)
		}
	})
}
