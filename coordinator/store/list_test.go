package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

func TestListFilters(t *testing.T) {
	t.Parallel()
	s := open(t)
	yes, no := true, false
	mark := func(i int, change func(*protocol.Run)) *protocol.Run {
		r := newRun(i)
		change(r)
		return r
	}
	insert(t, s,
		mark(0, func(r *protocol.Run) { r.Status, r.Verdict = protocol.StatusSucceeded, &yes }),
		mark(1, func(r *protocol.Run) { r.Status, r.Verdict = protocol.StatusSucceeded, &no }),
		mark(2, func(r *protocol.Run) {
			r.Status, r.Failure = protocol.StatusFailed, &protocol.Failure{Class: protocol.ClassInfra}
		}),
		mark(3, func(r *protocol.Run) { r.Harness = protocol.HarnessRef{ID: "mine", Version: "1.0.0"} }),
		mark(4, func(r *protocol.Run) { r.Harness = protocol.HarnessRef{ID: "mine", Version: "2.0.0"} }),
		mark(5, func(r *protocol.Run) {
			r.Runtime, r.Provenance = "self", &protocol.Provenance{Runner: "rnr_1"}
		}),
		mark(6, func(r *protocol.Run) { r.Origin, r.Trigger = &protocol.Origin{Cause: "ci"}, "web" }),
		mark(7, func(r *protocol.Run) { r.Tenant = "other" }),
		mark(8, func(r *protocol.Run) { r.Class, r.Harness.ID = "batch", "bulk" }),
	)
	second := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }
	tests := []struct {
		name   string
		filter store.RunFilter
		want   []int
	}{
		{"class", store.RunFilter{Class: "batch"}, []int{8}},
		{"whole id", store.RunFilter{ID: newRun(3).ID}, []int{3}},
		{"beginning of ids", store.RunFilter{ID: "run_00000", Harness: "mine"}, []int{4, 3}},
		{"id of another workspace", store.RunFilter{ID: newRun(7).ID}, nil},
		{"id that is none", store.RunFilter{ID: "run_%"}, nil},
		{"all", store.RunFilter{}, []int{8, 6, 5, 4, 3, 2, 1, 0}},
		{"status", store.RunFilter{Status: protocol.StatusSucceeded}, []int{1, 0}},
		{"passed", store.RunFilter{Verdict: &yes}, []int{0}},
		{"did not pass", store.RunFilter{Verdict: &no}, []int{1}},
		{"failure class", store.RunFilter{FailureClass: protocol.ClassInfra}, []int{2}},
		{"harness", store.RunFilter{Harness: "mine"}, []int{4, 3}},
		{"harness and version", store.RunFilter{Harness: "mine@1.0.0"}, []int{3}},
		{"runtime", store.RunFilter{Runtime: "self"}, []int{5}},
		{"runner", store.RunFilter{Runner: "rnr_1"}, []int{5}},
		{"cause", store.RunFilter{Cause: "ci"}, []int{6}},
		{"trigger", store.RunFilter{Trigger: "web"}, []int{6}},
		{"since", store.RunFilter{Since: second(5)}, []int{8, 6, 5}},
		{"until", store.RunFilter{Until: second(2)}, []int{1, 0}},
		{"since and until", store.RunFilter{Since: second(2), Until: second(4)}, []int{3, 2}},
		{"since far ahead", store.RunFilter{Since: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil},
		{"until long ago", store.RunFilter{Until: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Hour)}, nil},
		{"two that meet", store.RunFilter{Status: protocol.StatusSucceeded, Verdict: &no}, []int{1}},
		{"two that do not meet", store.RunFilter{Status: protocol.StatusQueued, Verdict: &no}, nil},
		{"all at once", store.RunFilter{Status: protocol.StatusQueued, Cause: "ci", Trigger: "web", Runtime: "auto", Harness: "scripted@latest", Since: second(6)}, []int{6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.filter.Workspace = "default"
			want := []string{}
			for _, i := range tt.want {
				want = append(want, newRun(i).ID)
			}
			runs, next, err := s.Runs(t.Context(), tt.filter)
			if err != nil || next != "" {
				t.Fatalf("list %+v: next %q, error %v; want one page", tt.filter, next, err)
			}
			if diff := cmp.Diff(want, ids(runs)); diff != "" {
				t.Errorf("list %+v (-want +got):\n%s", tt.filter, diff)
			}
			tt.filter.Limit = 1
			if n, more, err := s.CountRuns(t.Context(), tt.filter); n != int64(len(want)) || more || err != nil {
				t.Errorf("count %+v: %d, more %t, %v; want %d", tt.filter, n, more, err, len(want))
			}
		})
	}
}

