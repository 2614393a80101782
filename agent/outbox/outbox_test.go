package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/everdict/everdict/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, cfg Config) *Outbox {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.RetryMin, cfg.RetryMax = time.Millisecond, 5*time.Millisecond
	o, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return o
}

func create(t testing.TB, o *Outbox, run string, epoch int64) *Spool {
	t.Helper()
	s, err := o.Create(Attempt{Run: run, Job: run, Epoch: epoch, Token: "tok_secret", Coordinator: "http://c"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, s *Spool, channel, text string) {
	t.Helper()
	if _, err := io.WriteString(s.Channel(channel), text); err != nil {
		t.Fatal(err)
	}
}

func finish(t testing.TB, s *Spool, result string) {
	t.Helper()
	if err := s.Finish(json.RawMessage(result)); err != nil {
		t.Fatal(err)
	}
}

// ship runs a session until the returned function is called.
func ship(t testing.TB, o *Outbox, sink Sink) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Ship(ctx, sink) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("ship: %v", err)
			}
		})
	}
	t.Cleanup(end)
	return end
}

func await(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing after 20 s", what)
	}
}

// TestP5_ResultIsDurableBeforeItIsSent records the order of what reaches the
// disk and the coordinator.
func TestP5_ResultIsDurableBeforeItIsSent(t *testing.T) {
	t.Parallel()
	disk := &fakeDisk{}
	o := open(t, Config{disk: disk})
	c := newCoordinator()
	c.onResult = func(a Attempt) {
		disk.note("sent")
		if _, err := os.Stat(filepath.Join(o.cfg.Dir, a.dirName(), resultFile)); err != nil {
			t.Errorf("when the result is sent: %v", err)
		}
	}
	ship(t, o, c)
	s := create(t, o, "run_a", 3)
	write(t, s, "log", "hello")
	write(t, s, "trace", "{}\n")
	finish(t, s, `{"caseId":"c1"}`)
	await(t, "acknowledgement", s.Done())
	if got := s.Ack(); got.Status != Accepted {
		t.Errorf("ack %+v", got)
	}
	events := disk.events()
	at := map[string]int{}
	for i, e := range events {
		at[e] = i
	}
	for _, channel := range []string{"sync log", "sync trace", "sync " + attemptFile} {
		if when, ok := at[channel]; !ok || when > at["sync "+tempPre+resultFile] || at["sync "+tempPre+resultFile] > at["sent"] {
			t.Errorf("order %q", events)
		}
	}
	c.check(t, "run_a.3", map[string]string{"log": "hello", "trace": "{}\n"}, `{"caseId":"c1"}`)
	if left, err := filepath.Glob(filepath.Join(o.cfg.Dir, "run_*")); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %q, %v", left, err)
	}
}

