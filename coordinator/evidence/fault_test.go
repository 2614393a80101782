package evidence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// faultyDisk fails each n-th write after it has taken a part of it, and syncs on
// demand. It never waits for the real disk: only a power cut could tell.
type faultyDisk struct {
	mu       sync.Mutex
	every    int
	writes   int
	truncate bool // fail the truncation that would clean up, too
	sync     error
	syncs    int
}

func (d *faultyDisk) open(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, d}, nil
}

func (d *faultyDisk) syncDir(string) error { return nil }

type faultyFile struct {
	*os.File
	d *faultyDisk
}

func (f *faultyFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	f.d.writes++
	fail := f.d.every > 0 && f.d.writes%f.d.every == 0
	f.d.mu.Unlock()
	if fail {
		n, _ := f.File.WriteAt(p[:len(p)*2/3], at)
		return n, syscall.ENOSPC
	}
	return f.File.WriteAt(p, at)
}

func (f *faultyFile) Truncate(n int64) error {
	if f.d.truncate {
		f.d.truncate = false
		return syscall.EIO
	}
	return f.File.Truncate(n)
}

func (f *faultyFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.syncs++
	if f.d.sync != nil {
		err := f.d.sync
		f.d.sync = nil
		return err
	}
	return nil
}

// TestF23_StoredEqualsProduced sends a log of many lines and a trace over a link
// that is cut at random, into a store whose every 7th write fails and which is
// killed now and then. The sender goes on from what was acknowledged, or from
// what the store says after a cut.
func TestF23_StoredEqualsProduced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		cfg := Config{Dir: fmt.Sprintf("%s/%d", root, n), disk: &faultyDisk{every: 7, truncate: rapid.Bool().Draw(rt, "no truncate")}}
		s := open(rt, cfg)
		a := attempt(rt, s, "run_a", 1)
		defer func() { a.Close(); s.Close() }()
		produced := map[string][]byte{}
		for i := range 1000 {
			produced["log"] = fmt.Appendf(produced["log"], "line %d\n", i)
			produced["trace"] = fmt.Appendf(produced["trace"], `{"kind":"log","t":%d}`+"\n", i)
		}
		acked := map[string]int64{}
		failures, cuts := 0, 0
		for done := false; !done; {
			done = true
			for _, channel := range []string{"log", "trace"} {
				rest := produced[channel][acked[channel]:]
				if len(rest) == 0 {
					continue
				}
				done = false
				p := rest[:min(len(rest), rapid.IntRange(500, 3000).Draw(rt, "piece"))]
				next, err := a.Append(channel, acked[channel], p)
				if err != nil {
					failures++
					if got := int64(len(read(rt, a, channel))); next != got || next < acked[channel] {
						rt.Fatalf("a failed append wants %s from %d on; acknowledged %d, stored %d", channel, next, acked[channel], got)
					}
					continue
				}
				switch rapid.IntRange(0, 7).Draw(rt, "then") {
				case 0: // the acknowledgement is lost: the sender repeats itself
				case 1: // the coordinator is killed: everything acknowledged is there
					cuts++
					a.Close()
					s.Close()
					s = open(rt, cfg)
					a = attempt(rt, s, "run_a", 1)
					offsets, err := a.Offsets()
					if err != nil {
						rt.Fatal(err)
					}
					for c, at := range acked {
						if offsets[c] < at {
							rt.Fatalf("acknowledged %d bytes of %s, stored %d", at, c, offsets[c])
						}
					}
					acked = offsets
				default:
					acked[channel] = next
				}
			}
		}
		for i := 0; ; i++ {
			err := a.Seal(t.Context())
			if err == nil {
				break
			}
			if i > 3 {
				rt.Fatalf("settle: %v", err)
			}
		}
		for channel, want := range produced {
			if got := read(rt, a, channel); got != string(want) {
				rt.Fatalf("channel %s: %d bytes stored, %d produced", channel, len(got), len(want))
			}
		}
	})
}