// Pages neither lose nor repeat a run, though new ones arrive in between.
func TestListPagesAreStable(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []string
	for i := range 23 {
		insert(t, s, newRun(i))
		want = append(want, newRun(i).ID)
	}
	slices.Reverse(want)
	for _, size := range []int{1, 7, 23, 100} {
		var got []string
		cursor := ""
		for page := 0; ; page++ {
			runs, next, err := s.Runs(t.Context(), store.RunFilter{Workspace: "default", Limit: size, Cursor: cursor, Until: start.Add(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids(runs)...)
			late := newRun(100)
			late.ID = fmt.Sprintf("run_late_%d_%d", size, page)
			insert(t, s, late)
			if cursor = next; next == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
}

func TestP15_BadCursorIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, cursor := range []string{"x", "AAAA", "AgAAAAAAAAAB", "Af__________", "run_000001", "AQAAAAAAAAABAA"} {
		_, _, err := s.Runs(t.Context(), store.RunFilter{Workspace: "default", Cursor: cursor})
		if !errors.Is(err, store.ErrBadCursor) {
			t.Errorf("cursor %q: error %v, want ErrBadCursor", cursor, err)
		}
	}
}

func fill(tb testing.TB, s *store.Store, n int) {
	tb.Helper()
	pass := true
	for from := 0; from < n; from += 10_000 {
		err := s.DB().Write(tb.Context(), func(tx *sqlite.Tx) error {
			for i := from; i < min(from+10_000, n); i++ {
				r := newRun(i)
				r.Status, r.Verdict = protocol.StatusSucceeded, &pass
				if i%100_000 == 7 {
					r.Harness.ID, r.Provenance = "rare", &protocol.Provenance{Runner: "rnr_rare"}
				}
				if err := s.InsertRun(tx, r, []byte("{}")); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkSummaryMillion reads what a summary needs of a workspace with a million runs.
func BenchmarkSummaryMillion(b *testing.B) {
	s := open(b)
	fill(b, s, 1_000_000)
	count := func(f store.RunFilter) func() error {
		f.Workspace = "default"
		return func() error { _, _, err := s.CountRuns(b.Context(), f); return err }
	}
	yes := true
	for name, do := range map[string]func() error{
		"outcomes":         func() error { _, err := s.Outcomes(b.Context(), "default", start); return err },
		"status":           func() error { _, err := s.CountStatus(b.Context(), "default", protocol.StatusQueued); return err },
		"count":            count(store.RunFilter{}),
		"count_of_several": count(store.RunFilter{Status: protocol.StatusSucceeded, Verdict: &yes, Runtime: "auto"}),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkListMillion lists a page out of a million runs by each kind of
// filter; the last is the worst for a planner that picks the wrong index.
func BenchmarkListMillion(b *testing.B) {
	s := open(b)
	fill(b, s, 1_000_000)
	yes := true
	for _, bm := range []struct {
		name   string
		filter store.RunFilter
	}{
		{"newest", store.RunFilter{}},
		{"status", store.RunFilter{Status: protocol.StatusSucceeded}},
		{"nothing_has_it", store.RunFilter{Status: protocol.StatusQueued}},
		{"deep_in_time", store.RunFilter{Until: start.Add(time.Hour)}},
		{"common_and_rare", store.RunFilter{Status: protocol.StatusSucceeded, Verdict: &yes, Runtime: "auto", Harness: "rare"}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			bm.filter.Workspace, bm.filter.Limit = "default", 50
			for b.Loop() {
				if _, _, err := s.Runs(b.Context(), bm.filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInsertRun is the cost of accepting a run inside a group commit.
func BenchmarkInsertRun(b *testing.B) {
	s := open(b)
	spec := make([]byte, 1000)
	i := 0
	for b.Loop() {
		err := s.DB().Write(b.Context(), func(tx *sqlite.Tx) error {
			for range 100 {
				if err := s.InsertRun(tx, newRun(i), spec); err != nil {
					return err
				}
				i++
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i), "ns/run")
}
