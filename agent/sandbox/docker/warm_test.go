//go:build unix

package docker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// warmRig is a driver that has two containers ready for what spec says.
func warmRig(t *testing.T) (*rig, sandbox.Spec) {
	t.Helper()
	r := newRig(t, Config{Warm: 2, WarmRoot: t.TempDir()})
	s := r.spec()
	if dir, ok := r.d.Reserve(s); ok {
		t.Fatalf("%s was ready before anything was asked for", dir)
	}
	until(t, "two containers to be ready", func() bool { return r.ready() == 2 })
	return r, s
}

func (r *rig) ready() int {
	r.d.pool.mu.Lock()
	defer r.d.pool.mu.Unlock()
	n := 0
	for _, k := range r.d.pool.kinds {
		n += len(k.ready)
	}
	return n
}

func TestWarmContainersAreUsedOnce(t *testing.T) {
	t.Parallel()
	r, s := warmRig(t)
	seen := map[string]bool{}
	for range 3 {
		until(t, "a container to be ready", func() bool { return r.ready() > 0 })
		dir, ok := r.d.Reserve(s)
		if !ok || seen[dir] || filepath.Dir(dir) != r.d.cfg.WarmRoot {
			t.Fatalf("reserve: %q, %v", dir, ok)
		}
		seen[dir] = true
		spec := r.spec()
		spec.Dir, spec.Env = dir, append(spec.Env, "MINE=1")
		begin := time.Now()
		h, err := r.d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("a warm start took %s", time.Since(begin))
		b := &box{h, r, spec}
		if out := b.ok(`pwd; ls -A; ls /left 2>/dev/null; echo $MINE $EVERDICT_ATTEMPT; touch left /left`); out != dir+"\n1 "+spec.Attempt+"\n" {
			t.Errorf("in a warm container: %q", out)
		}
		if swept, err := r.d.Sweep(t.Context(), notWarm); err != nil || len(swept) != 0 {
			t.Errorf("sweep beside warm containers: %+v, %v", swept, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "left")); err != nil {
			t.Errorf("the workspace is not the container's: %v", err)
		}
		if _, err := r.d.Start(t.Context(), spec); err == nil {
			t.Errorf("the attempt started twice")
		}
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// notWarm keeps what other tests have made.
func notWarm(attempt string) bool { return !strings.HasPrefix(attempt, "warm-") }

func TestWarmContainersServeTheirKindOnly(t *testing.T) {
	t.Parallel()
	r, s := warmRig(t)
	other := s
	other.Resources.MemoryMB = 64
	if dir, ok := r.d.Reserve(other); ok {
		t.Errorf("another kind got %s", dir)
	}
	dir, ok := r.d.Reserve(s)
	if !ok {
		t.Fatal("nothing was ready")
	}
	// Who asks for one kind and starts another gets what it starts.
	other.Attempt, other.Dir = r.spec().Attempt, dir
	h, err := r.d.Start(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{h, r, other}
	if out := b.ok("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true"); out != "67108864\n" {
		t.Errorf("memory limit %q", out)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWarmContainersGoWithTheDriver(t *testing.T) {
	t.Parallel()
	r, s := warmRig(t)
	if _, ok := r.d.Reserve(s); !ok {
		t.Error("nothing was ready")
	}
	if err := r.d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if left := r.e.labelled(t, LabelRunner+"="+string(r.d.owner)); len(left) != 0 {
		t.Errorf("%d containers are left", len(left))
	}
	list, err := os.ReadDir(r.d.cfg.WarmRoot)
	if err != nil || len(list) != 1 { // the one that was handed out
		t.Errorf("workspaces left: %v, %v", list, err)
	}
}
