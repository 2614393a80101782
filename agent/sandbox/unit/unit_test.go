//go:build linux

package unit_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/agent/sandbox/unit"
)

// start is a sandbox in a container of the image "job:1" whose control group says what
// is in cgroup.
func start(t *testing.T, cgroup string, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	t.Helper()
	processes := process.New(process.Config{NoMask: true, Enclosure: process.EnclosureReaper})
	t.Cleanup(func() {
		if err := processes.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &unit.Driver{Driver: processes, Image: "job:1", By: "the cluster", NoNetwork: spec.Image == "closed", Cgroup: cgroup}
	if d.NoNetwork {
		spec.Image = ""
	}
	spec.Attempt, spec.Dir = "run_1.1", t.TempDir()
	h, err := d.Start(t.Context(), spec)
	if err == nil {
		t.Cleanup(func() {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	return h, err
}

// What the cluster enforces is not refused, and shown; what nobody does is refused.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	h, err := start(t, t.TempDir(), sandbox.Spec{Image: "job:1", Resources: sandbox.Resources{MemoryMB: 64, CPUMillis: 500, GPU: 1}})
	if err != nil {
		t.Fatalf("start with what the cluster enforces: %v", err)
	}
	found := map[string]int64{}
	for _, l := range h.Info().Limits {
		if l.By == "the cluster" {
			found[l.Name] = l.Value
		}
	}
	if len(found) != 3 || found["memory"] != 64<<20 || found["cpu"] != 500 || found["gpu"] != 1 || h.Info().Image != "job:1" {
		t.Errorf("info %+v, want the image and three limits of the cluster", h.Info())
	}
	if _, err := start(t, t.TempDir(), sandbox.Spec{Image: "closed", Network: sandbox.NetworkNone}); err != nil {
		t.Errorf("no network, which the cluster holds: %v", err)
	}
	var unsupported *sandbox.UnsupportedError
	for what, spec := range map[string]sandbox.Spec{
		"image":   {Image: "other:1"},
		"network": {Network: sandbox.NetworkNone},
	} {
		if _, err := start(t, t.TempDir(), spec); !errors.As(err, &unsupported) || unsupported.What != what {
			t.Errorf("%s that is not the container's: %v, want it refused", what, err)
		}
	}
}

// The container's own count says that the kernel has killed something since the start.
func TestOOMKillsOfTheContainer(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"v2": "memory.events", "v1": "memory/memory.oom_control"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			write := func(s string) {
				t.Helper()
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(s), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			write("low 0\noom 3\noom_kill 2\n")
			h, err := start(t, dir, sandbox.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			write("low 0\noom 4\noom_kill 3\n")
			u, err := h.Usage(t.Context())
			if err != nil || u.OOMKills == nil || *u.OOMKills != 1 {
				t.Errorf("usage %+v, %v; want one kill since the start", u, err)
			}
		})
	}
	h, err := start(t, t.TempDir(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if u, err := h.Usage(t.Context()); err != nil || u.OOMKills != nil {
		t.Errorf("usage %+v, %v where nothing says: want it unknown", u, err)
	}
}
