package run

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// line is a trace event that can be told from others.
func line(name string) string { return fmt.Sprintf(`{"kind":"message","t":1,"name":%q}`, name) + "\n" }

func nameOf(events []protocol.TraceEvent) string {
	var all []string
	for _, e := range events {
		if e.Name == "" {
			e.Name = e.Message
		}
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// TestP11_Logs: the parts of a log that can be asked for, before, while and after it
// is written.
func TestP11_Logs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		read := func(q protocol.LogQuery) (string, protocol.LogView) {
			t.Helper()
			body, view, err := w.s.Logs(t.Context(), ann, id, q)
			if err != nil {
				t.Fatalf("logs %+v: %v", q, err)
			}
			if body == nil {
				return "", view
			}
			b, err := io.ReadAll(body)
			if err != nil {
				t.Fatalf("read logs %+v: %v", q, err)
			}
			if err := body.Close(); err != nil {
				t.Fatal(err)
			}
			return string(b), view
		}
		if text, view := read(protocol.LogQuery{}); text != "" || view.Found || view.Status != protocol.StatusQueued {
			t.Errorf("before it is taken: %q, %+v", text, view)
		}
		l := w.begin(mac)
		if text, view := read(protocol.LogQuery{}); text != "" || !view.Found || view.Status != protocol.StatusRunning {
			t.Errorf("before the first byte: %q, %+v", text, view)
		}
		w.append(l.Ref, protocol.ChannelLog, "out1\nerr1\nout2\n")
		w.append(l.Ref, protocol.ChannelLogIndex, `{"o":0,"n":5,"s":"stdout"}`+"\n"+`{"o":5,"n":5,"s":"stderr"}`+"\n"+`{"o":10,"n":5,"s":"stdout"}`+"\n")
		check := func(when string) {
			t.Helper()
			for _, row := range []struct {
				q    protocol.LogQuery
				want string
			}{
				{protocol.LogQuery{}, "out1\nerr1\nout2\n"},
				{protocol.LogQuery{Stream: protocol.StreamStdout}, "out1\nout2\n"},
				{protocol.LogQuery{Stream: protocol.StreamStderr}, "err1\n"},
				{protocol.LogQuery{Offset: 5}, "err1\nout2\n"},
				{protocol.LogQuery{Offset: 12}, "t2\n"},
				{protocol.LogQuery{Offset: 15}, ""},
				{protocol.LogQuery{Offset: 1 << 40}, ""},
				{protocol.LogQuery{Tail: 5}, "out2\n"},
				{protocol.LogQuery{Tail: 1 << 40}, "out1\nerr1\nout2\n"},
				{protocol.LogQuery{Offset: 12, Tail: 5}, "t2\n"},
				{protocol.LogQuery{Offset: 2, Tail: 5}, "out2\n"},
			} {
				if text, view := read(row.q); text != row.want || !view.Found || view.Bytes != 15 {
					t.Errorf("%s, %+v: %q, %+v; want %q", when, row.q, text, view, row.want)
				}
			}
		}
		check("while it runs")
		w.finish(mac, l.Ref, passed(true))
		check("when it is over")
		// Who stops reading leaves nothing behind: the bubble ends with all goroutines.
		body, _, err := w.s.Logs(t.Context(), ann, id, protocol.LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestP11_TracePages: pages of every size hold each event once and in order, while
// the trace grows and when it is complete, and a cursor of an attempt that was
// superseded goes on with the first event of the one that took its place.
func TestP11_TracePages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		page := func(cursor string, limit int) protocol.TracePage {
			t.Helper()
			p, err := w.s.Trace(t.Context(), ann, id, protocol.TraceQuery{Cursor: cursor, Limit: limit})
			if err != nil {
				t.Fatalf("trace from %q: %v", cursor, err)
			}
			if len(p.Events) > limit || p.Events == nil {
				t.Fatalf("trace from %q: %d events (nil: %v), the limit was %d", cursor, len(p.Events), p.Events == nil, limit)
			}
			return p
		}
		if p := page("", 10); len(p.Events) != 0 || p.Total != 0 || p.Status != protocol.StatusQueued {
			t.Errorf("before it is taken: %+v", p)
		}
		l := w.begin(mac)
		first := page("", 10)
		if len(first.Events) != 0 || first.Next == "" {
			t.Errorf("before the first event: %+v", first)
		}
		for i := range 7 {
			w.append(l.Ref, protocol.ChannelTrace, line(fmt.Sprint("a", i)))
		}
		w.append(l.Ref, protocol.ChannelTrace, `{"kind":"message"`) // more of it comes
		all := func(limit int) (got string, last protocol.TracePage) {
			cursor := ""
			for {
				last = page(cursor, limit)
				if len(last.Events) > 0 {
					got += nameOf(last.Events) + " "
				}
				if last.Next == "" || last.Next == cursor {
					return strings.TrimSpace(got), last
				}
				cursor = last.Next
			}
		}
		const seven = "a0 a1 a2 a3 a4 a5 a6"
		for _, limit := range []int{1, 2, 3, 7, 8, 1000} {
			got, last := all(limit)
			if got != seven || last.Next == "" || last.SealedAt != nil {
				t.Errorf("pages of %d while it runs: %q, the last %+v", limit, got, last)
			}
		}
		if got := page(first.Next, 1000); nameOf(got.Events) != seven || got.Total != 7 {
			t.Errorf("from where there was nothing: %q of %d", nameOf(got.Events), got.Total)
		}
		middle := page("", 3)
		for _, bad := range []string{"x", "-1", "1", "1-", "1--5", "1-5x", "-1-5", "1-99999999999999999999", " 1-5"} {
			if _, err := w.s.Trace(t.Context(), ann, id, protocol.TraceQuery{Cursor: bad, Limit: 10}); code(err) != protocol.CodeBadRequest {
				t.Errorf("cursor %q: %v, want BAD_REQUEST", bad, err)
			}
		}

		time.Sleep(61 * time.Second)
		if got := page(middle.Next, 2); nameOf(got.Events) != "a3 a4" {
			t.Errorf("between the attempts, from the middle: %q", nameOf(got.Events))
		}
		l = w.begin(mac)
		w.append(l.Ref, protocol.ChannelTrace, line("b0")+line("b1"))
		if got := page(middle.Next, 1); nameOf(got.Events) != "b0" {
			t.Errorf("with a cursor of the superseded attempt: %q, want b0", nameOf(got.Events))
		}
		w.append(l.Ref, protocol.ChannelTrace, "no event\n"+line("b2")+`{"kind":"message","name":"cut"`)
		w.finish(mac, l.Ref, passed(true))
		for _, limit := range []int{1, 2, 4, 5, 1000} {
			got, last := all(limit)
			names := strings.Fields(got)
			if !strings.HasPrefix(got, "b0 b1 [trace] ") || len(names) < 4 || last.Next != "" || last.SealedAt == nil {
				t.Errorf("pages of %d when it is over: %q, the last %+v", limit, got, last)
			}
		}
	})
}

