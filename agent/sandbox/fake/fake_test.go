package fake

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/everdict/everdict/agent/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a sandbox with a script.
func start(t *testing.T, script string) (*Driver, sandbox.ComputeHandle, string) {
	t.Helper()
	d, dir := New(Config{Script: script}), t.TempDir()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "run_a.1", Dir: dir, Env: []string{"A=base"}})
	if err != nil {
		t.Fatalf("start with %q: %v", script, err)
	}
	return d, h, dir
}

func run(t *testing.T, h sandbox.ComputeHandle, c sandbox.Command) (sandbox.Exit, error) {
	t.Helper()
	p, err := h.Exec(t.Context(), c)
	if err != nil {
		t.Fatalf("exec %q: %v", c.Args, err)
	}
	return p.Wait()
}

func TestCheck(t *testing.T) {
	for _, s := range []string{
		"exec", "fly: ok", "exec: dance", "exec: sleep", "exec: sleep long", "exec: exit x", "exec: signal 9",
		"freeze: exit 3", "start now: ok", `exec: print "open`, "exec: hang up", "exec: print",
	} {
		if err := Check(s); err == nil {
			t.Errorf("script %q passed", s)
		}
	}
	if err := Check("# comment\n\nexec once git: print x; exit 128\nrelease once: fail busy"); err != nil {
		t.Errorf("a good script: %v", err)
	}
	if _, err := New(Config{Script: "fly: ok"}).Start(t.Context(), sandbox.Spec{Attempt: "a", Dir: "/"}); err == nil {
		t.Errorf("start with a bad script succeeded")
	}
}

func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, dir := start(t, `
exec once git: print first; exit 128
exec git: print "a\x00b"; err oops; write sub/x hello there; append sub/x ; exit 0
exec crash: signal SIGSEGV
exec cat: cat; env A; env B
exec gone: fail no such command
exec lost: lost connection reset
`)
		var out, errOut bytes.Buffer
		git := sandbox.Command{Args: []string{"git", "status"}, Stdout: &out, Stderr: &errOut}
		if e, err := run(t, h, git); e.Code != 128 || err != nil || out.String() != "first\n" {
			t.Errorf("first git: %+v, %v, %q", e, err, out.String())
		}
		out.Reset()
		if e, err := run(t, h, git); !e.Success() || err != nil || out.String() != "a\x00b" || errOut.String() != "oops\n" {
			t.Errorf("second git: %+v, %v, %q %q", e, err, out.String(), errOut.String())
		}
		if b, err := os.ReadFile(filepath.Join(dir, "sub/x")); string(b) != "hello there" {
			t.Errorf("file is %q, %v", b, err)
		}
		if e, _ := run(t, h, sandbox.Command{Args: []string{"crash"}}); e.Signal != "SIGSEGV" || e.Code != -1 {
			t.Errorf("crash: %+v", e)
		}
		out.Reset()
		c := sandbox.Command{Args: []string{"cat"}, Env: []string{"B=own"}, Stdin: strings.NewReader("in\n"), Stdout: &out}
		if _, err := run(t, h, c); err != nil || out.String() != "in\nbase\nown\n" {
			t.Errorf("cat and env: %v, %q", err, out.String())
		}
		if _, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"gone"}}); err == nil || !strings.Contains(err.Error(), "no such command") {
			t.Errorf("exec that fails: %v", err)
		}
		if _, err := run(t, h, sandbox.Command{Args: []string{"lost"}}); err == nil {
			t.Errorf("a lost process waited without an error")
		}
		if e, err := run(t, h, sandbox.Command{Args: []string{"anything"}}); !e.Success() || err != nil {
			t.Errorf("a command without a rule: %+v, %v", e, err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, _ := start(t, "exec stubborn: stubborn; hang\nexec agent: answer 0; hang\nexec chatty: print x; sleep 3s; print y; sleep 3s; print z; hang")
		began := time.Now()
		e, _ := run(t, h, sandbox.Command{Args: []string{"stubborn"}, Timeout: 3 * time.Second})
		if e.Reason != sandbox.ReasonTimeout || e.Fired.Measured != 3*time.Second || e.Signal != "SIGKILL" ||
			!slices.Equal(e.Sent, []string{"SIGINT", "SIGTERM", "SIGKILL"}) || time.Since(began) != 10*time.Second {
			t.Errorf("stubborn: %+v after %s, wanted 3 s and the whole ladder", e, time.Since(began))
		}
		e, _ = run(t, h, sandbox.Command{Args: []string{"agent"}, Timeout: 3 * time.Second})
		if e.Reason != sandbox.ReasonTimeout || e.Code != 0 || e.Success() || !slices.Equal(e.Sent, []string{"SIGINT"}) {
			t.Errorf("agent: %+v, wanted its own answer", e)
		}
		e, _ = run(t, h, sandbox.Command{Args: []string{"chatty"}, IdleTimeout: 4 * time.Second, Timeout: time.Hour})
		if e.Reason != sandbox.ReasonIdle || e.Fired.Measured != 4*time.Second || e.Ran != 10*time.Second {
			t.Errorf("chatty: %+v, fired %+v, wanted idle 4 s after 6 s", e, e.Fired)
		}
		_ = h.Release(t.Context())
	})
}

