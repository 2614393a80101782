package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

func ptr[T any](v T) *T { return &v }

// clock is a time that moves by a second per reading.
func clock() func() time.Time {
	now := time.UnixMilli(1_800_000_000_000)
	return func() time.Time { now = now.Add(time.Second); return now }
}

func decodeAll(t *testing.T, b []byte) []protocol.TraceEvent {
	t.Helper()
	var out []protocol.TraceEvent
	invalid, err := Read(bytes.NewReader(b), func(ev protocol.TraceEvent) error { out = append(out, ev); return nil })
	if err != nil || invalid != 0 {
		t.Fatalf("what was recorded does not read back: %d invalid, %v", invalid, err)
	}
	return out
}

func TestRecorderStampsAndSums(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := New(Config{Writer: &b, Now: clock()})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "user", Text: ptr("task")})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventToolCall, ID: "1", Name: "bash", Args: json.RawMessage(`{"a":"<&>"}`)})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: "m", Cost: &protocol.Cost{InputTokens: ptr[int64](10), CacheReadTokens: ptr[int64](5)}})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: AggregateModel, Cost: &protocol.Cost{OutputTokens: ptr[int64](7), USD: ptr(0.5)}})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: ptr("inner"), ParentID: "1"})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: ptr("answer"), T: 1_800_000_009_000.5})
	r.Emit(protocol.TraceEvent{Kind: "dance"})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.Emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stdout", Text: ptr("late")})
	got := r.Summary()
	want := Summary{
		Events: 6, Bytes: int64(b.Len()), Invalid: 1, ToolCalls: 1, LLMCalls: 1, FirstT: 1_800_000_001_000, LastT: 1_800_000_009_000.5,
		FinalMessage: ptr("answer"),
		Usage: &protocol.Usage{PromptTokens: ptr[int64](15), CompletionTokens: ptr[int64](7), TotalTokens: ptr[int64](22), CacheReadTokens: ptr[int64](5),
			USD: ptr(0.5), Calls: ptr[int64](1), TokensSource: "trace:llm_call", USDSource: "trace:llm_call"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
	events := decodeAll(t, b.Bytes())
	if len(events) != 6 || events[0].T != 1_800_000_001_000 || events[0].At != "2027-01-15T08:00:01.000Z" || string(events[1].Args) != `{"a":"<&>"}` {
		t.Errorf("recorded %+v", events)
	}
	if !strings.Contains(b.String(), `{"a":"<&>"}`) {
		t.Error("HTML characters are escaped: the trace is no page")
	}
}

func TestP13_UnknownUsageStaysUnknown(t *testing.T) {
	t.Parallel()
	r := New(Config{})
	if r.Summary().Usage != nil {
		t.Error("a trace without model calls has a usage")
	}
	r.Emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: "m"})
	r.Emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: "m", Cost: &protocol.Cost{USD: ptr(math.NaN())}})
	if d := cmp.Diff(&protocol.Usage{Calls: ptr[int64](2)}, r.Summary().Usage); d != "" {
		t.Errorf("two calls without numbers (-want +got):\n%s", d)
	}
}

func TestF25_LongEventsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<20) + "END"
	tests := map[string]protocol.TraceEvent{
		"text":             {Kind: protocol.EventMessage, Role: "assistant", Text: &long},
		"escapes":          {Kind: protocol.EventToolResult, ID: "1", OK: ptr(true), Output: ptr(strings.Repeat("\x00", 1<<19) + "END")},
		"bad UTF-8":        {Kind: protocol.EventToolResult, ID: "1", OK: ptr(true), Output: ptr(strings.Repeat("\xff", 1<<19) + "END")},
		"wide characters":  {Kind: protocol.EventLog, Stream: "stdout", Text: ptr(strings.Repeat("世界\u2028", 1<<16) + "END")},
		"arguments":        {Kind: protocol.EventToolCall, ID: "1", Name: "n", Args: json.RawMessage(`{"a":"` + long + `"}`)},
		"no JSON at all":   {Kind: protocol.EventToolCall, ID: "1", Name: "n", Args: json.RawMessage(`{"a":` + long)},
		"several fields":   {Kind: protocol.EventToolResult, ID: "1", OK: ptr(false), Output: &long, Message: long, Detail: json.RawMessage(`"` + long + `"`)},
		"one short, long":  {Kind: protocol.EventToolResult, ID: "1", OK: ptr(false), Output: &long, Message: "short"},
		"names":            {Kind: protocol.EventToolCall, ID: long, Name: long, SpanID: long, ParentID: long, At: long},
		"exactly too long": {Kind: protocol.EventLog, Stream: "stdout", Text: ptr(strings.Repeat("y", protocol.MaxTraceEventBytes))},
	}
	for name, ev := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			r := New(Config{Writer: &b})
			r.Emit(ev)
			if b.Len() > protocol.MaxTraceEventBytes || b.Len() < 1000 {
				t.Fatalf("the event takes %d bytes, the limit is %d", b.Len(), protocol.MaxTraceEventBytes)
			}
			got := decodeAll(t, b.Bytes())
			if len(got) != 1 || !got[0].Truncated || r.Summary().Truncated != 1 {
				t.Fatalf("the event is not marked as truncated")
			}
			if o := got[0].Output; o != nil && (!strings.HasSuffix(*o, "END") || !strings.Contains(*o, "bytes cut")) {
				t.Errorf("head and tail are not both kept: it ends in %q", (*o)[max(0, len(*o)-20):])
			}
			if name == "one short, long" && got[0].Message == "" {
				t.Error("a short field was lost")
			}
		})
	}
	if len(long) != 2<<20+3 {
		t.Error("the caller's string was changed")
	}
}

