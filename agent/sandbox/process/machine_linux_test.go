package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

func TestP12_RefusesWhatItCannotEnforce(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		for what, change := range map[string]func(*sandbox.Spec){
			"image":         func(s *sandbox.Spec) { s.Image = "debian:12" },
			"network":       func(s *sandbox.Spec) { s.Network = sandbox.NetworkNone },
			"GPU count":     func(s *sandbox.Spec) { s.Resources.GPU = 1 },
			"memory limit":  func(s *sandbox.Spec) { s.Resources.MemoryMB = 64 },
			"process limit": func(s *sandbox.Spec) { s.Resources.PIDs = 64 },
			"CPU limit":     func(s *sandbox.Spec) { s.Resources.CPUMillis = 500 },
		} {
			s := sandbox.Spec{Attempt: "refuse-1", Dir: t.TempDir()}
			change(&s)
			h, err := d.Start(t.Context(), s)
			limit := strings.HasSuffix(what, "limit")
			name := map[string]string{"memory limit": "memory", "process limit": "pids", "CPU limit": "cpu"}[what]
			if limit && d.machine.cgroup != nil && d.machine.cgroup.enforces(name) != "" {
				if err != nil {
					t.Errorf("%s: %v, although it can be enforced", what, err)
					continue
				}
				if err := h.Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
				continue
			}
			var not *sandbox.UnsupportedError
			if !errors.As(err, &not) || not.What != what || not.Reason == "" || not.Wanted == "" {
				t.Errorf("%s: %v, wanted a complete *UnsupportedError", what, err)
			}
		}
	})
}

func TestF44_DefaultProcessLimitIsVisible(t *testing.T) {
	t.Parallel()
	d := newDriver(t, Config{})
	defer d.Close()
	if d.machine.cgroup == nil || d.machine.cgroup.enforces("pids") == "" {
		t.Skip("processes cannot be limited here")
	}
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "limit-1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	limits := h.Info().Limits
	i := slices.IndexFunc(limits, func(l sandbox.Limit) bool { return l.Name == "pids" })
	if want := d.machine.has.Share(1).PIDs; i < 0 || limits[i].Value != want || !limits[i].Default || want < 256 || want > 4096 {
		t.Errorf("limits %+v: wanted the default of %d processes", limits, want)
	}
}

func TestCPULimitSlowsDown(t *testing.T) {
	t.Parallel()
	d := newDriver(t, Config{})
	defer d.Close()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "cpu-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Resources: sandbox.Resources{CPUMillis: 100}})
	var not *sandbox.UnsupportedError
	if errors.As(err, &not) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	p, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", "while :; do :; done"}, Timeout: time.Second, Ladder: sandbox.Ladder{}})
	if err != nil {
		t.Fatal(err)
	}
	exit, _ := p.Wait()
	u, err := h.Usage(t.Context())
	if err != nil || u.CPU == nil || *u.CPU > exit.Ran/4 {
		t.Errorf("a loop limited to a tenth of a CPU used %v in %s (%v)", u.CPU, exit.Ran, err)
	}
}

func TestP6_NothingIsLeftInCgroups(t *testing.T) {
	t.Parallel()
	d := newDriver(t, Config{})
	if d.machine.cgroup == nil {
		t.Skip("no cgroups here")
	}
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "clean-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	output(t, h, "(setsid sleep 1000 >/dev/null 2>&1 &)")
	output(t, h, "exit 3")
	roots := d.machine.cgroup.roots()
	if cells, _ := filepath.Glob(filepath.Join(roots[0], "clean-1", "c[0-9]*")); len(cells) != 1 {
		t.Errorf("cells %q: wanted the one with a process left, the other removed at its command's end", cells)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range roots {
		if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, os.DirEntry.IsDir) {
			t.Errorf("after release %s holds %v, %v", dir, left, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range roots {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after close %s exists: %v", dir, err)
		}
	}
}

func TestOrphansAreCollected(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "orphans-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		pids := strings.Fields(output(t, h, `for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'echo $$' & ); done; sleep 0.2`))
		if len(pids) != 9 {
			t.Fatalf("orphans %q, wanted nine", pids)
		}
		// The loop that collects runs every second; a living sandbox need not be touched for it.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err = poll(ctx, func() (bool, error) {
			for _, s := range pids {
				pid, err := strconv.Atoi(s)
				if err != nil {
					return false, err
				}
				if p, ok := statProc(pid); ok && p.ppid == os.Getpid() && p.dead() {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			t.Errorf("orphans stay as zombies: %v", err)
		}
	})
}

func TestForeignChildrenAreLeftAlone(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		// A child of the runner that is no sandbox's: its end is its owner's to collect, and its life is its own.
		child, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "foreign-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		output(t, h, "(setsid sleep 1000 >/dev/null 2>&1 &)")
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, ok := statProc(child.Pid); !ok || p.dead() {
			t.Errorf("a release ended another child of the runner")
		}
		if err := child.Kill(); err != nil {
			t.Error(err)
		}
		family.reapChildren()
		if state, err := child.Wait(); err != nil || state == nil {
			t.Errorf("the end of another child was collected: %v", err)
		}
	})
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	ns, err := pidNamespace()
	if err != nil {
		t.Fatal(err)
	}
	own, err := instanceName()
	if err != nil {
		t.Fatal(err)
	}
	self, _ := statProc(os.Getpid())
	for instance, want := range map[string]bool{
		own: false,
		fmt.Sprintf("%s-%d-%d-1", ns, self.pid, self.start+1): true,  // the number is another's now
		fmt.Sprintf("%s-%d-1-1", ns, 1<<22+1):                 true,  // no such process
		fmt.Sprintf("9-%d-%d-1", self.pid, self.start+1):      false, // of another namespace nothing is known
		"":      false,
		"a-b":   false,
		ns:      false,
		"x-y-z": false,
	} {
		if got := orphaned(instance, ns); got != want {
			t.Errorf("orphaned(%q) = %v", instance, got)
		}
	}
	for _, m := range []string{"", "x", "x.", "x.-1", "x.1e3"} {
		if _, _, ok := splitMarker(m); ok {
			t.Errorf("marker %q was taken", m)
		}
	}
	if i, seq, ok := splitMarker(own + ".7"); !ok || i != own || seq != 7 {
		t.Errorf("marker of %s: %q, %d, %v", own, i, seq, ok)
	}
}

func TestProcsSeesItself(t *testing.T) {
	t.Parallel()
	all, err := procs()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int]int)
	for _, p := range all {
		seen[p.pid]++
		if seen[p.pid] > 1 {
			t.Errorf("process %d is in the table twice", p.pid)
		}
	}
	if seen[os.Getpid()] != 1 || seen[1] != 1 {
		t.Errorf("the table of %d lacks this process or the first", len(all))
	}
}
