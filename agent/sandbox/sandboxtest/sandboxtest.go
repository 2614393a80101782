//go:build unix

// Package sandboxtest is the conformance suite of sandbox drivers: every lane passes the same cases.
//
// A sandbox needs a POSIX shell with the usual tools (cat, env, head, sleep, setsid, mkfifo) for it.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// Lane says how to test one driver.
type Lane struct {
	// New returns a driver for one test, of a runner with so many slots; the suite closes it.
	New func(t *testing.T, slots int) sandbox.Driver
	// Adapt completes a spec with what this lane needs, such as an image; nil leaves it.
	Adapt func(spec *sandbox.Spec)
	// Path is the PATH of commands; empty means /usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin.
	Path string
}

// patience bounds every wait for something that must come; it is no measure of speed.
const patience = time.Minute

// Run runs the suite. Each case gets a driver and workspaces of its own.
func Run(t *testing.T, lane Lane) {
	if lane.Path == "" {
		lane.Path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
	}
	for _, group := range [][]testCase{alone, commandCases, outputCases, endCases, timeCases, freezeCases, deadlineCases, lifeCases, budgetCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				if !c.alone {
					t.Parallel()
				}
				c.run(newBench(t, lane, 1))
			})
		}
	}
}

type testCase struct {
	name  string
	alone bool // measures the process as a whole: nothing may run beside it
	run   func(b *bench)
}

// bench is one case's test with its driver.
type bench struct {
	*testing.T
	lane   Lane
	driver sandbox.Driver
}

func newBench(t *testing.T, lane Lane, slots int) *bench {
	b := &bench{T: t, lane: lane, driver: lane.New(t, slots)}
	t.Cleanup(func() {
		if err := b.driver.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return b
}

var attempts atomic.Int64

// spec returns a spec with a fresh workspace and attempt.
func (b *bench) spec() sandbox.Spec {
	b.Helper()
	s := sandbox.Spec{
		Attempt: fmt.Sprintf("suite-%d-%d.1", os.Getpid(), attempts.Add(1)),
		Dir:     b.TempDir(),
		Env:     []string{"PATH=" + b.lane.Path, "LC_ALL=C"},
	}
	if b.lane.Adapt != nil {
		b.lane.Adapt(&s)
	}
	return s
}

// box is a sandbox with its workspace.
type box struct {
	sandbox.ComputeHandle
	b   *bench
	dir string
}

// start starts a sandbox that is released at the end of the test at the latest.
func (b *bench) start(change ...func(*sandbox.Spec)) box {
	b.Helper()
	s := b.spec()
	for _, f := range change {
		f(&s)
	}
	h, err := b.driver.Start(b.Context(), s)
	if err != nil {
		b.Fatalf("start %+v: %v", s, err)
	}
	b.Cleanup(func() {
		if err := h.Release(context.Background()); err != nil {
			b.Errorf("release at the end: %v", err)
		}
	})
	return box{ComputeHandle: h, b: b, dir: s.Dir}
}

// sh is a command of the shell.
func sh(script string, args ...string) sandbox.Command {
	return sandbox.Command{Args: append([]string{"sh", "-c", script, "sh"}, args...)}
}

// exec starts a command.
func (x box) exec(c sandbox.Command) sandbox.Process {
	x.b.Helper()
	p, err := x.Exec(x.b.Context(), c)
	if err != nil {
		x.b.Fatalf("exec %q: %v", c.Args, err)
	}
	return p
}

// wait waits for a process.
func (b *bench) wait(p sandbox.Process) sandbox.Exit {
	b.Helper()
	b.soon(p.Done(), "the process to be done")
	exit, err := p.Wait()
	if err != nil {
		b.Fatalf("wait: %v (exit %+v)", err, exit)
	}
	return exit
}

// run executes a command and returns its exit and output.
func (x box) run(c sandbox.Command) (sandbox.Exit, string, string) {
	x.b.Helper()
	var out, errOut buffer
	c.Stdout, c.Stderr = &out, &errOut
	exit := x.b.wait(x.exec(c))
	return exit, out.String(), errOut.String()
}

// ok runs a script that must succeed and returns its output.
func (x box) ok(script string, args ...string) string {
	x.b.Helper()
	exit, out, errOut := x.run(sh(script, args...))
	if !exit.Success() {
		x.b.Fatalf("script %q: %+v, stderr %q", script, exit, errOut)
	}
	return out
}

// soon waits for a channel to be closed.
func (b *bench) soon(c <-chan struct{}, what string) {
	b.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		b.Fatalf("waited %s for %s", patience, what)
	}
}

// until waits for a condition.
func (b *bench) until(what string, ok func() bool) {
	b.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// within fails when f takes longer than promise P6 allows.
func (b *bench) within(d time.Duration, what string, f func() error) {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	if took := time.Since(start); took > d {
		b.Errorf("%s took %s, at most %s is allowed", what, took, d)
	}
}

// limited returns the limit in force, if there is one.
func limited(h sandbox.ComputeHandle, name string) (sandbox.Limit, bool) {
	for _, l := range h.Info().Limits {
		if l.Name == name {
			return l, true
		}
	}
	return sandbox.Limit{}, false
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// roll is a named pipe in a workspace that processes hold open as long as they live: each writes one byte when it
// has opened it, and the end of file comes with the last one's death. It shows the end of processes of any lane,
// without their numbers and without waiting for something not to happen.
type roll struct {
	b    *bench
	f    *os.File
	path string
}

// hold is shell code that joins the roll "r" of the working directory, for this process and all that it starts.
const hold = `exec 9>r; printf x >&9; `

func (x box) roll() *roll {
	x.b.Helper()
	path := filepath.Join(x.dir, "r")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		x.b.Fatalf("make a fifo: %v", err)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		x.b.Fatalf("open %s: %v", path, err)
	}
	r := &roll{b: x.b, f: os.NewFile(uintptr(fd), path), path: path}
	x.b.Cleanup(func() { r.f.Close() })
	return r
}

// joined waits until n processes hold the pipe.
func (r *roll) joined(n int) {
	r.b.Helper()
	buf := make([]byte, 1)
	got := 0
	r.b.until(fmt.Sprintf("%d processes to join the roll", n), func() bool {
		for got < n {
			_ = r.f.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			k, err := r.f.Read(buf)
			got += k
			if err != nil {
				return false
			}
		}
		return true
	})
}

// empty fails unless every holder is gone within d.
func (r *roll) empty(d time.Duration) {
	r.b.Helper()
	_ = r.f.SetReadDeadline(time.Now().Add(d))
	for buf := make([]byte, 512); ; {
		switch _, err := r.f.Read(buf); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			r.b.Fatalf("processes of the sandbox are still alive after %s: %v", d, err)
		}
	}
}

// settle bounds what may pass between a kill that has returned and the kernel's closing of the dead one's files.
const settle = 5 * time.Second

// size is how much a file holds; 0 when there is none.
func (x box) size(name string) int64 {
	st, err := os.Stat(filepath.Join(x.dir, name))
	if err != nil {
		return 0
	}
	return st.Size()
}

// counter is shell code that appends to a file for ever, some hundred times a second.
const counter = `while :; do printf . >>count; sleep 0.002; done`

// ticks waits for another sandbox to count to n: time that passes for processes, without a sleep of the test.
func (x box) ticks(n int64) {
	x.b.Helper()
	start := x.size("count")
	x.b.until(fmt.Sprintf("%d ticks of a running sandbox", n), func() bool { return x.size("count") >= start+n })
}