// TestP2_EvidenceOfEveryAttempt: what a superseded attempt left, also what came after
// it was superseded, is read by its number, and is not what the run shows.
func TestP2_EvidenceOfEveryAttempt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		read := func(attempt int64) string {
			t.Helper()
			var said []string
			body, view, err := w.s.Logs(t.Context(), ann, id, protocol.LogQuery{Attempt: attempt})
			said = append(said, textOf(t, body, err), fmt.Sprint(view.Attempt))
			found, err := w.s.SearchLog(t.Context(), ann, id, protocol.LogSearch{Attempt: attempt, Text: "log", Limit: 10})
			if err != nil || len(found.Matches) != 1 {
				t.Errorf("search of attempt %d: %+v, %v", attempt, found, err)
			}
			trace, err := w.s.Trace(t.Context(), ann, id, protocol.TraceQuery{Attempt: attempt, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, nameOf(trace.Events))
			if trace.Next != "" {
				trace, err = w.s.Trace(t.Context(), ann, id, protocol.TraceQuery{Attempt: attempt, Cursor: trace.Next, Limit: 10})
				said = append(said, nameOf(trace.Events), fmt.Sprint(err))
			}
			diff, err := w.s.Diff(t.Context(), ann, id, attempt)
			return strings.Join(append(said, textOf(t, diff, err)), "|")
		}
		leave := func(l lease.Lease, name string) {
			w.append(l.Ref, protocol.ChannelLog, name+" log\n")
			w.append(l.Ref, protocol.ChannelTrace, line(name+"0")+line(name+"1"))
			w.append(l.Ref, protocol.ChannelDiff, "diff of "+name+"\n")
		}
		first := w.begin(mac)
		leave(first, "a")
		time.Sleep(61 * time.Second)
		second := w.begin(mac)
		leave(second, "b")
		const ofA, ofB = "a log\n|1|a0|a1|<nil>|", "b log\n|2|b0|b1|<nil>|"
		for _, row := range []struct {
			when string
			do   func()
			a, b string
		}{
			{"while the second runs", func() {}, ofA + "NOT_FOUND", ofB + "NOT_FOUND"},
			{"when the first has come late", func() { w.finish(mac, first.Ref, passed(false)) }, ofA + "diff of a\n", ofB + "NOT_FOUND"},
			{"when it is over", func() { w.finish(mac, second.Ref, passed(true)) }, ofA + "diff of a\n", ofB + "diff of b\n"},
		} {
			row.do()
			for attempt, want := range []string{row.b, row.a, row.b} {
				if got := read(int64(attempt)); got != want {
					t.Errorf("%s, attempt %d: %q, want %q", row.when, attempt, got, want)
				}
			}
		}
		_, _, logs := w.s.Logs(t.Context(), ann, id, protocol.LogQuery{Attempt: 3})
		_, search := w.s.SearchLog(t.Context(), ann, id, protocol.LogSearch{Attempt: 3, Text: "x", Limit: 1})
		_, trace := w.s.Trace(t.Context(), ann, id, protocol.TraceQuery{Attempt: 3, Limit: 1})
		_, diff := w.s.Diff(t.Context(), ann, id, 3)
		for of, err := range map[string]error{"log": logs, "search": search, "trace": trace, "diff": diff} {
			if code(err) != protocol.CodeNotFound || !strings.Contains(err.Error(), "no attempt 3: the newest is 2") {
				t.Errorf("%s of an attempt that there was not: %v", of, err)
			}
		}
	})
}

