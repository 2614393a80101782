package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func open(t failer, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newStore is a store that the test closes.
func newStore(t testing.TB) *Store {
	s := open(t, Config{Dir: t.TempDir()})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func attempt(t failer, s *Store, run string, epoch int64) *Attempt {
	t.Helper()
	a, err := s.Attempt(run, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func appendText(t failer, a *Attempt, channel, text string) {
	t.Helper()
	offsets, err := a.Offsets()
	if err != nil {
		t.Fatal(err)
	}
	at := offsets[channel]
	if next, err := a.Append(channel, at, []byte(text)); err != nil || next != at+int64(len(text)) {
		t.Fatalf("append to %s at %d: %d, %v", channel, at, next, err)
	}
}

func read(t failer, a *Attempt, channel string) string {
	t.Helper()
	r, err := a.Open(channel)
	if errors.Is(err, ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestP11_AppendIsIdempotentByOffset(t *testing.T) {
	t.Parallel()
	a := attempt(t, newStore(t), "run_a", 1)
	defer a.Close()
	hole := func(want int64) func(error) bool {
		return func(err error) bool { var h *HoleError; return errors.As(err, &h) && h.Want == want }
	}
	ok := func(err error) bool { return err == nil }
	conflict := func(at int64) func(error) bool {
		return func(err error) bool { var c *ConflictError; return errors.As(err, &c) && c.Offset == at }
	}
	for _, step := range []struct {
		name   string
		offset int64
		bytes  string
		next   int64
		err    func(error) bool
	}{
		{"first", 0, "hello", 5, ok},
		{"the same again", 0, "hello", 5, ok},
		{"a part again", 1, "ell", 5, ok},
		{"overlap with new bytes", 3, "lo wor", 9, ok},
		{"a hole", 10, "x", 9, hole(9)},
		{"before the beginning", -1, "x", 9, hole(9)},
		{"different bytes", 1, "eLlo", 9, conflict(2)},
		{"different bytes and new ones", 8, "Rld", 9, conflict(8)},
		{"nothing", 9, "", 9, ok},
		{"the rest", 9, "ld", 11, ok},
	} {
		next, err := a.Append("log", step.offset, []byte(step.bytes))
		if next != step.next || !step.err(err) {
			t.Errorf("%s: %d, %v, want next %d", step.name, next, err, step.next)
		}
	}
	if got := read(t, a, "log"); got != "hello world" {
		t.Errorf("log %q", got)
	}
}

// TestF2_LateEvidenceIsKeptApart: a superseded attempt goes on to be written and
// touches nothing of its successor.
func TestF2_LateEvidenceIsKeptApart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, second := attempt(t, s, "run_a", 1), attempt(t, s, "run_a", 2)
	defer first.Close()
	defer second.Close()
	appendText(t, first, "log", "first")
	first.Supersede()
	appendText(t, second, "log", "second")
	if err := second.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	appendText(t, first, "log", " late")
	if err := first.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for a, want := range map[*Attempt]string{first: "first late", second: "second"} {
		if got := read(t, a, "log"); got != want {
			t.Errorf("log %q, want %q", got, want)
		}
	}
	if epochs, err := s.List("run_a"); err != nil || !slices.Equal(epochs, []int64{1, 2}) {
		t.Errorf("epochs %v, %v", epochs, err)
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a := attempt(t, s, "run_a", 1)
	appendText(t, a, "log", "x")
	if err := errors.Join(a.Seal(t.Context()), a.Seal(t.Context())); err != nil {
		t.Errorf("seal twice: %v", err)
	}
	check := func(a *Attempt) {
		t.Helper()
		if _, err := a.Append("log", 1, []byte("y")); !errors.Is(err, ErrSealed) {
			t.Errorf("append after seal: %v", err)
		}
		if _, err := a.Append("new", 0, []byte("y")); !errors.Is(err, ErrSealed) {
			t.Errorf("append of a channel after seal: %v", err)
		}
		if next, err := a.Append("log", 0, []byte("x")); next != 1 || err != nil {
			t.Errorf("the same bytes after seal: %d, %v", next, err)
		}
		if err := a.Seal(t.Context()); err != nil {
			t.Errorf("seal again: %v", err)
		}
		want := Summary{Channels: map[string]int64{"log": 1}, Sealed: true}
		if d := cmp.Diff(want, a.Summary()); d != "" {
			t.Errorf("summary (-want):\n%s", d)
		}
	}
	check(a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	again := attempt(t, s, "run_a", 1)
	defer again.Close()
	check(again)
}

// TestP4_KillAtAnyInstruction cuts the file of an attempt at every length, as a
// kill or a power cut leaves it, opens it, and lets the runner resume.
func TestP4_KillAtAnyInstruction(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := fmt.Sprintf("%s/%d", root, n)
		cfg := Config{Dir: dir, disk: &faultyDisk{}}
		s := open(rt, cfg)
		a := attempt(rt, s, "run_a", 1)
		produced := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "appends") {
			channel := rapid.SampledFrom([]string{"log", "trace", "diff"}).Draw(rt, "channel")
			text := rapid.StringN(1, 40, -1).Draw(rt, "text")
			appendText(rt, a, channel, text)
			produced[channel] += text
		}
		sealed := rapid.Bool().Draw(rt, "sealed")
		if sealed {
			if err := a.Seal(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		path := a.st.path
		if err := errors.Join(a.Close(), s.Close()); err != nil {
			rt.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		// A handful of places per file; all files together see every kind.
		for _, cut := range append(rapid.SliceOfN(rapid.IntRange(0, len(whole)), 0, 12).Draw(rt, "cuts"), len(whole)) {
			b := whole[:cut]
			if rapid.Bool().Draw(rt, "tail of zeros") {
				b = append(bytes.Clone(b), make([]byte, rapid.IntRange(1, 50).Draw(rt, "zeros"))...)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				rt.Fatal(err)
			}
			s := open(rt, cfg)
			a := attempt(rt, s, "run_a", 1)
			if cut == len(whole) && sealed != a.Summary().Sealed {
				rt.Fatalf("whole file: sealed %v, want %v", !sealed, sealed)
			}
			offsets, err := a.Offsets()
			if err != nil {
				rt.Fatalf("cut at %d: %v", cut, err)
			}
			for channel, text := range produced {
				if got := read(rt, a, channel); got != text[:offsets[channel]] {
					rt.Fatalf("cut at %d: channel %s %q, produced %q", cut, channel, got, text)
				}
				if !a.Summary().Sealed {
					if _, err := a.Append(channel, offsets[channel], []byte(text[offsets[channel]:])); err != nil {
						rt.Fatalf("cut at %d: resume %s: %v", cut, channel, err)
					}
				}
			}
			if err := errors.Join(a.Seal(t.Context()), a.Close()); err != nil {
				rt.Fatalf("cut at %d: settle: %v", cut, err)
			}
			a = attempt(rt, s, "run_a", 1)
			for channel, text := range produced {
				if got := read(rt, a, channel); got != text {
					rt.Fatalf("cut at %d: after the resume channel %s is %q, produced %q", cut, channel, got, text)
				}
			}
			if err := errors.Join(a.Close(), s.Close()); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// TestP4_SealBeforeItsData: a power cut can leave the seal and not what it seals.
// Whoever resumes must not take it for complete.
func TestP4_SealBeforeItsData(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a := attempt(t, s, "run_a", 1)
	appendText(t, a, "log", strings.Repeat("first\n", 100))
	appendText(t, a, "log", strings.Repeat("second\n", 100))
	if err := a.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	path, second := a.st.path, a.st.channels[0].extents[1]
	a.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[second.pos+10 : second.pos+20])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	a = attempt(t, s, "run_a", 1)
	defer a.Close()
	offsets, err := a.Offsets()
	if d := cmp.Diff(map[string]int64{"log": 600}, offsets); err != nil || d != "" {
		t.Fatalf("offsets: %v (-want):\n%s", err, d)
	}
	appendText(t, a, "log", strings.Repeat("second\n", 100))
	if err := a.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a, "log"); got != strings.Repeat("first\n", 100)+strings.Repeat("second\n", 100) {
		t.Errorf("log of %d bytes", len(got))
	}
}

// TestJobCannotForgeFrames: a log that holds a copy of the file's own frames stays
// a log, also when the file is cut so that it ends in them.
func TestJobCannotForgeFrames(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a := attempt(t, s, "run_a", 1)
	var c contents
	c.end = headerSize
	forged := appendFrame([]byte(magic+"12345678"), [8]byte{1}, kindSeal, "", appendSeal(nil, &c, [8]byte{1}))
	appendText(t, a, "log", string(forged))
	a.Close()
	a = attempt(t, s, "run_a", 1)
	defer a.Close()
	if a.Summary().Sealed || read(t, a, "log") != string(forged) {
		t.Errorf("summary %+v", a.Summary())
	}
}

func TestP15_NamesAndLimits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := open(t, Config{Dir: filepath.Join(root, "evidence"), MaxAttemptBytes: 200, MaxChannels: 2})
	defer s.Close()
	var name *NameError
	for _, run := range []string{"", "..", "../x", "a/b", `a\b`, ".x", "a\x00b", "a b", "ü", strings.Repeat("a", 201)} {
		if _, err := s.Attempt(run, 1); !errors.As(err, &name) {
			t.Errorf("attempt of %q: %v", run, err)
		}
		if _, err := s.List(run); !errors.As(err, &name) {
			t.Errorf("list %q: %v", run, err)
		}
		if err := s.Remove(run); !errors.As(err, &name) {
			t.Errorf("remove %q: %v", run, err)
		}
	}
	if _, err := s.Attempt("run_a", -1); err == nil {
		t.Error("a negative epoch was taken")
	}
	a := attempt(t, s, "run_a", 1)
	defer a.Close()
	for _, channel := range []string{"", "../log", "a/b", ".log", strings.Repeat("a", 201)} {
		if _, err := a.Append(channel, 0, []byte("x")); !errors.As(err, &name) {
			t.Errorf("append to %q: %v", channel, err)
		}
	}
	var limit *LimitError
	if next, err := a.Append("log", 0, make([]byte, 200)); !errors.As(err, &limit) || next != 0 || limit.Configured != 200 {
		t.Errorf("append over the limit: %d, %v", next, err)
	}
	appendText(t, a, "log", "fits")
	appendText(t, a, "trace", "fits")
	if _, err := a.Append("diff", 0, []byte("x")); !errors.As(err, &limit) || limit.Limit != "channels" {
		t.Errorf("a third channel: %v", err)
	}
	if err := a.Seal(t.Context()); err != nil {
		t.Errorf("seal at the limit: %v", err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("beside the store: %v, %v", left, err)
	}
}

func TestRemoveAndRuns(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, run := range []string{"run_a", "run_a.1", "run_b"} {
		for epoch := range int64(2) {
			a := attempt(t, s, run, epoch)
			appendText(t, a, "log", run)
			a.Close()
		}
	}
	held := attempt(t, s, "run_a", 0)
	defer held.Close()
	follower := held.Follow(t.Context(), "log", 5)
	defer follower.Close()
	if err := errors.Join(s.Remove("run_a"), s.Remove("run_a"), s.Remove("run_never")); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Append("log", 5, []byte("x")); !errors.Is(err, ErrRemoved) {
		t.Errorf("append after remove: %v", err)
	}
	if _, err := follower.Read(make([]byte, 1)); !errors.Is(err, ErrRemoved) {
		t.Errorf("follow after remove: %v", err)
	}
	var runs []string
	for run, err := range s.Runs() {
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	slices.Sort(runs)
	if !slices.Equal(runs, []string{"run_a.1", "run_b"}) {
		t.Errorf("runs %q", runs)
	}
	again := attempt(t, s, "run_a", 0)
	defer again.Close()
	if got := again.Summary(); len(got.Channels) != 0 {
		t.Errorf("a removed run still has %v", got)
	}
}

// TestOpenFilesAreBounded uses many attempts at once.
func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir(), MaxOpen: 5})
	defer s.Close()
	var wg sync.WaitGroup
	attempts := make([]*Attempt, 60)
	for i := range attempts {
		attempts[i] = attempt(t, s, fmt.Sprintf("run_%d", i), 1)
		wg.Go(func() {
			for k := range 20 {
				if _, err := attempts[i].Append("log", int64(k), []byte{'a' + byte(k)}); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	// An append leaves open what another one is at, so that there may be more by now. One that is alone does not.
	alone := attempt(t, s, "run_alone", 1)
	_, err := alone.Append("log", 0, []byte("a"))
	s.mu.Lock()
	n := s.open.Len()
	s.mu.Unlock()
	if n > 5 {
		t.Errorf("%d files are open, limit 5", n)
	}
	if err := errors.Join(err, alone.Close()); err != nil {
		t.Error(err)
	}
	for i, a := range attempts {
		if got := read(t, a, "log"); got != "abcdefghijklmnopqrst" {
			t.Errorf("run %d: %q", i, got)
		}
		if err := errors.Join(a.Seal(t.Context()), a.Close()); err != nil {
			t.Error(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Len() != 0 || len(s.attempts) != 0 {
		t.Errorf("%d files and %d attempts are held after the last handle", s.open.Len(), len(s.attempts))
	}
}

func TestNewerFilesAreNotOverwritten(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	path := s.path("run_a", 1)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("everdev2 and more of it"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attempt("run_a", 1); err == nil {
		t.Error("a file of another version was opened")
	}
}
