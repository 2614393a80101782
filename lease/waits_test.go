package lease_test

import (
	"testing"

	"github.com/everdict/everdict/lease"
)

// Waits has one entry per kind of waiting job of the workspace that is asked for.
func TestWaits(t *testing.T) {
	t.Parallel()
	q := openQueue(t, openDB(t), lease.Config{})
	jobs := []lease.Job{
		{ID: "j1", Workspace: "w", Pool: "w/self"}, {ID: "j2", Workspace: "w", Pool: "w/self"},
		{ID: "j3", Workspace: "w", Pool: "w/gpu"}, {ID: "j4", Workspace: "w", Pool: "w/gpu", Parked: "ask"},
		{ID: "j5", Workspace: "other", Pool: "w/self"},
	}
	for _, j := range jobs {
		if err := q.Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	waits, err := q.Waits(t.Context(), "w", 10)
	if err != nil || len(waits) != 3 {
		t.Fatalf("waits %+v, %v; want three kinds", waits, err)
	}
	if w := waits[0]; w.Count != 2 || w.Pool != "w/self" || w.First.Job != "j1" || w.First.Why != lease.WhyNoRunner || w.Since.IsZero() {
		t.Errorf("the most: %+v, want both of w/self, explained by the first", w)
	}
	why := map[lease.Why]int{}
	for _, w := range waits[1:] {
		why[w.First.Why] += w.Count
	}
	if why[lease.WhyParked] != 1 || why[lease.WhyNoRunner] != 1 {
		t.Errorf("the others: %+v", waits[1:])
	}
	if few, err := q.Waits(t.Context(), "w", 1); err != nil || len(few) == 0 || len(few) > 2 {
		t.Errorf("of one lane: %+v, %v", few, err)
	}
}