// textOf is what is read from a body, or the code of why there is none.
func textOf(t *testing.T, body io.ReadCloser, err error) string {
	t.Helper()
	if err != nil {
		return string(code(err))
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestP10_DiffIsWholeOrNone: a diff is shown when all of it has come; before that
// there is none, and never an empty one for one that is missing.
func TestP10_DiffIsWholeOrNone(t *testing.T) {
	t.Parallel()
	const diff = "diff --git a/ok.txt b/ok.txt\n"
	repo := func() *protocol.CaseResult {
		r := passed(true)
		r.Snapshot = protocol.Snapshot{Kind: protocol.EnvRepo}
		return r
	}
	for name, row := range map[string]struct {
		do   func(w *world, h Holder, l lease.Lease)
		want string
		none bool
	}{
		"running, none yet":   {do: func(w *world, h Holder, l lease.Lease) {}, none: true},
		"running, on its way": {do: func(w *world, h Holder, l lease.Lease) { w.append(l.Ref, protocol.ChannelDiff, diff[:9]) }, none: true},
		"lost while it was coming": {do: func(w *world, h Holder, l lease.Lease) {
			w.append(l.Ref, protocol.ChannelDiff, diff[:9])
			time.Sleep(61 * time.Second)
		}, none: true},
		"done": {do: func(w *world, h Holder, l lease.Lease) {
			w.append(l.Ref, protocol.ChannelDiff, diff)
			w.finish(h, l.Ref, repo())
		}, want: diff},
		"done, nothing changed": {do: func(w *world, h Holder, l lease.Lease) { w.finish(h, l.Ref, repo()) }},
		"done, no repository":   {do: func(w *world, h Holder, l lease.Lease) { w.finish(h, l.Ref, passed(true)) }, none: true},
		"failed, with a diff": {do: func(w *world, h Holder, l lease.Lease) {
			w.append(l.Ref, protocol.ChannelDiff, diff)
			r := broke(protocol.ClassHarness, protocol.ReasonTimeout, false)
			r.Snapshot = protocol.Snapshot{Kind: protocol.EnvRepo}
			w.finish(h, l.Ref, r)
		}, want: diff},
		"cancelled before it was taken": {none: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				if row.do != nil {
					row.do(w, mac, w.begin(mac))
				} else {
					w.cancel(id)
				}
				body, err := w.s.Diff(t.Context(), ann, id, 0)
				if row.none {
					if code(err) != protocol.CodeNotFound {
						t.Errorf("diff: %v, %v; want NOT_FOUND", body, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(body)
				if err != nil || string(got) != row.want {
					t.Errorf("diff %q, %v; want %q", got, err, row.want)
				}
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}, func(w *world) { w.cfg.MaxAttempts = 1 })
		})
	}
}

// TestP13_InlineEvidenceIsBounded: what a run carries inline ends at its bounds and
// says so; the whole stays where it is.
func TestP13_InlineEvidenceIsBounded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		trace, diff string
		events      int
		traceCut    bool
		diffCut     bool
	}{
		"small":       {trace: line("a") + line("b"), diff: "diff\n", events: 2},
		"just so":     {trace: strings.Repeat(line("a"), inlineTraceEvents), events: inlineTraceEvents},
		"many events": {trace: strings.Repeat(line("a"), inlineTraceEvents+1), events: inlineTraceEvents, traceCut: true},
		"long events": {trace: strings.Repeat(line(strings.Repeat("x", inlineTraceBytes/8)), 9), events: 7, traceCut: true},
		"a long diff": {diff: strings.Repeat(strings.Repeat("+", 99)+"\n", inlineDiffBytes/100+50), diffCut: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				l := w.begin(mac)
				for channel, text := range map[string]string{protocol.ChannelTrace: row.trace, protocol.ChannelDiff: row.diff} {
					for ; text != ""; text = text[min(len(text), 32<<10):] {
						w.append(l.Ref, channel, text[:min(len(text), 32<<10)])
					}
				}
				result := passed(true)
				result.Snapshot = protocol.Snapshot{Kind: protocol.EnvRepo}
				w.finish(mac, l.Ref, result)
				r, err := w.s.Get(t.Context(), ann, id)
				if err != nil {
					t.Fatal(err)
				}
				if n := len(r.Result.Trace); n != row.events || r.Result.TraceTruncated != row.traceCut {
					t.Errorf("%d events inline, truncated %v; want %d, %v", n, r.Result.TraceTruncated, row.events, row.traceCut)
				}
				s := r.Result.Snapshot
				if s.DiffBytes != int64(len(row.diff)) || s.DiffTruncated != row.diffCut || !strings.HasPrefix(row.diff, s.Diff) ||
					len(s.Diff) > inlineDiffBytes || !row.diffCut && s.Diff != row.diff {
					t.Errorf("%d of %d bytes of the diff inline, truncated %v; it has %d", len(s.Diff), s.DiffBytes, s.DiffTruncated, len(row.diff))
				}
			})
		})
	}
}
