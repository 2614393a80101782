package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/everdict/everdict/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what a harness wrote, with the stream of each byte.
type output struct {
	bytes   []byte
	streams []string
}

func (o *output) write(t testing.TB, r *Recorder, stream string, p []byte) {
	t.Helper()
	if n, err := r.Writer(stream).Write(p); n != len(p) || err != nil {
		t.Fatalf("write %d bytes to %s: %d, %v", len(p), stream, n, err)
	}
	o.bytes = append(o.bytes, p...)
	for range p {
		o.streams = append(o.streams, stream)
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check compares a closed record with the output: every stored byte is the byte
// that was produced there, of the stream that the index says, and every byte that
// is not stored lies in exactly one gap of the index.
func (o *output) check(t failer, sum Summary, log, index []byte) {
	t.Helper()
	var produced, stored int64
	var gaps []protocol.Gap
	lines := bytes.Split(index, []byte("\n"))
	for i, line := range lines {
		if len(line) == 0 {
			continue
		}
		var e protocol.LogEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("index line %d %q: %v", i, line, err)
		}
		if e.Offset != stored {
			t.Fatalf("index line %d %s: begins at %d, want %d", i, line, e.Offset, stored)
		}
		if e.Gap != nil {
			if e.Gap.Bytes == 0 && len(bytes.Join(lines[i+1:], nil)) > 0 {
				continue // the announcement of a gap
			}
			if e.Gap.Offset != produced || e.Gap.Channel != protocol.ChannelLog {
				t.Fatalf("index line %d: gap %+v, want offset %d of the log", i, *e.Gap, produced)
			}
			gaps = append(gaps, *e.Gap)
			produced += e.Gap.Bytes
			continue
		}
		end, pend := stored+e.Bytes, produced+e.Bytes
		if end > int64(len(log)) || pend > int64(len(o.bytes)) {
			t.Fatalf("index line %d %s: reaches over the log of %d or the output of %d", i, line, len(log), len(o.bytes))
		}
		if !bytes.Equal(log[stored:end], o.bytes[produced:pend]) {
			t.Fatalf("log[%d:%d] is not the output at %d", stored, end, produced)
		}
		for at := produced; at < pend; at++ {
			if o.streams[at] != e.Stream {
				t.Fatalf("output byte %d came from %s, the index says %s", at, o.streams[at], e.Stream)
			}
		}
		stored, produced = end, pend
	}
	if stored != int64(len(log)) || produced != int64(len(o.bytes)) {
		t.Fatalf("index covers %d of %d stored and %d of %d produced bytes", stored, len(log), produced, len(o.bytes))
	}
	if sum.Bytes != stored || sum.Produced != produced {
		t.Fatalf("summary %+v, want %d stored of %d", sum, stored, produced)
	}
	if d := cmp.Diff(gaps, sum.Gaps); d != "" {
		t.Fatalf("gaps of the index (-) and the summary (+):\n%s", d)
	}
}

func TestP11_LogIsKeptAsWritten(t *testing.T) {
	t.Parallel()
	var log, index bytes.Buffer
	r := New(Config{Log: &log, Index: &index})
	var o output
	o.write(t, r, "stdout", []byte("one\n"))
	o.write(t, r, "stderr", []byte("\x00\xff\x1b[31m no newline"))
	o.write(t, r, "stdout", []byte("two\r\n"))
	sum, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	o.check(t, sum, log.Bytes(), index.Bytes())
	if len(sum.Gaps) != 0 || !bytes.Equal(log.Bytes(), o.bytes) {
		t.Errorf("log %q with gaps %v, want %q", log.Bytes(), sum.Gaps, o.bytes)
	}
	if _, err := r.Writer("stdout").Write([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	if got := r.Tail(); got != string(o.bytes) {
		t.Errorf("tail %q", got)
	}
}

// TestF25_HeadTailAndGap writes random pieces around small caps.
func TestF25_HeadTailAndGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		head := rapid.Int64Range(1, 300).Draw(rt, "head")
		tail := rapid.Int64Range(1, 100).Draw(rt, "tail")
		cfg := Config{HeadBytes: head, TailBytes: tail}
		if rapid.Bool().Draw(rt, "file") {
			cfg.Scratch = func(name string) (*os.File, error) { return os.Create(filepath.Join(dir, name)) }
		}
		var log, index bytes.Buffer
		cfg.Log, cfg.Index = &log, &index
		r := New(cfg)
		var o output
		for i := range rapid.IntRange(0, 40).Draw(rt, "writes") {
			n := rapid.IntRange(0, 150).Draw(rt, "n")
			stream := rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(rt, "stream")
			p := make([]byte, n)
			for k := range p {
				p[k] = byte(len(o.bytes) + k + i)
			}
			o.write(t, r, stream, p)
		}
		sum, err := r.Close()
		if err != nil {
			rt.Fatalf("close: %v", err)
		}
		o.check(rt, sum, log.Bytes(), index.Bytes())
		total := int64(len(o.bytes))
		if want := min(total, head+tail); sum.Bytes != want {
			rt.Fatalf("%d of %d bytes stored, want %d", sum.Bytes, total, want)
		}
		if total > head+tail {
			want := []protocol.Gap{{Channel: "log", Offset: head, Bytes: total - head - tail, Reason: "cap"}}
			if d := cmp.Diff(want, sum.Gaps); d != "" {
				rt.Fatalf("gaps (-want):\n%s", d)
			}
		}
	})
}

