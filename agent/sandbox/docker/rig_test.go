//go:build unix

package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/everdict/everdict/agent/sandbox"
)

// patience bounds every wait for something that must come; it is no measure of speed.
const patience = 30 * time.Second

// rig is a driver with what a test asks the engine beside it.
type rig struct {
	*testing.T
	d *Driver
	e *engine
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	if cfg.Image == "" {
		cfg.Image = busybox
	}
	d := New(cfg)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &rig{T: t, d: d, e: engineOf(t)}
}

func engineOf(t *testing.T) *engine {
	t.Helper()
	e, err := connect(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.api.Close() })
	return e
}

func (r *rig) spec(change ...func(*sandbox.Spec)) sandbox.Spec {
	s := sandbox.Spec{Attempt: "test-" + strings.ToLower(rand.Text()) + ".1", Dir: r.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// box is a sandbox.
type box struct {
	sandbox.ComputeHandle
	r    *rig
	spec sandbox.Spec
}

func (r *rig) start(change ...func(*sandbox.Spec)) *box {
	r.Helper()
	s := r.spec(change...)
	h, err := r.d.Start(r.Context(), s)
	if err != nil {
		r.Fatalf("start: %v", err)
	}
	r.Cleanup(func() {
		if err := h.Release(context.Background()); err != nil {
			r.Errorf("release: %v", err)
		}
	})
	return &box{h, r, s}
}

func sh(script string, args ...string) sandbox.Command {
	return sandbox.Command{Args: append([]string{"sh", "-c", script, "sh"}, args...)}
}

func (b *box) exec(c sandbox.Command) sandbox.Process {
	b.r.Helper()
	p, err := b.Exec(b.r.Context(), c)
	if err != nil {
		b.r.Fatalf("exec %q: %v", c.Args, err)
	}
	return p
}

func (b *box) wait(p sandbox.Process) sandbox.Exit {
	b.r.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		b.r.Fatalf("waited %s for a command", patience)
	}
	exit, err := p.Wait()
	if err != nil {
		b.r.Fatalf("wait: %v (%+v)", err, exit)
	}
	return exit
}

// ok runs a script that must succeed and returns its output.
func (b *box) ok(script string, args ...string) string {
	b.r.Helper()
	var out, errOut bytes.Buffer
	c := sh(script, args...)
	c.Stdout, c.Stderr = &out, &errOut
	if exit := b.wait(b.exec(c)); !exit.Success() {
		b.r.Fatalf("script %q: %+v, stderr %q", script, exit, &errOut)
	}
	return out.String()
}

func (b *box) usage() sandbox.Usage {
	b.r.Helper()
	u, err := b.Usage(b.r.Context())
	if err != nil {
		b.r.Fatalf("usage: %v", err)
	}
	return u
}

func (b *box) size(name string) int64 {
	st, err := os.Stat(filepath.Join(b.spec.Dir, name))
	if err != nil {
		return 0
	}
	return st.Size()
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// labelled lists the containers that carry a label.
func (e *engine) labelled(t testing.TB, label string) []container.Summary {
	t.Helper()
	list, err := e.api.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		t.Fatalf("list containers: %v", err)
	}
	return list
}

// lines is a writer of a run's log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