// TestP4_CopyTakenWhileWriting copies the directory at random moments, as a kill
// leaves it, while several writers append: each copy holds what was acknowledged
// before it was taken, and nothing that was not produced.
func TestP4_CopyTakenWhileWriting(t *testing.T) {
	t.Parallel()
	dir, copies := t.TempDir(), t.TempDir()
	s := open(t, Config{Dir: dir, disk: &faultyDisk{every: 11}, MaxOpen: 2})
	defer s.Close()
	text := func(run, i int) string { return fmt.Sprintf("run %d line %d\n", run, i) }
	var acked [4]atomic.Int64 // lines
	var wg sync.WaitGroup
	const lines = 3000
	for run := range acked {
		a := attempt(t, s, fmt.Sprintf("run_%d", run), 1)
		wg.Go(func() {
			defer a.Close()
			var at int64
			for i := 0; i < lines; {
				next, err := a.Append("log", at, []byte(text(run, i)))
				if err != nil {
					continue // this disk fails now and then
				}
				at, i = next, i+1
				acked[run].Store(int64(i))
			}
		})
	}
	done := false
	for n := 0; !done; n++ {
		var before [4]int64
		done = true
		for run := range acked {
			before[run] = acked[run].Load()
			done = done && before[run] == lines
		}
		to := filepath.Join(copies, fmt.Sprint(n))
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		c := open(t, Config{Dir: to, disk: &faultyDisk{}})
		for run := range acked {
			a := attempt(t, c, fmt.Sprintf("run_%d", run), 1)
			got := read(t, a, "log")
			there := strings.SplitAfter(got, "\n")
			if int64(len(there)-1) < before[run] {
				t.Errorf("copy %d: run %d has %d lines, %d were acknowledged", n, run, len(there)-1, before[run])
			}
			for i, line := range there[:len(there)-1] {
				if line != text(run, i) {
					t.Fatalf("copy %d: line %d of run %d is %q", n, i, run, line)
				}
			}
			appendText(t, a, "log", "resumed\n")
			if read(t, a, "log") != got+"resumed\n" {
				t.Errorf("copy %d: run %d cannot be continued", n, run)
			}
			a.Close()
		}
		c.Close()
	}
	wg.Wait()
}

// TestP5_SealIsOneSync counts, and does not believe a second sync after a failed
// one: the file is written anew.
func TestP5_SealIsOneSync(t *testing.T) {
	t.Parallel()
	disk := &faultyDisk{}
	s := open(t, Config{Dir: t.TempDir(), disk: disk})
	defer s.Close()
	a := attempt(t, s, "run_a", 1)
	defer a.Close()
	for _, channel := range []string{"log", "log.index", "trace", "diff"} {
		appendText(t, a, channel, "evidence of "+channel)
	}
	if disk.syncs != 0 {
		t.Errorf("%d syncs before the seal", disk.syncs)
	}
	disk.sync = syscall.EIO
	before, err := os.Stat(a.st.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Seal(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("seal on a failing disk: %v", err)
	}
	if err := a.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(a.st.path)
	if err != nil || os.SameFile(before, after) {
		t.Errorf("the file that could not be synced is still in place, %v", err)
	}
	if got := read(t, a, "diff"); got != "evidence of diff" {
		t.Errorf("diff %q", got)
	}
	if disk.syncs != 2 {
		t.Errorf("%d syncs, want a failed one and one", disk.syncs)
	}
	if err := a.Seal(t.Context()); err != nil || disk.syncs != 2 {
		t.Errorf("sealing again: %v, %d syncs", err, disk.syncs)
	}
}

// BenchmarkSmallRun is the evidence of one small run: four channels, sealed.
// Eight at a time, as runners with eight slots send them.
func BenchmarkSmallRun(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir()})
	defer s.Close()
	var mu sync.Mutex
	i := 0
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			i++
			a, err := s.Attempt(fmt.Sprintf("run_%d", i), 1)
			mu.Unlock()
			if err != nil {
				b.Error(err)
				return
			}
			for _, channel := range []string{"log", "log.index", "trace", "diff"} {
				if _, err := a.Append(channel, 0, make([]byte, 500)); err != nil {
					b.Error(err)
				}
			}
			if err := errors.Join(a.Seal(b.Context()), a.Close()); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkAppend is a large log in chunks of the wire's size.
func BenchmarkAppend(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir(), MaxAttemptBytes: 1 << 50})
	defer s.Close()
	p := make([]byte, 16<<10)
	b.SetBytes(int64(len(p)))
	a := attempt(b, s, "run_a", 1)
	var at int64
	for i := 0; b.Loop(); i++ {
		if at >= 64<<20 {
			a.Close()
			a, at = attempt(b, s, "run_a", int64(i)), 0
		}
		next, err := a.Append("log", at, p)
		if err != nil {
			b.Fatal(err)
		}
		at = next
	}
	a.Close()
}

// BenchmarkOpenSealed is what a page about a finished run pays before its first
// byte, with 32 MiB of log.
func BenchmarkOpenSealed(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir()})
	defer s.Close()
	a := attempt(b, s, "run_a", 1)
	for at := int64(0); at < 32<<20; at += 16 << 10 {
		if _, err := a.Append("log", at, make([]byte, 16<<10)); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(a.Seal(b.Context()), a.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		a := attempt(b, s, "run_a", 1)
		if a.Summary().Channels["log"] != 32<<20 {
			b.Fatal("log is short")
		}
		a.Close()
	}
}
