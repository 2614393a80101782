package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/agent/sandbox"
)

// leavings is a driver that finds what a dead runner left.
type leavings struct {
	sandbox.Driver
	attempts []string
	ended    []string
	err      error
}

func (l *leavings) Name() string { return "leavings" }

func (l *leavings) Sweep(_ context.Context, keep func(string) bool) ([]sandbox.Swept, error) {
	var out []sandbox.Swept
	for _, a := range l.attempts {
		if !keep(a) {
			l.ended = append(l.ended, a)
			out = append(out, sandbox.Swept{Attempt: a, Kind: "container", Processes: 2})
		}
	}
	return out, l.err
}

// rubbish is what a runner that was killed leaves in its directories.
func rubbish(t *testing.T) GarbageConfig {
	t.Helper()
	cfg := GarbageConfig{StateDir: filepath.Join(t.TempDir(), "state"), WorkDir: filepath.Join(t.TempDir(), "work")}
	for _, f := range []string{
		filepath.Join(cfg.WorkDir, "work", "run_a.1", "work", "x.txt"), filepath.Join(cfg.WorkDir, "work", "run_a.1", "tmp", "y"),
		filepath.Join(cfg.StateDir, "private", "run_a.1", "baseline"), filepath.Join(cfg.WorkDir, "ask", "01K0"),
		filepath.Join(cfg.WorkDir, "bin", "everdict"), filepath.Join(cfg.StateDir, "credential"),
		filepath.Join(cfg.StateDir, "outbox", "run_a.1", "attempt.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func exists(t *testing.T, elements ...string) bool {
	t.Helper()
	_, err := os.Lstat(filepath.Join(elements...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func kinds(items []Garbage) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.Kind+" "+i.Attempt)
	}
	slices.Sort(out)
	return out
}

func TestP6_CollectAfterACrash(t *testing.T) {
	t.Parallel()
	cfg := rubbish(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(cfg.WorkDir, "work", "run_a.1", "work", "link")); err != nil {
		t.Fatal(err)
	}
	d := &leavings{attempts: []string{"run_b.2", "run_a.1", "run_a.1"}}
	cfg.Drivers, cfg.DryRun = []sandbox.Driver{d}, true

	dry, err := Collect(t.Context(), cfg)
	if err != nil || dry.InUse != "" || len(d.ended) != 0 {
		t.Fatalf("dry run: got %+v, %v, ended %v", dry, err, d.ended)
	}
	want := []string{"private run_a.1", "sandbox run_a.1", "sandbox run_b.2", "socket ", "workspace run_a.1"}
	if diff := cmp.Diff(want, kinds(dry.Items)); diff != "" {
		t.Errorf("dry run (-want +got):\n%s", diff)
	}
	for _, i := range dry.Items {
		if i.Kind == GarbageWorkspace && i.Bytes != 10 {
			t.Errorf("the workspace has %d bytes, want 10: what a link leads to is not in it", i.Bytes)
		}
	}
	if !exists(t, cfg.WorkDir, "work", "run_a.1", "work", "x.txt") || !exists(t, cfg.StateDir, "private", "run_a.1") {
		t.Fatal("the dry run removed something")
	}

	cfg.DryRun = false
	report, err := Collect(t.Context(), cfg)
	if err != nil || len(d.ended) != 3 {
		t.Fatalf("got %+v, %v, ended %v", report, err, d.ended)
	}
	for _, gone := range []string{filepath.Join(cfg.WorkDir, "work", "run_a.1"), filepath.Join(cfg.StateDir, "private", "run_a.1"), filepath.Join(cfg.WorkDir, "ask", "01K0")} {
		if exists(t, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	for _, there := range []string{filepath.Join(outside, "precious"), filepath.Join(cfg.StateDir, "credential"),
		filepath.Join(cfg.StateDir, "outbox", "run_a.1", "attempt.json"), filepath.Join(cfg.WorkDir, "bin", "everdict")} {
		if !exists(t, there) {
			t.Errorf("%s is gone", there)
		}
	}
	if again, err := Collect(t.Context(), GarbageConfig{StateDir: cfg.StateDir, WorkDir: cfg.WorkDir}); err != nil || len(again.Items) != 0 {
		t.Errorf("a second time: got %+v, %v, want nothing", again, err)
	}
}

// A living runner's directories and attempts are left alone; other sandboxes go.
func TestP6_CollectBesideALivingRunner(t *testing.T) {
	t.Parallel()
	cfg := rubbish(t)
	out, err := outbox.Open(outbox.Config{Dir: filepath.Join(cfg.StateDir, "outbox")})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.Create(outbox.Attempt{Run: "run_live", Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	d := &leavings{attempts: []string{"run_live.3", "run_dead.1"}}
	cfg.Drivers = []sandbox.Driver{d}
	report, err := Collect(t.Context(), cfg)
	if err != nil || report.InUse != "a runner works with "+cfg.StateDir {
		t.Fatalf("got %+v, %v", report, err)
	}
	if !slices.Equal(d.ended, []string{"run_dead.1"}) {
		t.Errorf("ended %v, want run_dead.1 only", d.ended)
	}
	if !exists(t, cfg.WorkDir, "work", "run_a.1", "work", "x.txt") || !exists(t, cfg.StateDir, "private", "run_a.1") {
		t.Error("something of the living runner is gone")
	}
}

// A runner with another state directory may have been given the same work directory.
func TestP6_CollectBesideAnotherRunnersWorkspaces(t *testing.T) {
	t.Parallel()
	cfg := rubbish(t)
	release, err := lockWorkDir(cfg.WorkDir)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Collect(t.Context(), cfg)
	if err != nil || report.InUse != "a runner works with "+cfg.WorkDir || !exists(t, cfg.WorkDir, "work", "run_a.1") {
		t.Errorf("got %+v, %v", report, err)
	}
	var inUse *WorkDirInUseError
	if _, err := lockWorkDir(cfg.WorkDir); !errors.As(err, &inUse) || inUse.Dir != cfg.WorkDir {
		t.Errorf("a second runner: got %v, want a *WorkDirInUseError", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if report, err := Collect(t.Context(), cfg); err != nil || report.InUse != "" || exists(t, cfg.WorkDir, "work", "run_a.1") {
		t.Errorf("when it has gone: got %+v, %v", report, err)
	}
}

// What fails is said, and keeps nothing else from being removed.
func TestP6_CollectGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	cfg := rubbish(t)
	broken := errors.New("no engine")
	cfg.Drivers = []sandbox.Driver{&leavings{err: broken}}
	report, err := Collect(t.Context(), cfg)
	if !errors.Is(err, broken) || len(report.Items) != 3 || exists(t, cfg.WorkDir, "work", "run_a.1") {
		t.Errorf("got %+v, %v", report, err)
	}
}

// A machine on which no runner has ever run is not changed by looking.
func TestCollectOnAFreshMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, dry := range []bool{true, false} {
		report, err := Collect(t.Context(), GarbageConfig{StateDir: filepath.Join(dir, "s"), WorkDir: filepath.Join(dir, "w"), DryRun: dry})
		if err != nil || len(report.Items) != 0 || report.InUse != "" {
			t.Errorf("got %+v, %v", report, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
}