// TestF25_EndlessOutputHasFlatMemory writes 1 GiB, and a 10 MB line, under the
// default caps.
func TestF25_EndlessOutputHasFlatMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 1 GiB")
	}
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	log, index := create("log"), create("index")
	r := New(Config{Log: log, Index: index, Scratch: func(name string) (*os.File, error) {
		return os.Create(filepath.Join(dir, name))
	}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := r.Writer("stdout")
	line := bytes.Repeat([]byte("A"), 10_000_000)
	w.Write(append(line, '\n'))
	line = nil
	yes := bytes.Repeat([]byte("y\n"), 16<<10)
	const writes = 32 << 10
	for range writes {
		w.Write(yes)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	sum, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	produced := int64(10_000_001 + writes*len(yes))
	want := Summary{Produced: produced, Bytes: 112 << 20,
		Gaps: []protocol.Gap{{Channel: "log", Offset: 96 << 20, Bytes: produced - 112<<20, Reason: "cap"}}}
	if d := cmp.Diff(want, sum); d != "" {
		t.Errorf("summary (-want):\n%s", d)
	}
	if info, err := log.Stat(); err != nil || info.Size() != 112<<20 {
		t.Errorf("log has %v bytes, %v", info.Size(), err)
	}
}

// TestF25_IndexIsBounded: a harness that changes its stream with every byte needs
// an index line per byte.
func TestF25_IndexIsBounded(t *testing.T) {
	t.Parallel()
	var log, index bytes.Buffer
	r := New(Config{Log: &log, Index: &index, IndexBytes: 10_000})
	var o output
	for i := range 100_000 {
		o.write(t, r, []string{"stdout", "stderr"}[i%2], []byte{byte(i)})
	}
	sum, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	o.check(t, sum, log.Bytes(), index.Bytes())
	if len(sum.Gaps) != 1 || sum.Bytes < maxSpans || sum.Bytes > maxSpans+1000 {
		t.Errorf("stored %d bytes with gaps %v, want about %d and one gap", sum.Bytes, sum.Gaps, maxSpans)
	}
	if n := index.Len(); n > 10_000+maxSpans*60 {
		t.Errorf("index has %d bytes", n)
	}
}

// small is a writer of a disk that is full from time to time.
type small struct {
	bytes.Buffer
	full func() bool
	part bool // a failing write takes its first half
	err  error
}

func (s *small) Write(p []byte) (int, error) {
	if s.full() {
		n := 0
		if s.part {
			n, _ = s.Buffer.Write(p[:len(p)/2])
		}
		return n, s.err
	}
	return s.Buffer.Write(p)
}

func TestP11_DiskFullIsAGap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		full := rapid.SliceOfN(rapid.Bool(), 1, 30).Draw(rt, "full")
		i := 0
		log := &small{part: rapid.Bool().Draw(rt, "part"), err: fmt.Errorf("write log: %w", syscall.ENOSPC),
			full: func() bool { i++; return full[i%len(full)] }}
		var index bytes.Buffer
		r := New(Config{Log: log, Index: &index, HeadBytes: rapid.Int64Range(1, 500).Draw(rt, "head"), TailBytes: 50})
		var o output
		for k := range rapid.IntRange(0, 50).Draw(rt, "writes") {
			o.write(t, r, "stdout", bytes.Repeat([]byte{byte(k)}, rapid.IntRange(1, 40).Draw(rt, "n")))
		}
		sum, err := r.Close()
		o.check(rt, sum, log.Bytes(), index.Bytes())
		for _, g := range sum.Gaps {
			if g.Reason == protocol.GapDiskFull && !errors.Is(err, syscall.ENOSPC) {
				rt.Fatalf("gap %+v with error %v", g, err)
			}
			if g.Reason != protocol.GapDiskFull && g.Reason != protocol.GapCap {
				rt.Fatalf("gap %+v", g)
			}
		}
	})
}

func TestP11_GapsAreBounded(t *testing.T) {
	t.Parallel()
	i := 0
	log := &small{err: io.ErrShortWrite, full: func() bool { i++; return i%2 == 0 }}
	var index bytes.Buffer
	r := New(Config{Log: log, Index: &index})
	var o output
	for range 5 * maxGaps {
		o.write(t, r, "stderr", []byte("ab"))
	}
	sum, err := r.Close()
	o.check(t, sum, log.Bytes(), index.Bytes())
	if len(sum.Gaps) != maxGaps || sum.Gaps[0].Reason != protocol.GapWriteError || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d gaps, first %+v, error %v", len(sum.Gaps), sum.Gaps[0], err)
	}
}

