package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/everdict/everdict/protocol"
)

func logText(t failer, a *Attempt, o LogOptions) string {
	t.Helper()
	var b strings.Builder
	for c, err := range a.Log(context.Background(), o) {
		if err != nil {
			t.Fatal(err)
		}
		b.Write(c.Text())
	}
	return b.String()
}

func TestP11_LogViews(t *testing.T) {
	t.Parallel()
	const out, errs = "stdout", "stderr"
	for name, row := range map[string]struct {
		log, index   string
		options      LogOptions
		sealed       bool
		want, stream string // the text, and the streams of its chunks
	}{
		"both streams": {log: "one\ntwo\n", index: `{"o":0,"n":4,"s":"stdout","t":5}` + "\n" + `{"o":4,"n":4,"s":"stderr"}` + "\n",
			want: "one\ntwo\n", stream: "stdout stderr"},
		"one stream": {log: "one\ntwo\n", index: `{"o":0,"n":4,"s":"stdout"}` + "\n" + `{"o":4,"n":4,"s":"stderr"}` + "\n",
			options: LogOptions{Stream: errs}, want: "two\n", stream: "stderr"},
		"from an offset": {log: "one\ntwo\n", index: `{"o":0,"n":4,"s":"stdout"}` + "\n" + `{"o":4,"n":4,"s":"stderr"}` + "\n",
			options: LogOptions{Offset: 2}, want: "e\ntwo\n", stream: "stdout stderr"},
		"a gap": {log: "headtail", index: `{"o":0,"n":4,"s":"stdout"}` + "\n" + `{"o":4,"gap":{"channel":"log","offset":4,"bytes":0,"reason":"cap"}}` + "\n" +
			`{"o":4,"gap":{"channel":"log","offset":4,"bytes":99,"reason":"cap"}}` + "\n" + `{"o":4,"n":4,"s":"stdout"}` + "\n",
			options: LogOptions{Stream: out}, want: "head\n[99 bytes lost: cap]\ntail", stream: "stdout gap stdout"},
		"a gap that did not come": {log: "headtail", index: `{"o":0,"n":4,"s":"stdout"}` + "\n" + `{"o":4,"gap":{"offset":4,"bytes":0,"reason":"cap"}}` + "\n" +
			`{"o":4,"n":4,"s":"stdout"}` + "\n", want: "headtail", stream: "stdout stdout"},
		"the recorder was killed": {log: "head", index: `{"o":0,"n":4,"s":"stdout"}` + "\n" + `{"o":4,"gap":{"offset":4,"bytes":0,"reason":"cap"}}` + "\n",
			sealed: true, want: "head\n[an unknown number of bytes lost: cap]\n", stream: "stdout gap"},
		"no index":                            {log: "text", want: "text", stream: "?"},
		"no index, one stream, sealed":        {log: "text", options: LogOptions{Stream: out}, sealed: true, want: "", stream: ""},
		"an index with a torn line":           {log: "onetwo", index: `{"o":0,"n":3,"s":"stdout"}` + "\n" + `{"o":3,"n"`, want: "onetwo", stream: "stdout ?"},
		"an index with a hole":                {log: "onetwo", index: `{"o":3,"n":3,"s":"stderr"}` + "\n", want: "onetwo", stream: "? stderr"},
		"an index that overlaps":              {log: "onetwo", index: `{"o":0,"n":5,"s":"stderr"}` + "\n" + `{"o":3,"n":3,"s":"stdout"}` + "\n", want: "onetwo", stream: "stderr stdout"},
		"an index beyond the log":             {log: "one", index: `{"o":0,"n":900,"s":"stdout"}` + "\n" + `{"o":900,"n":1152921504606846976,"s":"stdout"}` + "\n", sealed: true, want: "one", stream: "stdout"},
		"an index of nonsense":                {log: "one", index: "\n{}\nnull\n[1]\n{\"o\":-1,\"n\":2}\n" + strings.Repeat("x", 10_000) + "\n" + `{"o":0,"n":3,"s":"stdout"}` + "\n", want: "one", stream: "stdout"},
		"a gap's reason is not to be trusted": {log: "", index: `{"o":0,"gap":{"offset":0,"bytes":7,"reason":"\u001b[2Jx\n"}}` + "\n", sealed: true, want: "\n[7 bytes lost: x\n]\n", stream: "gap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(t, newStore(t), "run_a", 1)
			defer a.Close()
			if row.log != "" {
				appendText(t, a, "log", row.log)
			}
			if row.index != "" {
				appendText(t, a, "log.index", row.index)
			}
			if row.sealed {
				if err := a.Seal(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := logText(t, a, row.options); got != row.want {
				t.Errorf("text %q, want %q", got, row.want)
			}
			var streams []string
			for c, err := range a.Log(t.Context(), row.options) {
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case c.Gap != nil:
					streams = append(streams, "gap")
				case c.Stream == "":
					streams = append(streams, "?")
				default:
					streams = append(streams, c.Stream)
				}
			}
			if got := strings.Join(streams, " "); got != row.stream {
				t.Errorf("streams %q, want %q", got, row.stream)
			}
		})
	}
}

