package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
)

func entry(n int) control.Entry {
	return control.Entry{Connection: fmt.Sprint("con_", n%2), Run: fmt.Sprint("run_", n), Epoch: 1}
}

func open(t *testing.T, path string) *History {
	t.Helper()
	h, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func last(t *testing.T, h *History, n int) []string {
	t.Helper()
	entries, err := h.Last(n)
	if err != nil {
		t.Fatal(err)
	}
	runs := []string{}
	for _, e := range entries {
		runs = append(runs, e.Run)
	}
	return runs
}

// A file that somebody else has made large costs no more memory than one of ours, and becomes one of ours.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	line, err := json.Marshal(entry(1))
	if err != nil {
		t.Fatal(err)
	}
	all := 2 * maxFile / len(line)
	if err := os.WriteFile(path, bytes.Repeat(append(line, '\n'), all), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, path)
	if h.lines > all/2+1 {
		t.Errorf("%d entries were read of %d, want those in the last %d bytes", h.lines, all, maxFile)
	}
	if err := h.Add(entry(2)); err != nil {
		t.Fatal(err)
	}
	if got := last(t, h, 2); len(got) != 2 || got[0] != "run_2" {
		t.Errorf("the newest are %v, want run_2 first", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > maxFile {
		t.Errorf("the file has %d bytes, %v; want it short again", info.Size(), err)
	}
}

// FuzzRead: whatever is in the file, it is read, and what is added after it is there.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"run\":\"run_1\",\"epoch\":1}\n"))
	f.Add([]byte("{\"run\":"))
	f.Add([]byte("\x00\xff\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "history")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h := open(t, path)
		if err := h.Add(entry(7)); err != nil {
			t.Fatal(err)
		}
		if got := last(t, h, 1); len(got) != 1 || got[0] != "run_7" {
			t.Errorf("the newest is %v, want run_7", got)
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	h := open(t, path)
	for n := range 3*Keep + 7 {
		if err := h.Add(entry(n)); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprint("run_", 3*Keep+6)
	if got := last(t, h, 10*Keep); len(got) != Keep || got[0] != want {
		t.Errorf("%d entries from %s, want %d from %s", len(got), got[0], Keep, want)
	}
	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), "\n"); err != nil || n > 2*Keep {
		t.Errorf("the file has %d lines, %v; want at most %d", n, err, 2*Keep)
	}
	if got := last(t, open(t, path), 1); got[0] != want {
		t.Errorf("after a restart the newest is %v, want %s", got, want)
	}
}

func TestBrokenLinesAreLeftOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	h := open(t, path)
	if err := h.Add(entry(1)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "%s\n{\"run\":\"run_cut", strings.Repeat("x", 3*maxLine))
	f.Close()
	h = open(t, path)
	if err := h.Add(entry(2)); err != nil {
		t.Fatal(err)
	}
	if got := last(t, h, 10); fmt.Sprint(got) != "[run_2 run_1]" {
		t.Errorf("entries %v, want run_2 and run_1", got)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	h := open(t, filepath.Join(t.TempDir(), "history"))
	for n := range 4 {
		if err := h.Add(entry(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Forget("con_1"); err != nil {
		t.Fatal(err)
	}
	if got := last(t, h, 10); fmt.Sprint(got) != "[run_2 run_0]" {
		t.Errorf("entries %v, want those of con_0", got)
	}
	if h.Has("run_1", 1) || !h.Has("run_0", 1) {
		t.Error("Has does not know what was forgotten and what was not")
	}
}

// A failure's words can be long, and never break the file.
func TestLongFailure(t *testing.T) {
	t.Parallel()
	h := open(t, filepath.Join(t.TempDir(), "history"))
	e := entry(1)
	e.Failure = &control.EntryFailure{Message: strings.Repeat("\x01", 1<<20)}
	if err := h.Add(e); err != nil {
		t.Fatal(err)
	}
	if got := last(t, h, 1); len(got) != 1 {
		t.Error("the entry is not there")
	}
}