func TestF25_TheHeadIsKeptAndTheGapIsSaid(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := New(Config{Writer: &b, MaxBytes: 10_000})
	for i := range 1000 {
		r.Emit(protocol.TraceEvent{Kind: protocol.EventToolCall, ID: "x", Name: "bash", T: float64(1_800_000_000_000 + i)})
	}
	r.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: ptr("the end"), T: 1_800_000_001_000})
	before := b.Len()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s := r.Summary()
	events := decodeAll(t, b.Bytes())
	last := events[len(events)-1]
	if before > 10_000 || last.Name != GapName || last.Kind != protocol.EventSpan {
		t.Fatalf("%d bytes, last event %+v, want at most 10,000 and a gap", before, last)
	}
	var gap struct {
		Reason        string
		Offset, Bytes int64
		Events        int64
	}
	if err := json.Unmarshal(last.Attributes, &gap); err != nil {
		t.Fatal(err)
	}
	if gap.Reason != "over_limit" || gap.Offset != int64(before) || gap.Events != 1001-int64(len(events)-1) || gap.Bytes != s.DroppedBytes {
		t.Errorf("gap %+v, summary %+v", gap, s)
	}
	if s.ToolCalls != 1000 || s.FinalMessage == nil || *s.FinalMessage != "the end" || s.LastT-s.FirstT != 1000 {
		t.Errorf("summary %+v, want the aggregates of the whole trace", s)
	}
	if d := cmp.Diff([]protocol.Gap{{Channel: "trace", Offset: gap.Offset, Bytes: gap.Bytes, Reason: "over_limit"}}, s.Gaps()); d != "" {
		t.Errorf("gaps (-want +got):\n%s", d)
	}
}

// A disk that is full for a while costs the events of that while.
func TestF23_AFailedWriteIsAGap(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	call := func(name string) protocol.TraceEvent {
		return protocol.TraceEvent{Kind: protocol.EventToolCall, Name: name}
	}
	tests := []struct {
		name   string
		writes string // ok or fails, each
		want   []string
		gaps   int64 // events that gap events name
	}{
		{"none", "ooooo", []string{"a", "b", "c", "d", "e"}, 0},
		{"in the middle", "oxxo", []string{"a", "d", GapName, "e"}, 2},
		{"at the beginning", "xo", []string{"b", GapName, "c", "d", "e"}, 1},
		{"at the end", "oooox", []string{"a", "b", "c", "d", GapName}, 1},
		{"twice", "oxooxo", []string{"a", "c", GapName, "e", GapName}, 2},
		{"the gap event, too", "oxoxo", []string{"a", "c", "d", GapName, "e"}, 1},
		{"for good", "oxxxxx", []string{"a"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			var lost int64
			n := 0
			r := New(Config{Now: clock(), Writer: writerFunc(func(p []byte) (int, error) {
				if n++; n <= len(tt.writes) && tt.writes[n-1] == 'x' {
					if !bytes.Contains(p, []byte(GapName)) {
						lost += int64(len(p))
					}
					return 0, full
				}
				return b.Write(p)
			})})
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				r.Emit(call(name))
			}
			if err := r.Close(); errors.Is(err, full) != strings.Contains(tt.writes, "x") || r.Close() != err {
				t.Errorf("Close: %v, want the writer's error, if there was one", err)
			}
			var got []string
			var told int64
			for _, ev := range decodeAll(t, b.Bytes()) {
				if got = append(got, ev.Name); ev.Name != GapName {
					continue
				}
				var g struct {
					Reason                string
					Offset, Events, Bytes int64
				}
				if err := json.Unmarshal(ev.Attributes, &g); err != nil || g.Reason != protocol.GapWriteError || g.Bytes == 0 || !ev.Truncated {
					t.Errorf("gap event %+v (%v)", ev, err)
				}
				if want := firstHole(b.Bytes(), tt.writes); told == 0 && g.Offset != want {
					t.Errorf("the hole is said to be at %d, want %d", g.Offset, want)
				}
				told += g.Events
			}
			if d := cmp.Diff(tt.want, got); d != "" || told != tt.gaps {
				t.Errorf("gap events name %d events, want %d; events (-want +got):\n%s", told, tt.gaps, d)
			}
			s := r.Summary()
			if s.Events != int64(len(got)) || s.Bytes != int64(b.Len()) || s.FailedBytes != lost || s.ToolCalls != 5 || s.Gaps() != nil {
				t.Errorf("summary %+v; %d events and %d bytes were written, %d bytes were not", s, len(got), b.Len(), lost)
			}
		})
	}
}