func TestP3_FrozenTimeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, h, _ := start(t, "exec: sleep 5s; exit 7")
		p, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"agent"}, Timeout: 6 * time.Second, IdleTimeout: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := h.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Exec(ctx, sandbox.Command{Args: []string{"x"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exec while frozen: %v", err)
		}
		time.Sleep(time.Hour - time.Second)
		if err := h.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, err := p.Wait()
		if err != nil || e.Code != 7 || e.Ran != 5*time.Second || e.Frozen != time.Hour {
			t.Errorf("%+v, %v: wanted code 7 after 5 s and one hour frozen", e, err)
		}
		_ = h.Release(t.Context())
		if got := d.Log(); !slices.Equal(got, []string{"start run_a.1", "exec run_a.1 agent", "freeze run_a.1", "exec run_a.1 x", "thaw run_a.1", "release run_a.1"}) {
			t.Errorf("log is %q", got)
		}
	})
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, h, _ := start(t, "exec daemon: leave; exit 0\nexec held: hold; exit 0\nexec: hang\nrelease once: fail busy\nfreeze: fail no freezer")
		if e, _ := run(t, h, sandbox.Command{Args: []string{"daemon"}}); !e.Success() {
			t.Errorf("daemon: %+v", e)
		}
		began := time.Now()
		if e, _ := run(t, h, sandbox.Command{Args: []string{"held"}}); !e.OutputHeld || time.Since(began) != sandbox.DefaultWaitDelay {
			t.Errorf("held: %+v after %s", e, time.Since(began))
		}
		if u, _ := h.Usage(t.Context()); *u.PIDs != 2 {
			t.Errorf("%d processes, wanted the two that were left", *u.PIDs)
		}
		p, _ := h.Exec(t.Context(), sandbox.Command{Args: []string{"agent"}})
		if err := h.Freeze(t.Context()); err == nil {
			t.Errorf("freeze succeeded against the script")
		}
		if err := h.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if e, _ := p.Wait(); e.Reason != sandbox.ReasonKilled || e.Signal != "SIGKILL" {
			t.Errorf("killed: %+v", e)
		}
		if u, _ := h.Usage(t.Context()); *u.PIDs != 0 {
			t.Errorf("%d processes after the kill", *u.PIDs)
		}
		p, _ = h.Exec(t.Context(), sandbox.Command{Args: []string{"agent"}})
		if e, _ := p.Stop(t.Context(), sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: time.Minute}}); e.Signal != "SIGTERM" || e.Reason != sandbox.ReasonStopped {
			t.Errorf("stopped: %+v", e)
		}
		if err := h.Release(t.Context()); err == nil || len(d.Live()) != 1 || d.Close() == nil {
			t.Errorf("first release: %v, live %q", err, d.Live())
		}
		if err := h.Release(t.Context()); err != nil || len(d.Live()) != 0 || d.Close() != nil {
			t.Errorf("second release: %v, live %q", err, d.Live())
		}
		if _, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"x"}}); !errors.Is(err, sandbox.ErrReleased) {
			t.Errorf("exec after release: %v", err)
		}
	})
}

func TestStartFailuresUsageAndSweep(t *testing.T) {
	d := New(Config{Script: "usage: oom; pids; memory 1000; cpu 2s"})
	spec := sandbox.Spec{Attempt: "run_b.1", Dir: t.TempDir(), Image: "start: fail no space"}
	if _, err := d.Start(t.Context(), spec); err == nil || len(d.Live()) != 0 {
		t.Errorf("start: %v, live %q", err, d.Live())
	}
	spec.Image = "start: unsupported GPU count"
	var not *sandbox.UnsupportedError
	if _, err := d.Start(t.Context(), spec); !errors.As(err, &not) || not.What != "GPU count" {
		t.Errorf("start: %v, wanted *UnsupportedError", err)
	}
	spec.Image = ""
	h, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Start(t.Context(), spec); !errors.Is(err, sandbox.ErrInUse) {
		t.Errorf("second start: %v", err)
	}
	if u, err := h.Usage(t.Context()); err != nil || *u.OOMKills != 1 || *u.PIDsHits != 1 || *u.PeakMemory != 1000 || *u.CPU != 2*time.Second {
		t.Errorf("usage %+v, %v", u, err)
	}
	_ = h.Release(t.Context())
	d.AddStray("run_old.1", 3)
	d.AddStray("run_kept.1", 1)
	got, err := d.Sweep(t.Context(), func(a string) bool { return a == "run_kept.1" })
	if err != nil || len(got) != 1 || got[0].Attempt != "run_old.1" || got[0].Processes != 3 {
		t.Errorf("sweep: %+v, %v", got, err)
	}
}