// TestP11_FollowLog appends log and index in pieces of any size, in any order of
// arrival, while followers of both streams read.
func TestP11_FollowLog(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		s := open(rt, Config{Dir: fmt.Sprintf("%s/%d", root, n), disk: &faultyDisk{}})
		defer s.Close()
		a := attempt(rt, s, "run_a", 1)
		defer a.Close()
		want := map[string]string{}
		var log, index strings.Builder
		for i := range rapid.IntRange(0, 20).Draw(rt, "spans") {
			stream := rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(rt, "stream")
			text := fmt.Sprintf("%d%s\n", i, strings.Repeat("x", rapid.IntRange(0, 50).Draw(rt, "n")))
			b, _ := json.Marshal(protocol.LogEntry{Offset: int64(log.Len()), Bytes: int64(len(text)), Stream: stream, TimeMs: int64(i)})
			index.Write(append(b, '\n'))
			log.WriteString(text)
			want[stream] += text
			want[""] += text
		}
		got := make(chan [2]string)
		for stream := range want {
			go func() {
				var b strings.Builder
				for c, err := range a.Log(t.Context(), LogOptions{Stream: stream, Follow: true}) {
					if err != nil || c.Stream == "" {
						b.WriteString(fmt.Sprintf("[%q %v]", c.Stream, err))
					}
					b.Write(c.Data)
				}
				got <- [2]string{stream, b.String()}
			}()
		}
		send := map[string]string{"log": log.String(), "log.index": index.String()}
		for send["log"]+send["log.index"] != "" {
			channel := rapid.SampledFrom([]string{"log", "log.index"}).Draw(rt, "channel")
			if text := send[channel]; text != "" {
				k := rapid.IntRange(1, len(text)).Draw(rt, "piece")
				appendText(rt, a, channel, text[:k])
				send[channel] = text[k:]
			}
		}
		if err := a.Seal(t.Context()); err != nil {
			rt.Fatal(err)
		}
		for range want {
			if g := <-got; g[1] != want[g[0]] {
				t.Errorf("stream %q: %q, want %q", g[0], g[1], want[g[0]])
			}
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	for name, row := range map[string]struct {
		end  func(*Attempt)
		want error
	}{
		"sealed":     {func(a *Attempt) { a.Seal(context.Background()) }, nil},
		"superseded": {func(a *Attempt) { a.Supersede() }, nil},
		"removed":    {func(a *Attempt) { s.Remove("run_removed") }, ErrRemoved},
		"cancelled":  {func(*Attempt) { cancel() }, context.Canceled},
	} {
		a := attempt(t, s, "run_"+name, 1)
		f := a.Follow(ctx, "trace", 2)
		type read struct {
			text string
			err  error
		}
		got := make(chan read, 1)
		started := make(chan struct{})
		go func() {
			b := make([]byte, 4)
			_, err := io.ReadFull(f, b)
			close(started)
			rest, err2 := io.ReadAll(f)
			got <- read{string(b) + string(rest), errors.Join(err, err2)}
		}()
		appendText(t, a, "trace", "012345")
		<-started
		row.end(a)
		if r := <-got; r.text != "2345" || !errors.Is(r.err, row.want) || row.want == nil && r.err != nil {
			t.Errorf("%s: %q, %v, want %v", name, r.text, r.err, row.want)
		}
		f.Close()
		a.Close()
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
}

func TestTraceView(t *testing.T) {
	t.Parallel()
	a := attempt(t, newStore(t), "run_a", 1)
	defer a.Close()
	lines := []string{
		`{"kind":"message","t":1,"role":"assistant","text":"hi"}`,
		`{"kind":"tool_call","t":2,"name":"sh","args":{"cmd":"ls"}}`,
		`not json`,
		`{"t":3}`,
		``,
		`{"kind":"log","text":"` + strings.Repeat("x", maxTraceLine) + `"}`,
		`{"kind":"span","t":4,"name":"end"}`,
	}
	// In pieces that cut lines anywhere.
	text := strings.Join(lines, "\n") + "\n" + `{"kind":"message","te`
	for i := 0; i < len(text); i += 100_001 {
		appendText(t, a, "trace", text[i:min(len(text), i+100_001)])
	}
	collect := func(o TraceOptions) (kinds string, offsets []int64) {
		t.Helper()
		var all []string
		for r, err := range a.Trace(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Bad != "" {
				all = append(all, "bad")
			} else {
				all = append(all, r.Event.Kind)
			}
			if offsets = append(offsets, r.Offset); r.Next <= r.Offset || r.Next > int64(len(text)) {
				t.Errorf("record at %d ends at %d", r.Offset, r.Next)
			}
		}
		return strings.Join(all, " "), offsets
	}
	const want = "message tool_call bad bad bad span"
	kinds, offsets := collect(TraceOptions{})
	if kinds != want {
		t.Errorf("events %s, want %s", kinds, want)
	}
	for i, at := range offsets {
		if !strings.HasPrefix(text[at:], lines[[]int{0, 1, 2, 3, 5, 6}[i]]) {
			t.Errorf("event %d is not at %d", i, at)
		}
		from, _ := collect(TraceOptions{Offset: at})
		if from != strings.Join(strings.Fields(want)[i:], " ") {
			t.Errorf("from event %d on: %s", i, from)
		}
	}
	if n := a.Lines("trace"); n != int64(len(lines)) {
		t.Errorf("%d lines, want %d", n, len(lines))
	}
	if err := a.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kinds, _ := collect(TraceOptions{Follow: true}); kinds != want+" bad" {
		t.Errorf("sealed with a torn end: %s", kinds)
	}
}

func TestDiffView(t *testing.T) {
	t.Parallel()
	a := attempt(t, newStore(t), "run_a", 1)
	defer a.Close()
	if b, n, err := a.Diff(100); len(b) != 0 || n != 0 || err != nil {
		t.Errorf("no diff: %q, %d, %v", b, n, err)
	}
	appendText(t, a, "diff", "+one\n+tw")
	appendText(t, a, "diff", "o\n")
	for limit, want := range map[int64]string{100: "+one\n+two\n", 10: "+one\n+two\n", 9: "+one\n", 3: "", 0: "", -1: ""} {
		if b, n, err := a.Diff(limit); string(b) != want || n != 10 || err != nil {
			t.Errorf("limit %d: %q, %d, %v", limit, b, n, err)
		}
	}
}

func TestReaderSeeks(t *testing.T) {
	t.Parallel()
	a := attempt(t, newStore(t), "run_a", 1)
	appendText(t, a, "log", "0123")
	appendText(t, a, "trace", "x")
	appendText(t, a, "log", "456")
	r, err := a.Open("log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a.Close() // the reader stays
	for _, row := range []struct {
		offset int64
		whence int
		want   string
	}{{2, io.SeekStart, "23456"}, {-3, io.SeekEnd, "456"}, {-7, io.SeekCurrent, "0123456"}, {5, io.SeekEnd, ""}} {
		if _, err := r.Seek(row.offset, row.whence); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); string(b) != row.want || err != nil {
			t.Errorf("seek %d from %d: %q, %v", row.offset, row.whence, b, err)
		}
	}
	if _, err := r.Seek(-1, io.SeekStart); err == nil {
		t.Error("a negative place was taken")
	}
	var b [3]byte
	if n, err := r.ReadAt(b[:], 3); n != 3 || err != nil || string(b[:]) != "345" {
		t.Errorf("read across pieces: %d, %v, %q", n, err, b)
	}
	if n, err := r.ReadAt(b[:], 5); n != 2 || err != io.EOF {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	if r.Size() != 7 {
		t.Errorf("size %d", r.Size())
	}
}

func TestP11_Sanitizer(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\ttext\n":                            "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m":                     "red",
		"\x1b[?25lhide\x1b[2J\x1b[H":               "hide",
		"\x1b]0;title\x07after":                    "after",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1bPdcs\x1b\\after":                      "after",
		"\x1b(Bafter":                              "after",
		"\x1bcreset":                               "reset",
		"\x1b[31":                                  "",
		"\x1b]52;c;never ended\nnext line":         "\nnext line",
		"\x1b[31\nnext":                            "\nnext",
		"\u009b31mred":                             "red",
		"\u009d0;t\u009cafter":                     "after",
		"10%\r20%\r\ndone\r":                       "10%\n20%\ndone\n",
		"bell\x07 null\x00 del\x7f bs\x08":         "bell null del bs",
		"bad\xff\xc3(":                             "bad\ufffd\ufffd(",
		"caf\u00e9 \u4e16 \U0001f600":              "caf\u00e9 \u4e16 \U0001f600",
		"\u202eevil\u2066x":                        "evilx",
		"cut\xe4\xb8":                              "cut\ufffd",
		"\x1b\x1b[31mx":                            "x",
	} {
		var s Sanitizer
		if got := string(s.Flush(s.Append(nil, []byte(in)))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, held := range map[string]bool{"x": false, "x\r": false, "\xe4\xb8": true, "\x1b": true, "\x1b[3": true, "\x1b]0;t": true, "\x1b[31m": false} {
		var s Sanitizer
		if s.Append(nil, []byte(in)); s.Held() != held {
			t.Errorf("%q: held %v, want %v", in, s.Held(), held)
		}
	}
	var s Sanitizer
	endless := s.Append(nil, []byte("\x1b]"+strings.Repeat("x", 3*maxControl)))
	if len(endless) < maxControl {
		t.Errorf("a control string that never ends hides all but %d bytes", len(endless))
	}
}

func FuzzSanitizer(f *testing.F) {
	for _, s := range []string{"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "\xc3\xbc\xff\x9b31m", "\x1b", "\x1b(B\u202etfel\u202c", "a\x00b\x7f\r\n\t"} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(2))
	}
	f.Add([]byte("\x1b[31mred\r\n\xe4\xb8\x96\x1b]0;t\x07\u009b1m\xff"), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		var whole Sanitizer
		want := string(whole.Flush(whole.Append(nil, in)))
		if !utf8.ValidString(want) {
			t.Fatalf("%q: not UTF-8: %q", in, want)
		}
		if strings.Count(want, "\n") < strings.Count(string(in), "\n") {
			t.Fatalf("%q became %q, which has fewer lines", in, want)
		}
		for _, r := range want {
			if r != '\n' && r != '\t' && unicode.IsControl(r) || reorders(r) {
				t.Fatalf("%q: %q is left in %q", in, r, want)
			}
		}
		var parts Sanitizer
		var got []byte
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(cut)+1)
			got = parts.Append(got, rest[:n])
			rest = rest[n:]
		}
		if got = parts.Flush(got); string(got) != want {
			t.Fatalf("%q in pieces of %d: %q, want %q", in, cut+1, got, want)
		}
	})
}

// FuzzLogIndex: whatever a runner claims, the log's bytes come out once, in order.
func FuzzLogIndex(f *testing.F) {
	f.Add("hello", `{"o":0,"n":3,"s":"stdout"}`+"\n"+`{"o":3,"gap":{"bytes":3,"offset":3}}`+"\n")
	f.Fuzz(func(t *testing.T, log, index string) {
		s := open(t, Config{Dir: t.TempDir(), disk: &faultyDisk{}})
		defer s.Close()
		a := attempt(t, s, "run_a", 1)
		defer a.Close()
		appendText(t, a, "log.index", index)
		appendText(t, a, "log", log)
		for _, sealed := range []bool{false, true} {
			var got strings.Builder
			for c, err := range a.Log(t.Context(), LogOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				if c.Gap == nil && c.Offset != int64(got.Len()) {
					t.Fatalf("chunk at %d after %d bytes", c.Offset, got.Len())
				}
				got.Write(c.Data)
			}
			if got.String() != log {
				t.Fatalf("sealed %v: %q, want %q", sealed, got.String(), log)
			}
			if err := a.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzTrace: records lie side by side and never overlap.
func FuzzTrace(f *testing.F) {
	f.Add([]byte(`{"kind":"log"}`+"\n\n{\n"), int64(3))
	f.Fuzz(func(t *testing.T, trace []byte, offset int64) {
		s := open(t, Config{Dir: t.TempDir(), disk: &faultyDisk{}})
		defer s.Close()
		a := attempt(t, s, "run_a", 1)
		defer a.Close()
		appendText(t, a, "trace", string(trace))
		if err := a.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := max(0, offset)
		for r, err := range a.Trace(t.Context(), TraceOptions{Offset: offset}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Offset < at || r.Next <= r.Offset || r.Next > int64(len(trace)) || (r.Bad == "") != (r.Event.Kind != "") {
				t.Fatalf("record %+v after %d", r, at)
			}
			at = r.Next
		}
	})
}

// FuzzFile opens any bytes as the file of an attempt.
func FuzzFile(f *testing.F) {
	var c contents
	c.end = headerSize
	nonce := [8]byte{1, 2, 3}
	b := append([]byte(magic), nonce[:]...)
	b = appendFrame(b, nonce, kindData, "log", []byte("hello\n"))
	c.add("log", headerSize+frameSize+3, []byte("hello\n"))
	c.end = int64(len(b))
	f.Add(appendFrame(b, nonce, kindSeal, "", appendSeal(nil, &c, nonce)))
	f.Fuzz(func(t *testing.T, b []byte) {
		nonce, ok, err := readHeader(sliceReader(b))
		if err != nil || !ok {
			return
		}
		for _, load := range []func() (contents, error){
			func() (contents, error) { c, _, err := readSealed(sliceReader(b), nonce, int64(len(b))); return c, err },
			func() (contents, error) { return scan(sliceReader(b), nonce, int64(len(b))) },
		} {
			c, err := load()
			if err != nil {
				continue
			}
			for _, ch := range c.channels {
				for _, e := range ch.extents {
					if e.pos < 0 || e.n < 0 || e.pos+e.n > int64(len(b)) {
						t.Fatalf("extent %+v outside a file of %d", e, len(b))
					}
				}
			}
		}
	})
}

// FuzzTable decodes any bytes as a table of contents, whose checksum FuzzFile
// would have to guess.
func FuzzTable(f *testing.F) {
	var c contents
	c.add("log", headerSize+frameSize+3, []byte("hello\n"))
	c.end = 100
	table := appendSeal(nil, &c, [8]byte{})
	f.Add(table[:len(table)-footerSize], int64(100))
	f.Fuzz(func(t *testing.T, b []byte, limit int64) {
		c, ok := decodeTable(b, limit)
		if !ok {
			return
		}
		for _, ch := range c.channels {
			var size int64
			for _, e := range ch.extents {
				if e.pos < 0 || e.n < 0 || e.pos+e.n > limit || e.off != size {
					t.Fatalf("extent %+v, limit %d, at %d", e, limit, size)
				}
				size += e.n
			}
			if size != ch.size {
				t.Fatalf("size %d, extents of %d", ch.size, size)
			}
		}
	})
}

type sliceReader []byte

func (s sliceReader) ReadAt(p []byte, at int64) (int, error) {
	return strings.NewReader(string(s)).ReadAt(p, at)
}

func TestFormatRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var c contents
		nonce := [8]byte{9}
		b := append([]byte(magic), nonce[:]...)
		for range rapid.IntRange(0, 20).Draw(rt, "frames") {
			name := rapid.SampledFrom([]string{"log", "trace", "a:b"}).Draw(rt, "name")
			payload := rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "payload")
			pos := int64(len(b)) + frameSize + int64(len(name))
			b = appendFrame(b, nonce, kindData, name, payload)
			c.add(name, pos, payload)
		}
		c.end = int64(len(b))
		b = appendFrame(b, nonce, kindSeal, "", appendSeal(nil, &c, nonce))
		c.end, c.sealed = int64(len(b)), true
		fast, ok, err := readSealed(sliceReader(b), nonce, int64(len(b)))
		if err != nil || !ok {
			rt.Fatalf("read by its end: %v, %v", ok, err)
		}
		slow, err := scan(sliceReader(b), nonce, int64(len(b)))
		if err != nil {
			rt.Fatal(err)
		}
		all := cmp.AllowUnexported(contents{}, channel{}, extent{})
		if d := cmp.Diff(c, fast, all); d != "" {
			rt.Fatalf("read by its end (-want):\n%s", d)
		}
		if d := cmp.Diff(c, slow, all); d != "" {
			rt.Fatalf("scanned (-want):\n%s", d)
		}
	})
}