// TestP11_IndexDiskFull: the log stays whole; the index says what it can.
func TestP11_IndexDiskFull(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	full := true
	index := &small{err: syscall.ENOSPC, full: func() bool { return full }}
	r := New(Config{Log: &log, Index: index})
	var o output
	for i := range 10_000 {
		o.write(t, r, []string{"stdout", "stderr"}[i%2], []byte("x"))
	}
	r.mu.Lock() // its timer writes the index too
	if n := len(r.index); n > pendingBytes+flushBytes {
		t.Errorf("%d bytes of index wait in memory", n)
	}
	full = false
	r.mu.Unlock()
	sum, err := r.Close()
	if !errors.Is(err, syscall.ENOSPC) || len(sum.Gaps) != 0 || !bytes.Equal(log.Bytes(), o.bytes) {
		t.Errorf("close: %v, gaps %v, log of %d bytes, want %d", err, sum.Gaps, log.Len(), len(o.bytes))
	}
	if !json.Valid(index.Bytes()[:bytes.IndexByte(index.Bytes(), '\n')]) {
		t.Errorf("index begins with %.80q", index.Bytes())
	}
}

// TestF25_FullScratchDisk: when the ring's file fails, a short end is kept.
func TestF25_FullScratchDisk(t *testing.T) {
	t.Parallel()
	var log, index bytes.Buffer
	r := New(Config{Log: &log, Index: &index, HeadBytes: 10, TailBytes: 1000, Scratch: func(string) (*os.File, error) {
		return os.Open(os.DevNull) // not for writing
	}})
	var o output
	o.write(t, r, "stdout", []byte("0123456789"))
	o.write(t, r, "stdout", []byte("lost"))
	sum, err := r.Close()
	o.check(t, sum, log.Bytes(), index.Bytes())
	if err == nil || log.String() != "0123456789lost" {
		t.Errorf("log %q, error %v", log.String(), err)
	}
}

// TestP11_KilledRecorder: without Close the index says that the log goes on.
func TestP11_KilledRecorder(t *testing.T) {
	t.Parallel()
	var log, index bytes.Buffer
	r := New(Config{Log: &log, Index: &index, HeadBytes: 4})
	var o output
	o.write(t, r, "stdout", []byte("headmore"))
	r.mu.Lock()
	killed := strings.Split(strings.TrimSpace(index.String()), "\n")
	r.mu.Unlock()
	want := `{"o":4,"gap":{"channel":"log","offset":4,"bytes":0,"reason":"cap"}}`
	if got := killed[len(killed)-1]; got != want {
		t.Errorf("last line %s, want %s", got, want)
	}
	sum, err := r.Close()
	if err != nil || len(sum.Gaps) != 0 {
		t.Errorf("close: %+v, %v", sum, err)
	}
	o.check(t, sum, log.Bytes(), index.Bytes())
}

func TestIndexIsWrittenSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log, index bytes.Buffer
		r := New(Config{Log: &log, Index: &index})
		r.Writer("stderr").Write([]byte("a"))
		time.Sleep(50 * time.Millisecond)
		r.Writer("stderr").Write([]byte("b"))
		start := time.Now().Add(-50 * time.Millisecond)
		written := func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			return index.String()
		}
		if got := written(); got != "" {
			t.Errorf("index at once: %s", got)
		}
		time.Sleep(flushAfter)
		synctest.Wait()
		want := fmt.Sprintf(`{"o":0,"n":2,"s":"stderr","t":%d}`+"\n", start.UnixMilli())
		if got := written(); got != want {
			t.Errorf("index %s, want %s", got, want)
		}
		if sum, err := r.Close(); sum.Produced != 2 || err != nil {
			t.Errorf("summary %+v, %v", sum, err)
		}
	})
}

func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	var log, index bytes.Buffer
	r := New(Config{Log: &log, Index: &index, HeadBytes: 5000, TailBytes: 3000})
	var wg sync.WaitGroup
	for _, stream := range []string{"stdout", "stderr"} {
		wg.Go(func() {
			w := r.Writer(stream)
			for range 1000 {
				io.WriteString(w, stream+"\n")
				r.Tail()
			}
		})
	}
	wg.Wait()
	sum, err := r.Close()
	if err != nil || sum.Produced != 2*7*1000 || sum.Bytes != 8000 || log.Len() != 8000 {
		t.Errorf("%+v, %v, log of %d bytes", sum, err, log.Len())
	}
}

func TestTailIsTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := New(Config{Log: io.Discard, Index: io.Discard})
		defer r.Close()
		var all []byte
		for i := range rapid.IntRange(0, 30).Draw(rt, "writes") {
			p := bytes.Repeat([]byte{'a' + byte(i)}, rapid.IntRange(0, 3000).Draw(rt, "n"))
			r.Writer("stdout").Write(p)
			all = append(all, p...)
		}
		if want := string(all[max(0, len(all)-tailCopy):]); r.Tail() != want {
			rt.Fatalf("tail of %d bytes is not the end of the output of %d", len(r.Tail()), len(all))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	r := New(Config{Log: io.Discard, Index: io.Discard, HeadBytes: 1 << 40})
	defer r.Close()
	line := bytes.Repeat([]byte("x"), 100)
	w := r.Writer("stdout")
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		w.Write(line)
	}
}
