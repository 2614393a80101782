//go:build unix

package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

const counting = `while :; do printf . >>count; sleep 0.01; done`

func sizeOf(dir string) int64 {
	if st, err := os.Stat(filepath.Join(dir, "count")); err == nil {
		return st.Size()
	}
	return 0
}

func grows(t *testing.T, dir, when string) {
	t.Helper()
	from := sizeOf(dir)
	until(t, when+" it counts", func() bool { return sizeOf(dir) > from })
}

// still waits until nothing was counted for some time.
func still(t *testing.T, dir, when string, d time.Duration) {
	t.Helper()
	last, since := sizeOf(dir), time.Now()
	until(t, when+" it stands still", func() bool {
		if now := sizeOf(dir); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > d
	})
}

func deadlineIn(t *testing.T, h sandbox.ComputeHandle, d time.Duration) {
	t.Helper()
	if err := h.FreezeAt(t.Context(), time.Now().Add(d)); err != nil {
		t.Fatalf("deadline in %s: %v", d, err)
	}
}

// stoppedTimeout is less than what passes for the command of a runner that is stopped, and more than what it runs.
const stoppedTimeout = 8 * time.Second

// TestF32_P3_ContainersFreezeWhenTheRunnerIsStopped: the runner is another process, which this one stops.
func TestF32_P3_ContainersFreezeWhenTheRunnerIsStopped(t *testing.T) {
	if dir := os.Getenv("EVERDICT_TEST_STOPPED"); dir != "" {
		if err := stoppedRunner(dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	dir := t.TempDir()
	runner := exec.Command(os.Args[0], "-test.run", "^TestF32_P3_ContainersFreezeWhenTheRunnerIsStopped$")
	runner.Env = append(os.Environ(), "EVERDICT_TEST_STOPPED="+dir)
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
	grows(t, dir, "before the stop")
	order("deadline")
	if err := runner.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Longer than the command may run: that time is not its own.
	still(t, dir, "after the deadline", stoppedTimeout)
	frozen := sizeOf(dir)
	if err := runner.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	order("freeze")
	still(t, dir, "without a word that the lease stands", 300*time.Millisecond)
	if now := sizeOf(dir); now != frozen {
		t.Errorf("the job went on when the runner did, from %d to %d", frozen, now)
	}
	order("thaw")
	grows(t, dir, "after the thaw")
	var usage, inFrozen, ran int64
	order("release", &usage, &inFrozen, &ran)
	if want := stoppedTimeout.Milliseconds(); usage < want || inFrozen < want || ran >= want {
		t.Errorf("frozen for %d ms, the command for %d ms, ran for %d ms; wanted at least %d frozen", usage, inFrozen, ran, want)
	}
}

// stoppedRunner takes its orders from stdin.
func stoppedRunner(dir string) error {
	d, ctx := New(Config{Image: busybox}), context.Background()
	defer d.Close()
	h, err := d.Start(ctx, sandbox.Spec{Attempt: fmt.Sprintf("stopped-%d.1", os.Getpid()), Dir: dir, Env: []string{"PATH=/bin"}})
	if err != nil {
		return err
	}
	p, err := h.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", counting}, Timeout: stoppedTimeout})
	if err != nil {
		return err
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		err := fmt.Errorf("what is %q", orders.Text())
		switch orders.Text() {
		case "deadline":
			err = h.FreezeAt(ctx, time.Now().Add(time.Second))
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
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return orders.Err()
}

// timers make the kernel continue the process that asks for it, every 20 ms for 40 s. Each is a timer of its own: a stop
// takes away a signal that is on its way, and with it a timer that repeats.
const timers = `
use strict;
$SIG{CONT} = sub {};
my $amd64 = qx(uname -m) =~ /x86_64/;
sub wake {
	my ($event, $id, $null) = (pack("q l l x48", 0, 18, 0), "\0" x 8, 0);
	syscall($amd64 ? 222 : 107, 1, $event, $id) == 0 or die "timer_create: $!";
	my $spec = pack("q4", 0, 0, int($_[0] / 1000), $_[0] % 1000 * 1000000);
	syscall($amd64 ? 223 : 110, unpack("l", $id), 0, $spec, $null) == 0 or die "timer_settime: $!";
}
open(my $f, ">>", "count");
sub work { syswrite($f, "."); select(undef, undef, undef, 0.001) }
wake(20 * $_) for 1..2000;
`

// A stopped process can be continued from inside: by a timer of its own, by another that was not stopped yet, by one
// whose first thread has ended and that has no state to be seen. What does not stay stopped ends.
func TestP3_WhatDoesNotStayStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		command []string
		ends    bool
	}{
		{"it is continued by timers", []string{"perl", "-e", timers + `work() while 1`}, true},
		{"it works for moments and stops itself for the rest", []string{"perl", "-e", timers + `while (1) { work() for 1..5; kill "STOP", $$ }`}, true},
		{"its first thread has ended", []string{"perl", "-Mthreads", "-e", timers + `
threads->create(sub { work() while 1 })->detach;
syscall($amd64 ? 60 : 93, 0)`}, true},
		{"all continue all", []string{"python3", "-c", `
import os, signal
for _ in range(16):
    if os.fork() == 0: break
f = open("count", "ab", buffering=0)
while True:
    try: os.kill(-1, signal.SIGCONT)
    except ProcessLookupError: pass
    f.write(b".")
`}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Image: debian})
			b := r.start()
			p := b.exec(sandbox.Command{Args: c.command})
			grows(t, b.spec.Dir, "before the deadline")
			deadlineIn(t, b, 20*time.Millisecond)
			if c.ends {
				select {
				case <-p.Done():
				case <-time.After(patience):
					t.Fatalf("it was held for %s, or was not", patience)
				}
				if exit, err := p.Wait(); err == nil || !strings.Contains(err.Error(), "did not stay stopped") {
					t.Errorf("%+v, %v: wanted to hear why", exit, err)
				}
			}
			still(t, b.spec.Dir, "after the deadline", 500*time.Millisecond)
			if err := b.Kill(t.Context()); err != nil {
				t.Errorf("kill: %v", err)
			}
		})
	}
}