// TestP5_CrashedRunner takes copies of the directory at each write and sync, as a
// kill would leave it, and opens them.
func TestP5_CrashedRunner(t *testing.T) {
	t.Parallel()
	disk := &fakeDisk{}
	o := open(t, Config{disk: disk})
	var copies []string
	root := t.TempDir()
	disk.hook = func() {
		to := filepath.Join(root, fmt.Sprint(len(copies)))
		if err := os.CopyFS(to, os.DirFS(o.cfg.Dir)); err != nil {
			t.Errorf("copy: %v", err)
		}
		copies = append(copies, to)
	}
	s := create(t, o, "run_a", 1)
	var log strings.Builder
	for i := range 20 {
		line := fmt.Sprintf("line %d\n", i)
		log.WriteString(line)
		write(t, s, "log", line)
		write(t, s, "trace", "{}\n")
	}
	finish(t, s, `{"caseId":"c1"}`)
	disk.hook()
	finished, unfinished := 0, 0
	for i, dir := range copies {
		again := open(t, Config{Dir: dir})
		entries := again.List()
		if len(entries) > 1 {
			t.Fatalf("copy %d: %d attempts", i, len(entries))
		}
		if i == len(copies)-1 && (len(entries) == 0 || !entries[0].Finished) {
			t.Errorf("after Finish: %+v", entries)
		}
		if len(entries) == 0 {
			continue // Create had not returned
		}
		e := entries[0]
		if e.Attempt != s.Attempt() {
			t.Fatalf("copy %d: attempt %+v", i, e.Attempt)
		}
		c := newCoordinator()
		end := ship(t, again, c)
		if e.Finished {
			finished++
			if err := again.Drained(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.check(t, "run_a.1", map[string]string{"log": log.String(), "trace": strings.Repeat("{}\n", 20)}, `{"caseId":"c1"}`)
		} else {
			unfinished++
			left := again.Unfinished()
			if len(left) != 1 {
				t.Fatalf("copy %d: unfinished %v", i, left)
			}
			finish(t, left[0], `{"failure":{"reason":"lost"}}`)
			await(t, "acknowledgement", left[0].Done())
			got := c.attempt("run_a.1")
			if !strings.HasPrefix(log.String(), string(got.channels["log"])) || int64(len(got.channels["log"])) != e.Bytes["log"] {
				t.Errorf("copy %d: log %q of %d bytes", i, got.channels["log"], e.Bytes["log"])
			}
			if len(again.Unfinished()) != 0 {
				t.Errorf("copy %d: still unfinished", i)
			}
		}
		end()
	}
	if finished < 1 || unfinished < 40 {
		t.Errorf("%d copies with and %d without a result", finished, unfinished)
	}
}

func TestP4_CrashWhileRemoving(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	s := create(t, o, "run_a", 1)
	finish(t, s, `{}`)
	dir := t.TempDir()
	// As a kill between the two steps of a removal leaves it.
	if err := os.CopyFS(filepath.Join(dir, donePre+"run_a.1"), os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, donePre+"run_a.1", resultFile))
	if again := open(t, Config{Dir: dir}); len(again.List()) != 0 {
		t.Errorf("an acknowledged attempt is back: %+v", again.List())
	}
}

// TestF42_ServerAwayWhenTheJobEnds: sessions that fail in different ways, none at
// all, then one that works, in another life of the runner.
func TestF42_ServerAwayWhenTheJobEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, Config{Dir: dir})
	s := create(t, o, "run_a", 1)
	c := newCoordinator()
	end := ship(t, o, c)
	write(t, s, "log", "before ")
	c.await(t, "run_a.1", "log", 7)
	c.set(func() { c.down = errors.New("coordinator is away") })
	write(t, s, "log", "after")
	finish(t, s, `{"caseId":"c"}`)
	c.awaitOpens(t, 3)
	end()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}

	o = open(t, Config{Dir: dir})
	if got := o.List(); len(got) != 1 || !got[0].Finished || got[0].Bytes["log"] != 12 {
		t.Fatalf("after a restart: %+v", got)
	}
	c.set(func() { c.down = nil })
	ship(t, o, c)
	if err := o.Drained(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.check(t, "run_a.1", map[string]string{"log": "before after"}, `{"caseId":"c"}`)
	if n := c.attempt("run_a.1").sent["log"]; n != 12 {
		t.Errorf("%d bytes were sent, want 12: each once", n)
	}
}

