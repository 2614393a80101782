package run

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// A run that is over can be submitted once more, as a run of its own that says so.
func TestAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix+mac.Runner.ID, func(r *protocol.RunRequest) {
			r.Priority, r.Trigger, r.Case.TimeoutSec = protocol.ClassBatch, "nightly", 77
		}))
		if _, err := w.s.Again(t.Context(), ann, id); code(err) != protocol.CodeConflict {
			t.Errorf("while it waits: %v, want a 409", err)
		}
		if _, err := w.s.Cancel(t.Context(), ann, id); err != nil {
			t.Fatal(err)
		}
		next, err := w.s.Again(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.s.Get(t.Context(), ann, next.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID == id || got.Status != protocol.StatusQueued || got.Class != protocol.ClassBatch || got.Trigger != "nightly" || got.CaseSpec.TimeoutSec != 77 ||
			got.Origin.Cause != "run" || got.Origin.CausedByRunID != id || got.Runtime != protocol.TargetSelfPrefix+mac.Runner.ID {
			t.Errorf("the new run: %s", dump(got))
		}
		if w.record(id).Status != protocol.StatusFailed {
			t.Error("the old run has changed")
		}
		if _, err := w.s.Again(t.Context(), auth.Principal{Subject: "eve", Workspace: "other"}, id); code(err) != protocol.CodeNotFound {
			t.Errorf("from another workspace: %v, want a 404", err)
		}
	})
}

// TestP15_LargeParams: what a list shows of a run is small; the run itself, and one that
// repeats it, have the params that were submitted.
func TestP15_LargeParams(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		script := strings.Repeat("say hello\n", 1000)
		run, err := w.s.Submit(t.Context(), ann, request(protocol.TargetSelfPrefix+mac.Runner.ID, func(r *protocol.RunRequest) {
			r.Harness.Params = map[string]string{"script": script}
		}))
		if err != nil || run.Harness.Params["script"] != script {
			t.Fatalf("submitted: %v, params of %d bytes", err, len(dump(run.Harness.Params)))
		}
		if _, err := w.s.Cancel(t.Context(), ann, run.ID); err != nil {
			t.Fatal(err)
		}
		next, err := w.s.Again(t.Context(), ann, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		runs, _, err := w.s.List(t.Context(), ann, store.RunFilter{})
		if err != nil || len(runs) != 2 || len(dump(runs)) > 2*recordParams {
			t.Errorf("%d rows of a list, %v, are %d bytes", len(runs), err, len(dump(runs)))
		}
		for _, id := range []string{run.ID, next.ID} {
			if r, err := w.s.Get(t.Context(), ann, id); err != nil || r.Harness.Params["script"] != script {
				t.Errorf("%s has params of %d bytes, %v; want what was submitted", id, len(dump(r.Harness.Params)), err)
			}
		}
	})
}

func TestSummary(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		gone := w.pair("ann", "gone")
		l := func() {
			w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
			lease := w.begin(mac)
			w.finish(mac, lease.Ref, passed(true))
		}
		l()
		first := w.submit(request(protocol.TargetSelfPrefix + gone.Runner.ID))
		w.submit(request(protocol.TargetSelfPrefix + gone.Runner.ID))
		w.submit(request(protocol.TargetSelf, beforeStart))
		cancelled := w.submit(request(protocol.TargetSelf, beforeStart))
		if _, err := w.s.Cancel(t.Context(), ann, cancelled); err != nil {
			t.Fatal(err)
		}
		w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		w.begin(mac)
		sum, err := w.s.Summary(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Runs != (protocol.OpenRuns{Queued: 2, Running: 1, Suspended: 1}) {
			t.Errorf("open runs %+v", sum.Runs)
		}
		if sum.Runners.Total != 2 || sum.Runners.Online != 0 {
			t.Errorf("runners %+v", sum.Runners)
		}
		if len(sum.Waiting) != 2 || sum.Waiting[0].Count != 2 || sum.Waiting[0].Why != "no_runner" || sum.Waiting[0].RunID != first || sum.Waiting[0].Since == nil ||
			!strings.Contains(sum.Waiting[0].Reason, "(gone) is not connected") || sum.Waiting[1].Why != "parked" || sum.Waiting[1].Count != 1 {
			t.Errorf("waiting %s", dump(sum.Waiting))
		}
		if len(sum.Hours) != 25 || sum.Day.Runs != 2 || sum.Day.Passed != 1 || sum.Day.Cancelled != 1 || sum.Hours[24].Runs != 2 || sum.Day.USD != nil {
			t.Errorf("outcomes: day %s, %d hours", dump(sum.Day), len(sum.Hours))
		}
		other, err := w.s.Summary(t.Context(), auth.Principal{Subject: "eve", Workspace: "other"})
		if err != nil || other.Runs != (protocol.OpenRuns{}) || len(other.Waiting) != 0 || other.Day.Runs != 0 || other.Runners.Total != 0 {
			t.Errorf("another workspace: %s, %v; want nothing", dump(other), err)
		}
	})
}

