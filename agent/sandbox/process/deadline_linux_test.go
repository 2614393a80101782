package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// counting is shell code that counts in the files a (the main process), b (a daemon) and c (a daemon that has lost
// its environment, below one that has not), and leaves a process that has stopped itself.
const counting = `count() { echo 'while :; do printf . >>'"$1"'; sleep 0.01; done'; }
(setsid sh -c "$(count b)" </dev/null >/dev/null 2>&1 &)
(setsid sh -c "env -i PATH=$PATH sh -c '$(count c)'; :" </dev/null >/dev/null 2>&1 &)
(setsid sh -c 'kill -STOP $$; printf . >own' </dev/null >/dev/null 2>&1 &)
eval "$(count a)"`

// stoppedMain is the life of a runner that is stopped: it tells its guard, and takes its orders from stdin.
func stoppedMain(d *Driver, h sandbox.ComputeHandle) error {
	ctx := context.Background()
	p, err := h.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", counting}, Timeout: stoppedTimeout})
	if err != nil {
		return err
	}
	if err := h.FreezeAt(ctx, time.Now().Add(3*time.Second)); err != nil {
		return err
	}
	fmt.Println(d.machine.guard.cmd.Process.Pid, d.machine.guard.dir)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		err := fmt.Errorf("what is %q", orders.Text())
		switch orders.Text() {
		case "freeze":
			err = h.Freeze(ctx)
		case "thaw": // in the order of a tenure that hears that its lease stands
			err = errors.Join(h.FreezeAt(ctx, time.Now().Add(time.Hour)), h.Thaw(ctx))
		case "release":
			select {
			case <-p.Done():
				exit, err := p.Wait()
				return fmt.Errorf("the command has ended: %+v, %w", exit, err)
			default:
			}
			var u sandbox.Usage
			if err = h.Release(ctx); err == nil {
				u, err = h.Usage(ctx)
				exit, _ := p.Wait()
				fmt.Println(u.Frozen.Milliseconds(), exit.Frozen.Milliseconds(), exit.Ran.Milliseconds())
			}
		case "close":
			err = d.Close()
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return orders.Err()
}

// stoppedTimeout is less than what passes for that runner's command, and more than what it runs.
const stoppedTimeout = 8 * time.Second

func TestF32_P3_JobsFreezeWhenTheRunnerIsStopped(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		dir := t.TempDir()
		runner := exec.Command(os.Args[0])
		runner.Env = append(os.Environ(), roleEnv+"=stopped", "EVERDICT_TEST_KIND="+kind, "EVERDICT_TEST_DIR="+dir)
		runner.Stderr = os.Stderr
		in, err1 := runner.StdinPipe()
		out, err2 := runner.StdoutPipe()
		if err := errors.Join(err1, err2, runner.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = runner.Process.Kill()
			_ = runner.Wait()
		})
		r := bufio.NewReader(out)
		var guard int
		var guardDir string
		if _, err := fmt.Fscanln(r, &guard, &guardDir); err != nil {
			t.Fatal(err)
		}
		order := func(what string, answer ...any) {
			t.Helper()
			if _, err := io.WriteString(in, what+"\n"); err != nil {
				t.Fatal(err)
			}
			if len(answer) > 0 {
				if _, err := fmt.Fscanln(r, answer...); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if line, err := r.ReadString('\n'); line != "done\n" {
				t.Fatalf("%s: the runner said %q, %v", what, line, err)
			}
		}
		counts := func() (n [3]int64) {
			for i, name := range []string{"a", "b", "c"} {
				if st, err := os.Stat(filepath.Join(dir, name)); err == nil {
					n[i] = st.Size()
				}
			}
			return n
		}
		grow := func(when string) {
			t.Helper()
			from := counts()
			eventually(t, when+" all count", func() bool {
				n := counts()
				return n[0] > from[0] && n[1] > from[1] && n[2] > from[2]
			})
		}
		still := func(when string, d time.Duration) {
			t.Helper()
			last, since := counts(), time.Now()
			eventually(t, when+" all stand still", func() bool {
				if now := counts(); now != last {
					last, since = now, time.Now()
				}
				return time.Since(since) > d
			})
		}
		grow("before the stop")
		if err := runner.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Longer than the command may run: that time is not its own.
		still("after the deadline", stoppedTimeout)
		frozen := counts()
		if p, ok := statProc(runner.Process.Pid); !ok || !p.halted() {
			t.Fatalf("the runner is not stopped: %+v", p)
		}
		if err := runner.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		order("freeze")
		still("without a word that the lease stands", 300*time.Millisecond)
		if now := counts(); now != frozen {
			t.Errorf("the job went on when the runner did, from %v to %v", frozen, now)
		}
		order("thaw")
		grow("after the thaw")
		if _, err := os.Stat(filepath.Join(dir, "own")); err == nil {
			t.Error("what the job had stopped itself was continued")
		}
		var usage, inFrozen, ran int64
		order("release", &usage, &inFrozen, &ran)
		if want := stoppedTimeout.Milliseconds(); usage < want || inFrozen < want || ran >= want {
			t.Errorf("frozen for %d ms, the command for %d ms, ran for %d ms; wanted at least %d frozen", usage, inFrozen, ran, want)
		}
		order("close")
		all, err := procs()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if group, _ := syscall.Getpgid(p.pid); group == guard {
				t.Errorf("process %d of the guard is left, in state %c", p.pid, p.state)
			}
		}
		if exists(guardDir) {
			t.Errorf("the guard's directory %s is left", guardDir)
		}
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := poll(ctx, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// What a deadline does is the conformance suite's; this is about the guard's files.
func TestP3_TheGuardsDirectory(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		ctx := t.Context()
		x, err := d.Start(ctx, sandbox.Spec{Attempt: "files-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release(context.Background())
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		passes := func(when string) {
			t.Helper()
			must("deadline", x.FreezeAt(ctx, time.Now().Add(50*time.Millisecond)))
			eventually(t, when+" the deadline passes", func() bool { return d.machine.fired("files-1") })
		}
		passes("at first")
		must("no deadline", x.FreezeAt(ctx, time.Time{}))
		if left, err := filepath.Glob(filepath.Join(d.machine.guard.dir, "*")); err != nil || len(left) != 0 {
			t.Errorf("without a deadline the guard watches %q, %v", left, err)
		}
		// A job may clean up in the directory for temporary files.
		must("deadline", x.FreezeAt(ctx, time.Now().Add(time.Hour)))
		must("clean up", os.RemoveAll(d.machine.guard.dir))
		passes("in a new directory")
	})
}

func TestP6_SweepRemovesADeadGuardsDirectory(t *testing.T) {
	t.Parallel()
	ns, err := pidNamespace()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := os.MkdirTemp("", guardDir+fmt.Sprintf("%s-%d-1-1-", ns, 1<<22+1))
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dead)
	if os.Getuid() == 0 {
		if err := asNobody(func() error { return sweepGuards(ns) }); err != nil || !exists(dead) {
			t.Errorf("another user's sweep of a directory that it may not remove: %v, want no error and the directory left", err)
		}
	}
	d := newDriver(t, Config{})
	defer d.Close()
	if _, err := d.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if exists(dead) {
		t.Errorf("%s is left", dead)
	}
	if dir := d.machine.guard.dir; !exists(dir) || !strings.Contains(dir, d.machine.instance) {
		t.Errorf("the sweep removed the directory %s of a living guard", dir)
	}
}

// asNobody calls f as a user who has no rights, on a thread that ends with it.
func asNobody(f func() error) error {
	const nobody = 65534
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: nothing else may run as nobody
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}

// A job can signal the guard as any program of its user can. The next renewal finds out.
func TestP3_AnotherGuardForOneThatAJobHasEnded(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		for _, signal := range []string{"KILL", "STOP"} {
			d := newDriver(t, Config{Enclosure: kind})
			defer d.Close()
			attempt := "guard-" + signal + "." + kind
			h, err := d.Start(t.Context(), sandbox.Spec{Attempt: attempt, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release(context.Background())
			// It watches a deadline when it happens.
			if err := h.FreezeAt(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			g := d.machine.guard
			old := g.cmd.Process.Pid
			if got := output(t, h, fmt.Sprintf("kill -s %s -- -%d && echo sent", signal, old)); got != "sent\n" {
				t.Fatalf("the job's kill said %q", got)
			}
			eventually(t, "the guard has the signal", func() bool {
				p, ok := statProc(old)
				return !ok || p.dead() || p.halted()
			})
			if err := h.FreezeAt(t.Context(), time.Now().Add(100*time.Millisecond)); err != nil {
				t.Errorf("after SIG%s to the guard: %v", signal, err)
			}
			eventually(t, "after SIG"+signal+" to the guard the deadline is kept", func() bool { return g.has("done", attempt) })
			if p, ok := statProc(old); ok {
				t.Errorf("the guard before is still there, in state %c", p.state)
			}
		}
	})
}