// firstHole is how long the lines are that were written before the first failure.
func firstHole(b []byte, writes string) (n int64) {
	for line := range bytes.Lines(b) {
		if !strings.HasPrefix(writes, "o") {
			break
		}
		n, writes = n+int64(len(line)), writes[1:]
	}
	return n
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestNilAndConcurrentRecorders(t *testing.T) {
	t.Parallel()
	var none *Recorder
	none.Emit(protocol.TraceEvent{Kind: protocol.EventLog})
	if none.Close() != nil || none.Summary().Events != 0 {
		t.Error("a nil recorder recorded something")
	}
	var b bytes.Buffer
	r := New(Config{Writer: &b})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				r.Emit(protocol.TraceEvent{Kind: protocol.EventToolCall, Name: "n"})
				r.Summary()
			}
		})
	}
	wg.Wait()
	if got := decodeAll(t, b.Bytes()); len(got) != 800 {
		t.Errorf("%d events, want 800", len(got))
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	one := `{"kind":"log","t":1,"stream":"stdout","text":"x"}`
	long := `{"kind":"log","t":1,"stream":"stdout","text":"` + strings.Repeat("x", MaxReadItem) + `"}`
	tests := []struct {
		name, in      string
		want, invalid int64
	}{
		{"nothing", "", 0, 0},
		{"white space", " \n\t\n", 0, 0},
		{"an empty array", "[]", 0, 0},
		{"lines", one + "\n\n" + one + "\r\n" + one, 3, 0},
		{"a byte order mark", "\ufeff" + one, 1, 0},
		{"an array", "\n [" + one + "," + one + "]\n", 2, 0},
		{"invalid items", "[" + one + `,1,"x",{"kind":"x"},{"kind":"log"},` + one + "]", 2, 4},
		{"an array that breaks off", "[" + one + "," + one[:20], 1, 1},
		{"an array without end", "[" + one, 1, 1},
		{"a line that breaks off", one + "\n" + one[:20], 1, 1},
		{"a long line", long + "\n" + one, 1, 1},
		{"a long item", "[" + one + "," + long + "," + one + "]", 2, 1},
		{"a very long item", "[" + one + `,"` + strings.Repeat("x", 3*MaxReadItem) + `",` + one + "]", 1, 1},
		{"a field of another type", `{"kind":"log","t":"now","stream":"stdout","text":"x"}` + "\n" + one, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got int64
			invalid, err := Read(strings.NewReader(tt.in), func(protocol.TraceEvent) error { got++; return nil })
			if err != nil || got != tt.want || invalid != tt.invalid {
				t.Errorf("%d events, %d invalid, %v; want %d and %d", got, invalid, err, tt.want, tt.invalid)
			}
		})
	}
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		for _, in := range []string{one + "\n" + one, "[" + one + "," + one + "]"} {
			calls := 0
			if _, err := Read(strings.NewReader(in), func(protocol.TraceEvent) error { calls++; return broken }); !errors.Is(err, broken) || calls != 1 {
				t.Errorf("%d calls, %v; want yield's error after the first", calls, err)
			}
			src := io.MultiReader(strings.NewReader(in[:len(in)-1]), iotest.ErrReader(broken))
			if _, err := Read(src, func(protocol.TraceEvent) error { return nil }); !errors.Is(err, broken) {
				t.Errorf("%v; want the reader's error", err)
			}
		}
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "short", strings.Repeat("a", 5000), strings.Repeat("\"\\\n", 2000), strings.Repeat("é世\x01\xff", 2000)} {
		for _, n := range []int{0, 1, 63, 64, 100, 1000, 100_000} {
			got := Ends(s, n)
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(got); err != nil {
				t.Fatal(err)
			}
			if encoded := b.Len() - 3; encoded > max(n, 64) {
				t.Errorf("%d bytes cut to %d take %d in JSON", len(s), n, encoded)
			}
			if utf8.ValidString(s) && !utf8.ValidString(got) {
				t.Errorf("a character was cut in two: %q", got)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"kind":"message","t":1,"role":"user","text":"x"}` + "\n" + `{"kind":"llm_call","model":"m","cost":{"usd":1}}`))
	f.Add([]byte(`[{"kind":"tool_call","name":"n","args":[1,{"a":2}]},null,3]`))
	f.Add([]byte("[[[[{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		r := New(Config{Writer: &out})
		n := 0
		if _, err := Read(bytes.NewReader(b), func(ev protocol.TraceEvent) error { n++; r.Emit(ev); return nil }); err != nil {
			t.Fatal(err)
		}
		again := 0
		invalid, err := Read(&out, func(protocol.TraceEvent) error { again++; return nil })
		if err != nil || invalid != 0 || again != n {
			t.Fatalf("%d events recorded, %d read back, %d invalid, %v", n, again, invalid, err)
		}
	})
}