// TestF42_OneBadRunBlocksNoOther: one result is refused for good, one attempt may
// not even be opened, eleven block for ever; another run comes through.
func TestF42_OneBadRunBlocksNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, Config{Dir: dir})
	c := newCoordinator()
	c.answer["run_refused.1"] = Ack{Status: Rejected, Code: "BAD_REQUEST", Message: "no"}
	c.refuse["run_unknown.1"] = &RejectedError{Code: "NOT_FOUND", Message: "unknown run"}
	var bad []string
	for i := range sendParallel + 3 {
		run := fmt.Sprintf("run_a%d", i)
		c.block[run+".1"] = true
		bad = append(bad, run)
	}
	for _, run := range append(bad, "run_refused", "run_unknown") {
		s := create(t, o, run, 1)
		write(t, s, "log", run)
		finish(t, s, `{}`)
	}
	good := create(t, o, "run_good", 1)
	write(t, good, "log", "good")
	finish(t, good, `{}`)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}

	o = open(t, Config{Dir: dir, CallTimeout: 30 * time.Millisecond})
	end := ship(t, o, c)
	live := create(t, o, "run_live", 1)
	write(t, live, "log", "live")
	finish(t, live, `{}`)
	await(t, "a run that is alive", live.Done())
	c.awaitResult(t, "run_good.1")
	c.awaitResult(t, "run_refused.1")
	c.set(func() { clear(c.block) })
	if err := o.Drained(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	for _, run := range []string{"run_refused.1", "run_unknown.1"} {
		if b, err := os.ReadFile(filepath.Join(dir, rejectedDir, run, "log")); err != nil || string(b)+".1" != run {
			t.Errorf("evidence of a rejected run: %q, %v", b, err)
		}
	}
}

func TestF2_StaleResultIsDelivered(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	c := newCoordinator()
	c.answer["run_a.1"] = Ack{Status: Stale, Message: "epoch 2 is active"}
	ship(t, o, c)
	first, second := create(t, o, "run_a", 1), create(t, o, "run_a", 2)
	write(t, first, "log", "first")
	write(t, second, "log", "second")
	finish(t, first, `{"n":1}`)
	finish(t, second, `{"n":2}`)
	await(t, "stale attempt", first.Done())
	await(t, "active attempt", second.Done())
	if first.Ack().Status != Stale || second.Ack().Status != Accepted {
		t.Errorf("acks %+v, %+v", first.Ack(), second.Ack())
	}
	c.check(t, "run_a.1", map[string]string{"log": "first"}, `{"n":1}`)
	c.check(t, "run_a.2", map[string]string{"log": "second"}, `{"n":2}`)
}

// TestF25_DiskFull: channels lose whole writes, the result still fits.
func TestF25_DiskFull(t *testing.T) {
	t.Parallel()
	disk := &fakeDisk{}
	dir := t.TempDir()
	o := open(t, Config{Dir: dir, disk: disk, ReserveBytes: 1 << 10})
	s := create(t, o, "run_a", 1)
	write(t, s, "trace", "{\"a\":1}\n")
	disk.limit(5) // half a line fits
	w := s.Channel("trace")
	for range 3 {
		n, err := io.WriteString(w, "{\"b\":22}\n")
		var full *DiskFullError
		if n != 0 || !errors.As(err, &full) || full.What != "trace" || full.Bytes != 9 || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("write on a full disk: %d, %v", n, err)
		}
	}
	disk.limit(-1)
	write(t, s, "trace", "{\"c\":3}\n")
	disk.limit(0)
	io.WriteString(s.Channel("diff"), "diff")
	want := []protocol.Gap{{Channel: "trace", Offset: 8, Bytes: 27, Reason: "disk_full"}, {Channel: "diff", Bytes: 4, Reason: "disk_full"}}
	if d := cmp.Diff(want, s.Gaps()); d != "" {
		t.Errorf("gaps (-want):\n%s", d)
	}
	var full *DiskFullError
	if _, err := o.Create(Attempt{Run: "run_b", Epoch: 1}); !errors.As(err, &full) {
		t.Errorf("create on a full disk: %v", err)
	}
	big := `{"text":"` + strings.Repeat("x", 2000) + `"}`
	if err := s.Finish(json.RawMessage(big)); !errors.As(err, &full) || full.What != "result" {
		t.Errorf("finish with a result over the reserve: %v", err)
	}
	finish(t, s, `{"failure":{"reason":"disk_full"}}`)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}

	o = open(t, Config{Dir: dir})
	c := newCoordinator()
	ship(t, o, c)
	if err := o.Drained(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.check(t, "run_a.1", map[string]string{"trace": "{\"a\":1}\n{\"c\":3}\n",
		"gaps": `{"channel":"trace","offset":8,"bytes":27,"reason":"disk_full"}` + "\n"}, `{"failure":{"reason":"disk_full"}}`)
}