// What honest jobs do is no waking up: many threads, children that are waited for, little of a CPU to stop on.
func TestP3_WhatStaysStoppedIsLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cpu     int64
		command []string
	}{
		{"many threads", 0, []string{"python3", "-c", `
import subprocess, threading, time
f = open("count", "ab", buffering=0)
def spin():
    while True: pass
for _ in range(3): threading.Thread(target=spin).start()
for _ in range(40): threading.Thread(target=time.sleep, args=(1000,)).start()
for _ in range(20): subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"])
while True:
    f.write(b".")
    time.sleep(0.01)
`}},
		{"little CPU", 200, []string{"sh", "-c", `
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (while :; do :; done) & done
while :; do printf . >>count; sleep 0.01; done`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Image: debian})
			b := r.start(func(s *sandbox.Spec) { s.Resources.CPUMillis = c.cpu })
			b.exec(sandbox.Command{Args: c.command})
			p := b.exec(sh("sleep 1000"))
			grows(t, b.spec.Dir, "before the deadline")
			deadlineIn(t, b, 20*time.Millisecond)
			still(t, b.spec.Dir, "after the deadline", 2*time.Second)
			if _, err := p.Stop(t.Context(), sandbox.Ladder{}); err != nil {
				t.Errorf("stop of one command: %v", err)
			}
			if err := p.Signal(syscall.SIGTERM); !errors.Is(err, sandbox.ErrEnded) {
				t.Errorf("signal to one that was stopped: %v", err)
			}
			still(t, b.spec.Dir, "after a stop of one of its commands", time.Second)
			deadlineIn(t, b, time.Hour)
			grows(t, b.spec.Dir, "with a new deadline")
		})
	}
}

// An instant that was reckoned before the runner stood still must not let anything go on afterwards.
func TestP3_AnOldWordDoesNotThaw(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	b.exec(sh(counting))
	grows(t, b.spec.Dir, "before the deadline")
	l := b.ComputeHandle.(*handle).link
	a, err := l.deadline(t.Context(), askDeadline, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := stopwatch.Now()
	word := a.instant(stopwatch.Reading{Mono: now.Mono + 200*time.Millisecond, Wall: now.Wall + 200*time.Millisecond})
	deadlineIn(t, b, 10*time.Millisecond)
	still(t, b.spec.Dir, "after the deadline", 300*time.Millisecond)
	if a, err := l.deadline(t.Context(), setDeadline, word); err != nil || !a.held {
		t.Errorf("an instant that has passed: %+v, %v; wanted that it holds", a, err)
	}
	if a, err := l.deadline(t.Context(), setDeadline, a.init+time.Hour); err != nil || a.held {
		t.Errorf("an instant to come: %+v, %v; wanted that it does not hold", a, err)
	}
	grows(t, b.spec.Dir, "with a new deadline")
}

func TestP3_WarmContainersHaveNoDeadline(t *testing.T) {
	t.Parallel()
	r, s := warmRig(t)
	for i := range 2 {
		until(t, "a container to be ready", func() bool { return r.ready() > 0 })
		dir, ok := r.d.Reserve(s)
		if !ok {
			t.Fatal("nothing was ready")
		}
		spec := r.spec()
		spec.Dir = dir
		h, err := r.d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := h.(*handle).link.deadline(t.Context(), askDeadline, 0); err != nil || a.held {
			t.Errorf("start %d: %+v, %v", i, a, err)
		}
		if _, err := h.Exec(t.Context(), sh(counting)); err != nil {
			t.Fatal(err)
		}
		grows(t, dir, "in a warm container")
		deadlineIn(t, h, 20*time.Millisecond)
		still(t, dir, "after the deadline", 300*time.Millisecond)
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
