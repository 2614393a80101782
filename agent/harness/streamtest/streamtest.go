// Package streamtest is the suite that every harness.Stream passes: golden files
// over recorded streams, any portions, garbage, long lines.
package streamtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/protocol"
)

var update = flag.Bool("update", false, "write the golden files")

// New makes a stream under test.
type New func(emit func(protocol.TraceEvent)) harness.Stream

// Read is what a recorded stream amounts to.
type Read struct {
	Report harness.Report
	Events []protocol.TraceEvent
}

// Feed reads b in portions of at most n bytes.
func Feed(newStream New, b []byte, n int) Read {
	var r Read
	s := newStream(func(ev protocol.TraceEvent) { r.Events = append(r.Events, ev) })
	for len(b) > 0 {
		k := min(n, len(b))
		s.Write(b[:k])
		b = b[k:]
	}
	r.Report = s.Close()
	return r
}

// Run runs the suite over testdata/*.jsonl.
func Run(t *testing.T, newStream New) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		recording, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			whole := Feed(newStream, recording, len(recording))
			golden(t, strings.TrimSuffix(file, ".jsonl")+".golden.json", whole)
			for _, n := range []int{1, 7, 4096} {
				if d := cmp.Diff(whole, Feed(newStream, recording, n)); d != "" {
					t.Errorf("in portions of %d bytes it reads otherwise:\n%s", n, d)
				}
			}
			t.Run("F46 the trace adds up to the report", func(t *testing.T) { sums(t, whole) })
			t.Run("cut anywhere", func(t *testing.T) { cut(t, newStream, recording) })
			t.Run("garbage between the lines", func(t *testing.T) { garbage(t, newStream, recording, whole) })
		})
	}
	t.Run("F25 a line of 10 MB", func(t *testing.T) { long(t, newStream) })
}

func golden(t *testing.T, path string, got Read) {
	t.Helper()
	b, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if d := cmp.Diff(string(want), string(b)); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// sums checks that the llm_call events add up to the reported usage: nothing is
// counted twice and nothing is lost.
func sums(t *testing.T, r Read) {
	rec := trace.New(trace.Config{})
	for _, ev := range r.Events {
		rec.Emit(ev)
	}
	fromTrace := rec.Summary().Usage
	reported := r.Report.Usage
	if (fromTrace == nil) != (reported == nil) {
		t.Fatalf("the trace says %+v, the report %+v", fromTrace, reported)
	}
	if reported == nil {
		return
	}
	type numbers struct {
		Prompt, Completion, Total, CacheRead, CacheWrite, Reasoning *int64
		USD                                                         *float64
	}
	of := func(u *protocol.Usage) numbers {
		return numbers{u.PromptTokens, u.CompletionTokens, u.TotalTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens, u.USD}
	}
	if d := cmp.Diff(of(reported), of(fromTrace)); d != "" {
		t.Errorf("usage of the report (-) and of the trace (+):\n%s", d)
	}
	if (reported.PromptTokens != nil || reported.CompletionTokens != nil) != (reported.TokensSource != "") || (reported.USD != nil) != (reported.USDSource != "") {
		t.Errorf("numbers and sources do not go together: %+v", reported)
	}
}

// cut reads the recording up to every tenth byte: a killed agent's last line has
// no end.
func cut(t *testing.T, newStream New, recording []byte) {
	for n := 0; n < len(recording); n += 10 {
		r := Feed(newStream, recording[:n], 512)
		if r.Report.Garbage > 1 {
			t.Fatalf("cut at %d: %d lines of garbage, want at most the last", n, r.Report.Garbage)
		}
		if u := r.Report.Usage; u != nil && !u.Partial && !r.Report.Complete {
			t.Fatalf("cut at %d: usage %+v is not marked partial", n, u)
		}
	}
}

func garbage(t *testing.T, newStream New, recording []byte, want Read) {
	var b bytes.Buffer
	noise := []string{"Warning: not JSON", "{\"type\":", "[1,2]", "null", "\x1b[31mred\x1b[0m", "\xff\xfe", `{"type":"of the future","message":{"content":7}}`,
		`{"type":17}`, `{"type":"assistant","message":"text"}`, `{"type":"item.completed","item":[]}`, `{"type":"user","message":{"content":{"a":1}}}`}
	lines := bytes.SplitAfter(recording, []byte("\n"))
	for i, line := range lines {
		b.WriteString(noise[i%len(noise)] + "\r\n")
		b.Write(line)
	}
	got := Feed(newStream, b.Bytes(), 100)
	got.Report.Garbage = 0
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("noise changed what was read:\n%s", d)
	}
}

// long feeds a line of 10 MB, and then an endless one, and looks at the memory.
func long(t *testing.T, newStream New) {
	var events []protocol.TraceEvent
	s := newStream(func(ev protocol.TraceEvent) { events = append(events, ev) })
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	fmt.Fprint(s, `{"type":"user","message":{"content":"`)
	for range 160 {
		s.Write(chunk)
	}
	fmt.Fprint(s, "\"}}\n")
	if len(events) != 1 || events[0].Kind != protocol.EventLog || !events[0].Truncated || len(*events[0].Text) > 64<<10 {
		t.Fatalf("a line of 10 MB gave %d events, want one truncated log event", len(events))
	}
	before := heap()
	for range 4096 { // 256 MB without a line end
		s.Write(chunk)
	}
	if grown := int64(heap()) - int64(before); grown > 16<<20 {
		t.Errorf("an endless line holds %d MB", grown>>20)
	}
	if r := s.Close(); r.Truncated != 2 {
		t.Errorf("%d lines truncated, want 2", r.Truncated)
	}
}

// Flood feeds lines that line makes of ids which are all different, first few
// and long, then short and many, and looks at the memory.
func Flood(t *testing.T, newStream New, line func(id string) string) {
	t.Helper()
	s := newStream(func(protocol.TraceEvent) {})
	pad := strings.Repeat("x", 1<<20)
	before := heap()
	for i := range 64 {
		fmt.Fprintln(s, line(fmt.Sprint(i, pad)))
	}
	if grown := int64(heap()) - int64(before); grown > 16<<20 {
		t.Errorf("after 64 ids of 1 MiB the stream holds %d MiB", grown>>20)
	}
	for i := range 50_000 {
		fmt.Fprintln(s, line(fmt.Sprint(pad[:200], i)))
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("after 50,000 ids the stream holds %d MiB", grown>>20)
	}
	s.Close()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Fuzz feeds arbitrary streams, seeded with the recordings: no panic, the same
// reading in any portions, and every event one that a trace can hold.
func Fuzz(f *testing.F, newStream New) {
	files, _ := filepath.Glob("testdata/*.jsonl")
	seen := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		// Single lines: a fuzzer gets nowhere with long inputs. The first line of a
		// recording is long and says little.
		for i, line := range bytes.SplitAfter(b, []byte("\n")) {
			if i > 0 && len(line) < 2000 && !seen[string(line)] {
				seen[string(line)] = true
				f.Add(line)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := Feed(newStream, b, len(b)+1)
		if d := cmp.Diff(whole, Feed(newStream, b, 3)); d != "" {
			t.Errorf("in portions of 3 bytes it reads otherwise:\n%s", d)
		}
		rec := trace.New(trace.Config{})
		for _, ev := range whole.Events {
			rec.Emit(ev)
		}
		if s := rec.Summary(); s.Invalid > 0 {
			t.Errorf("%d events of an unknown kind", s.Invalid)
		}
	})
}