// TestF42_DamagedEvidenceDoesNotKeepTheResult: somebody cut one file and removed
// another.
func TestF42_DamagedEvidenceDoesNotKeepTheResult(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	s := create(t, o, "run_a", 1)
	for _, channel := range []string{"log", "trace", "diff"} {
		write(t, s, channel, "0123456789")
	}
	finish(t, s, `{}`)
	if err := errors.Join(os.Truncate(s.file("log"), 4), os.Remove(s.file("trace"))); err != nil {
		t.Fatal(err)
	}
	c := newCoordinator()
	ship(t, o, c)
	await(t, "acknowledgement", s.Done())
	c.check(t, "run_a.1", map[string]string{"log": "0123", "diff": "0123456789"}, `{}`)
	if got := len(s.Gaps()); got != 1 { // that of the log is its recorder's
		t.Errorf("gaps %+v", s.Gaps())
	}
}

func TestFullOutboxTakesNoAttempt(t *testing.T) {
	t.Parallel()
	o := open(t, Config{MaxBytes: 10})
	s := create(t, o, "run_a", 1)
	write(t, s, "log", "0123456789")
	var full *FullError
	if _, err := o.Create(Attempt{Run: "run_b"}); !errors.As(err, &full) || *full != (FullError{Limit: 10, Measured: 10}) {
		t.Fatalf("create: %v", err)
	}
	c := newCoordinator()
	ship(t, o, c)
	finish(t, s, `{}`)
	await(t, "acknowledgement", s.Done())
	create(t, o, "run_b", 0)
}

func TestRejectedIsBounded(t *testing.T) {
	t.Parallel()
	o := open(t, Config{RejectedBytes: 1500})
	c := newCoordinator()
	ship(t, o, c)
	for i := range 4 {
		run := fmt.Sprintf("run_%d", i)
		c.set(func() { c.answer[run+".0"] = Ack{Status: Rejected} })
		s := create(t, o, run, 0)
		write(t, s, "log", strings.Repeat("x", 500))
		finish(t, s, `{}`)
		await(t, run, s.Done())
	}
	left, err := os.ReadDir(filepath.Join(o.cfg.Dir, rejectedDir))
	if err != nil || len(left) != 2 || left[1].Name() != "run_3.0" {
		t.Errorf("kept: %v, %v", left, err)
	}
}