// The lane of a run's life says what happens to it, and why it waits.
func TestLiveLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		ctx, _ := cancelled(w)
		events, err := w.s.Live(ctx, ann, id, protocol.LiveQuery{Lanes: []string{protocol.LaneLife}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		go func() {
			for e := range events {
				if e.Kind != protocol.LiveLife {
					got = append(got, e.Kind)
					continue
				}
				line := string(e.Run.Status)
				for _, step := range e.Steps {
					line += " " + step.Kind
				}
				if e.Run.Placement.BlockedReason != "" {
					line += ": " + e.Run.Placement.BlockedReason[:20]
				}
				got = append(got, line)
			}
			got = append(got, "closed")
		}()
		synctest.Wait()
		if want := "status|queued submitted: runner rnr_"; !strings.HasPrefix(strings.Join(got, "|"), want) {
			t.Errorf("at first: %q, want %q", got, want)
		}
		n := len(got)
		// That the runner came changes nothing of the run but why it waits.
		if err := w.q.SetRunner(t.Context(), w.leaseRunner(mac)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(explainEvery + time.Second)
		synctest.Wait()
		if len(got) != n+1 || !strings.HasPrefix(got[n], "queued: ") || got[n] == got[n-1] {
			t.Errorf("with the runner there: %q, want another reason", got[n:])
		}
		l := w.begin(mac)
		synctest.Wait()
		w.finish(mac, l.Ref, passed(true))
		synctest.Wait()
		all := strings.Join(got, "|")
		contains(t, "the lane", all, "leased", "started", "succeeded settled|status|end|closed")
	})
}

// A log is paged from both ends in whole lines, and what is read forward is the whole.
func TestLogPages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		var whole strings.Builder
		for i := range 400 {
			line := fmt.Sprintf("line %d é世界\n", i)
			whole.WriteString(line)
			w.log(l.Ref, line)
		}
		long := strings.Repeat("世", 1000)
		whole.WriteString(long)
		w.log(l.Ref, long)
		page := func(q protocol.LogQuery) (string, protocol.LogView) {
			t.Helper()
			body, view, err := w.s.Logs(t.Context(), ann, id, q)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			if err := body.Close(); err != nil {
				t.Fatal(err)
			}
			if int64(len(text)) != view.Next-view.Offset {
				t.Errorf("page %+v: %d bytes of [%d,%d)", q, len(text), view.Offset, view.Next)
			}
			return string(text), view
		}
		var forward, backward string
		for at := int64(0); at < int64(whole.Len()); {
			text, view := page(protocol.LogQuery{Offset: at, Limit: 1000})
			if view.Offset != at || view.Next <= at || !view.Found || view.Attempt != 1 || view.Bytes != int64(whole.Len()) {
				t.Fatalf("page at %d: %+v", at, view)
			}
			if !strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, "世") {
				t.Errorf("page at %d ends in a character: %q", at, text[len(text)-4:])
			}
			forward, at = forward+text, view.Next
		}
		for at := int64(whole.Len()); at > 0; {
			text, view := page(protocol.LogQuery{Before: at, Limit: 1000})
			if view.Next != at || view.Offset >= at {
				t.Fatalf("page before %d: %+v", at, view)
			}
			if !strings.HasPrefix(text, "line ") && !strings.HasPrefix(text, "世") {
				t.Errorf("page before %d begins in a character: %q", at, text[:4])
			}
			backward, at = text+backward, view.Offset
		}
		if forward != whole.String() || backward != whole.String() {
			t.Errorf("read forward %d and backward %d bytes, want the %d there are", len(forward), len(backward), whole.Len())
		}
		if _, view := page(protocol.LogQuery{Offset: 1 << 40, Limit: 10}); view.Offset != view.Bytes || view.Next != view.Bytes {
			t.Errorf("behind the end: %+v", view)
		}
		text, view := page(protocol.LogQuery{Tail: 100, Limit: 100})
		if !strings.HasSuffix(whole.String(), text) || view.Next != view.Bytes {
			t.Errorf("the end: %+v %q", view, text)
		}
	})
}

func TestSearchLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		none, err := w.s.SearchLog(t.Context(), ann, id, protocol.LogSearch{Text: "x", Limit: 10})
		if err != nil || !none.Done || len(none.Matches) != 0 {
			t.Errorf("before there is a log: %+v, %v", none, err)
		}
		l := w.begin(mac)
		long := strings.Repeat("a", 2000) + "NEEDLE" + strings.Repeat("b", 2000)
		log := "first Needle\nsecond\n\x1b[31mnee\x1b[0mdle in red\nÉtat: needle\n" + long + "\nlast needle"
		for i := 0; i < len(log); i += 7 { // lines come in pieces
			w.log(l.Ref, log[i:min(len(log), i+7)])
		}
		search := func(q protocol.LogSearch) protocol.LogMatches {
			t.Helper()
			q.Limit = max(q.Limit, 1)
			got, err := w.s.SearchLog(t.Context(), ann, id, q)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		all := search(protocol.LogSearch{Text: "NeedlE", Limit: 100})
		if len(all.Matches) != 5 || !all.Done || all.Next != int64(len(log)) || all.Bytes != int64(len(log)) {
			t.Fatalf("all: %s", dump(all))
		}
		for i, begin := range []string{"first Needle", "\x1b[31mnee", "État", "aaa", "last needle"} {
			m := all.Matches[i]
			if !strings.HasPrefix(log[m.Offset:], begin) {
				t.Errorf("match %d is at %q, want %q", i, log[m.Offset:][:8], begin)
			}
			if got := string([]rune(m.Text)[m.Column : m.Column+6]); !strings.EqualFold(got, "needle") {
				t.Errorf("match %d, column %d: %q in %q", i, m.Column, got, m.Text)
			}
			if strings.ContainsRune(m.Text, 0x1b) || len([]rune(m.Text)) > searchShown {
				t.Errorf("match %d shows %q", i, m.Text)
			}
		}
		if exact := search(protocol.LogSearch{Text: "Needle", Case: true, Limit: 100}); len(exact.Matches) != 1 {
			t.Errorf("with case: %s", dump(exact))
		}
		var found int
		for at, rounds := int64(0), 0; ; rounds++ {
			part := search(protocol.LogSearch{Text: "needle", Offset: at})
			found += len(part.Matches)
			if part.Done || rounds > 20 {
				break
			}
			at = part.Next
		}
		if found != 5 {
			t.Errorf("one at a time: %d matches, want 5", found)
		}
	})
}
