// Package harnesstest gives tests a harness.Env over a real process sandbox.
package harnesstest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/protocol"
)

// Rig is an attempt without an executor: an empty workspace in a sandbox, and
// what the harness under test reported.
type Rig struct {
	Env            harness.Env
	Stdout, Stderr Buffer

	mu     sync.Mutex
	events []protocol.TraceEvent
	pids   []int
}

var driver = sync.OnceValue(func() *process.Driver { return process.New(process.Config{}) })

var attempts atomic.Int64

// New starts a sandbox that is released, and found empty, at the end of the test.
func New(t testing.TB, spec protocol.HarnessSpec, task string) *Rig {
	t.Helper()
	root := t.TempDir()
	work := filepath.Join(root, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	compute, err := driver().Start(context.Background(), sandbox.Spec{
		Attempt: "harnesstest-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(attempts.Add(1), 10),
		Dir:     work,
		Env:     []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LANG=C.UTF-8"},
	})
	if err != nil {
		t.Fatalf("start a sandbox: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := compute.Release(ctx); err != nil {
			t.Errorf("release the sandbox: %v", err)
		}
	})
	if spec.ID == "" {
		spec.ID = "test"
	}
	if spec.Version == "" {
		spec.Version = "1"
	}
	files, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	r := &Rig{}
	r.Env = harness.Env{
		RunID: "run_test", Case: &protocol.Case{ID: "c1", Task: task}, Spec: &spec, Compute: compute, Root: root, WorkDir: work, Files: files,
		Emit: r.emit, Stdout: &r.Stdout, Stderr: &r.Stderr, Timeout: 60 * time.Second,
		Started: func(pid int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.pids = append(r.pids, pid)
		},
	}
	return r
}

func (r *Rig) emit(ev protocol.TraceEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

// Events returns what was emitted so far.
func (r *Rig) Events() []protocol.TraceEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Kinds returns the kinds of what was emitted.
func (r *Rig) Kinds() []string {
	var kinds []string
	for _, ev := range r.Events() {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}

// Pids returns the processes that were reported as started.
func (r *Rig) Pids() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pids)
}

// Run installs and runs h, and fails the test when either returns an error.
func (r *Rig) Run(t testing.TB, h harness.Harness) harness.Outcome {
	t.Helper()
	if err := h.Install(context.Background(), r.Env); err != nil {
		t.Fatalf("install: %v", err)
	}
	out, err := h.Run(context.Background(), r.Env)
	if err != nil {
		t.Fatalf("run: %v\nstderr: %s", err, r.Stderr.String())
	}
	return out
}

// File returns a file of the workspace, "<absent>" when there is none.
func (r *Rig) File(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Env.WorkDir, name))
	if os.IsNotExist(err) {
		return "<absent>"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Write puts a file into the workspace.
func (r *Rig) Write(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(r.Env.WorkDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Program puts an executable into a directory outside the workspace and that
// directory on the PATH of what runs in the rig.
func (r *Rig) Program(t testing.TB, name, text string) {
	t.Helper()
	dir := filepath.Join(r.Env.Root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Env.Environ = append(r.Env.Environ, "PATH="+dir+":"+os.Getenv("PATH"))
}

// Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Eventually waits until ok returns true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited 20 s for: %s", what)
		case <-tick.C:
		}
	}
}