func TestLargeRejectedIsKept(t *testing.T) {
	t.Parallel()
	o := open(t, Config{RejectedBytes: 100})
	c := newCoordinator()
	ship(t, o, c)
	for _, run := range []string{"run_a", "run_b"} {
		c.set(func() { c.answer[run+".0"] = Ack{Status: Rejected} })
		s := create(t, o, run, 0)
		write(t, s, "log", strings.Repeat("x", 500))
		finish(t, s, `{}`)
		await(t, run, s.Done())
		left, err := os.ReadDir(filepath.Join(o.cfg.Dir, rejectedDir))
		if err != nil || len(left) != 1 || left[0].Name() != run+".0" {
			t.Errorf("kept: %v, %v; want the one that was rejected last", left, err)
		}
	}
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	c := newCoordinator()
	ship(t, o, c)
	s := create(t, o, "run_a", 1)
	write(t, s, "log", "x")
	c.await(t, "run_a.1", "log", 1)
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	await(t, "abandoned", s.Done())
	if err := s.Finish(json.RawMessage(`{}`)); !errors.Is(err, ErrFinished) {
		t.Errorf("finish after abandon: %v", err)
	}
	if _, err := s.Channel("log").Write([]byte("y")); !errors.Is(err, ErrFinished) {
		t.Errorf("write after abandon: %v", err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
	again := create(t, o, "run_a", 1)
	finish(t, again, `{}`)
	await(t, "the same attempt again", again.Done())
}

func TestP15_BadInput(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	for _, a := range []Attempt{{Run: ""}, {Run: "../x"}, {Run: "a/b"}, {Run: ".x"}, {Run: "a\x00"}, {Run: "a b"}, {Run: "a", Epoch: -1}, {Run: strings.Repeat("a", 201)}} {
		if s, err := o.Create(a); err == nil {
			t.Errorf("create %q: made %s", a.Run, s.dir)
		}
	}
	s := create(t, o, "run_a", 1)
	if _, err := o.Create(s.Attempt()); !errors.Is(err, ErrExists) {
		t.Errorf("the same attempt: %v", err)
	}
	for _, name := range []string{"", "..", "../log", "a/b", "attempt.json", "RESULT.json", ".scratch-x", "a\\b"} {
		if n, err := s.Channel(name).Write([]byte("x")); n != 0 || err == nil {
			t.Errorf("channel %q: %d, %v", name, n, err)
		}
	}
	if err := s.Finish(json.RawMessage(`{"a":`)); err == nil {
		t.Error("a result that is no JSON was taken")
	}
	if _, err := Open(Config{Dir: o.cfg.Dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second runner: %v", err)
	}
	finish(t, s, `{}`)
	if err := s.Finish(json.RawMessage(`{}`)); !errors.Is(err, ErrFinished) {
		t.Errorf("second finish: %v", err)
	}
}

// TestForeignFilesAreMovedAside: what a crash, a disk or a person left there keeps
// no runner from starting.
func TestForeignFilesAreMovedAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"run_a.1/attempt.json": `{"run":"run_a","epo`, "run_b.1/log": "no attempt.json",
		"run_c.1/attempt.json": `{"run":"run_x","epoch":1}`, "notes.txt": "mine",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	o := open(t, Config{Dir: dir})
	if got := o.List(); len(got) != 0 {
		t.Errorf("attempts %+v", got)
	}
	for _, name := range []string{".rejected/run_a.1/attempt.json", ".rejected/run_b.1/log", ".rejected/run_c.1", "notes.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestP12_TokenIsHidden(t *testing.T) {
	t.Parallel()
	o := open(t, Config{})
	s := create(t, o, "run_a", 1)
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "attempt", s.Attempt())
	fmt.Fprintf(&b, "%v %+v %#v %s", s.Attempt(), s.Attempt(), s.Attempt(), s.Attempt())
	if strings.Contains(b.String(), "tok_secret") {
		t.Errorf("token shows in %s", b.String())
	}
	info, err := os.Stat(filepath.Join(s.dir, attemptFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("attempt.json: %v, %v", info.Mode(), err)
	}
}

func TestOpenAndScratch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, Config{Dir: dir})
	s := create(t, o, "run_a", 1)
	read := func(channel string) string {
		t.Helper()
		r, err := s.Open(channel)
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
	s.Channel("artifact:a.png")
	if got := read("artifact:a.png"); got != "" {
		t.Errorf("unwritten channel: %q", got)
	}
	write(t, s, "artifact:a.png", "png")
	if got := read("artifact:a.png"); got != "png" {
		t.Errorf("channel: %q", got)
	}
	if _, err := s.Open("trace"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown channel: %v", err)
	}
	f, err := s.Scratch("ring")
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("x")
	f.Close()
	o.Close()
	o = open(t, Config{Dir: dir})
	if d := cmp.Diff(map[string]int64{"artifact:a.png": 3}, o.List()[0].Bytes); d != "" {
		t.Errorf("after a restart (-want):\n%s", d)
	}
	if _, err := os.Stat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scratch file after a restart: %v", err)
	}
}
