package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/coordinator/fleet/local"
	"github.com/everdict/everdict/protocol"
)

// TestMain is the tests, a keeper, or what runs in a unit.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "keeper" {
		os.Exit(local.Keep(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == "unit" {
		os.Exit(runUnit())
	}
	os.Exit(m.Run())
}

// runUnit does what the unit's token says.
func runUnit() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file := os.Getenv("EVERDICT_JOIN_TOKEN_FILE")
	if payload := os.Getenv("EVERDICT_PAYLOAD_FILE"); payload != "" {
		file = payload
		defer os.Remove(payload)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	switch script := string(token); script {
	case "deaf": // it does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "orphan": // it leaves a process that has left its group
		child, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 99
		}
		fmt.Println(child.Pid)
		return 0
	default:
		code, _ := fleettest.Script(ctx, fleettest.Container{Order: fleet.Order{Env: env}, Secret: script, Print: func(s string) { fmt.Print(s) }})
		return code
	}
}

// machine is an opener whose units are gone when the test is over.
func machine(t *testing.T, cfg local.Config) *local.Opener {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Dir == "" {
		cfg.Dir, cfg.WorkDir = t.TempDir(), t.TempDir()
	}
	cfg.Keeper, cfg.Runner, cfg.URL = []string{self, "keeper"}, []string{self, "unit"}, "http://127.0.0.1:1"
	o := local.New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := o.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return o
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dir, work := t.TempDir(), t.TempDir()
	fleettest.Run(t, fleettest.Subject{
		Opener: machine(t, local.Config{Dir: dir, WorkDir: work}), Spec: protocol.RuntimeSpec{Kind: protocol.RuntimeLocal}, Processes: true,
		MissingImage: "missing:1", OtherImage: "other:1", BadImage: "UPPER::bad",
		Evict: func(_ context.Context, unit string) error {
			found, err := filepath.Glob(filepath.Join(dir, "*", unit))
			if err != nil || len(found) != 1 {
				return fmt.Errorf("unit %s is in %v, %w", unit, found, err)
			}
			return syscall.Kill(keeper(t, found[0]), syscall.SIGTERM)
		},
	})
}

// keeper is the process that keeps the unit in a directory.
func keeper(t *testing.T, dir string) int {
	t.Helper()
	var k struct{ PID int }
	b, err := os.ReadFile(filepath.Join(dir, "keeper.json"))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil || k.PID <= 1 {
		t.Fatalf("keeper %d, %v", k.PID, err)
	}
	return k.PID
}

// world is one runtime on a machine of its own.
type world struct {
	*testing.T
	*local.Opener
	fleet.Provider
	cfg    local.Config
	target fleet.Target
	leave  func() // ends the watch of before
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, cfg: local.Config{Dir: t.TempDir(), WorkDir: t.TempDir()},
		target: fleet.Target{Coordinator: "crd_1", Workspace: "default", Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "here", Version: "1.0.0"}}}
	w.restart()
	return w
}

// restart is the machine as a coordinator sees it that has just come back.
func (w *world) restart() {
	w.Helper()
	if w.leave != nil {
		w.leave()
	}
	w.Opener = machine(w.T, w.cfg)
	p, err := w.Open(w.T.Context(), w.target)
	if err != nil {
		w.Fatal(err)
	}
	w.Provider = p
	ctx, stop := context.WithCancel(context.WithoutCancel(w.T.Context()))
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := p.Watch(ctx, func() {}); err != nil {
			w.Errorf("watch: %v", err)
		}
	})
	w.leave = func() {
		stop()
		watching.Wait()
	}
	w.Cleanup(w.leave)
}

func (w *world) order(script string) fleet.Order {
	run := protocol.NewID(protocol.RunPrefix)
	return fleet.Order{Unit: fleet.UnitName(run, 1), Job: run, Attempt: 1, MemoryMB: 1,
		Token: func(context.Context) (string, error) { return script, nil }}
}

func (w *world) launch(o fleet.Order) string {
	w.Helper()
	if err := w.Launch(w.T.Context(), o); err != nil {
		w.Fatalf("launch: %v", err)
	}
	return o.Unit
}

func (w *world) dir(unit string) string {
	w.Helper()
	found, err := filepath.Glob(filepath.Join(w.cfg.Dir, "*", unit))
	if err != nil || len(found) != 1 {
		w.Fatalf("unit %s is in %v, %v", unit, found, err)
	}
	return found[0]
}

// until waits for a unit that satisfies ok; one that is not there is the zero value.
func (w *world) until(unit, what string, ok func(fleet.Unit) bool) fleet.Unit {
	w.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		units, err := w.List(w.T.Context())
		if err != nil {
			w.Fatalf("list: %v", err)
		}
		var u fleet.Unit
		for _, one := range units {
			if one.Name == unit {
				u = one
			}
		}
		if ok(u) {
			return u
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("waited in vain: %s; it is %+v, trouble %+v", what, u, u.Trouble)
		}
	}
}

func running(u fleet.Unit) bool { return u.State == fleet.Running }
func over(u fleet.Unit) bool    { return u.State == fleet.Ended }
func none(u fleet.Unit) bool    { return u.Name == "" }

func (w *world) alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func (w *world) output(unit, want string) {
	w.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		out, err := w.Output(w.T.Context(), unit, 1000)
		if err != nil {
			w.Fatal(err)
		}
		if strings.Contains(string(out), want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("the output is %q, want %q in it", out, want)
		}
	}
}

// TestP4_UnitsOutliveTheCoordinator: one that is back finds what it has left, and what has
// ended meanwhile with its exit code.
func TestP4_UnitsOutliveTheCoordinator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	goes, ends := w.launch(w.order("wait")), w.launch(w.order("exit 7"))
	w.until(goes, "it runs", running)
	w.until(ends, "it ends", over)
	w.restart()
	w.until(goes, "it still runs", running)
	if u := w.until(ends, "it has ended", over); u.Trouble == nil || u.Trouble.ExitCode == nil || *u.Trouble.ExitCode != 7 || !u.Trouble.Dead {
		t.Errorf("trouble %+v, want exit code 7", u.Trouble)
	}
	pid := keeper(t, w.dir(goes))
	for _, unit := range []string{goes, ends} {
		if err := w.Terminate(t.Context(), unit); err != nil {
			t.Fatal(err)
		}
		w.until(unit, "it is gone", none)
	}
	w.until(goes, "its keeper is gone", func(fleet.Unit) bool { return !w.alive(pid) })
	for _, pattern := range []string{w.cfg.Dir + "/*/*", w.cfg.Dir + "/*/.*", w.cfg.WorkDir + "/*"} {
		w.until(goes, "no file is left in "+pattern, func(fleet.Unit) bool {
			left, err := filepath.Glob(pattern)
			return err == nil && len(left) == 0
		})
	}
}

// TestP3_AUnitIsStartedOnce: a keeper that comes second, while the first is there or after
// it, runs nothing.
func TestP3_AUnitIsStartedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.order("say once; wait")
	unit := w.launch(o)
	w.output(unit, "once")
	dir := w.dir(unit)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(self, "keeper", dir).CombinedOutput(); err != nil {
		t.Errorf("a second keeper ends with %v: %s", err, out)
	}
	if err := syscall.Kill(keeper(t, dir), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.until(unit, "it has ended", over)
	if out, err := exec.Command(self, "keeper", dir).CombinedOutput(); err != nil {
		t.Errorf("a late keeper ends with %v: %s", err, out)
	}
	w.restart()
	w.launch(o)
	w.until(unit, "it has still ended", over)
	if out, err := w.Output(t.Context(), unit, 1000); err != nil || string(out) != "once\n" {
		t.Errorf("output %q, %v; want that it ran once", out, err)
	}
}

// TestP6_NothingOfAUnitIsLeft: what a runner leaves is ended before the unit has ended, one
// that does not listen is killed, and a keeper that is killed takes its runner along.
func TestP6_NothingOfAUnitIsLeft(t *testing.T) {
	t.Parallel()
	t.Run("an orphan", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		unit := w.launch(w.order("orphan"))
		if u := w.until(unit, "it ends", over); u.Trouble != nil {
			t.Fatalf("trouble %+v, want none", u.Trouble)
		}
		out, err := w.Output(t.Context(), unit, 1000)
		var pid int
		if _, bad := fmt.Sscan(string(out), &pid); err != nil || bad != nil || w.alive(pid) {
			t.Errorf("the orphan is %q, %v, and lives: %v", out, err, w.alive(pid))
		}
	})
	t.Run("one that does not listen", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cfg.Drain = time.Nanosecond // the slack after it is what is waited for
		w.restart()
		unit := w.launch(w.order("deaf"))
		w.output(unit, "ready")
		if err := w.Terminate(t.Context(), unit); err != nil {
			t.Fatal(err)
		}
		w.until(unit, "it is gone", none)
	})
	t.Run("a keeper that is killed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		unit := w.launch(w.order("wait"))
		w.until(unit, "it runs", running)
		if err := syscall.Kill(keeper(t, w.dir(unit)), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		u := w.until(unit, "it has ended", over) // and so nobody has its lock
		if u.Trouble == nil || u.Trouble.Cause != fleet.CauseEvicted || u.Trouble.Dead {
			t.Errorf("trouble %+v, want it evicted, and that nobody knows what is left of it", u.Trouble)
		}
	})
}

// TestNobodyElseIsSignalled: a process that has the number of a keeper by now, and is
// another, is left alone.
func TestNobodyElseIsSignalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unit := w.launch(w.order("wait"))
	w.until(unit, "it runs", running)
	other, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Kill(); err != nil {
			t.Errorf("the other process: %v", err)
		}
		other.Wait()
	})
	file := filepath.Join(w.dir(unit), "keeper.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var k map[string]any
	if err := json.Unmarshal(good, &k); err != nil {
		t.Fatal(err)
	}
	k["pid"] = other.Pid
	bad, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it asks, and then kills
	if err := w.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", other.Pid)); err != nil || strings.Contains(string(state), ") Z ") {
		t.Errorf("the other process was ended: %s, %v", state, err)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUnitsWaitForRoom: those that do not fit beside others wait, and are started when
// there is room.
func TestUnitsWaitForRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, err := w.Inspect(t.Context())
	if err != nil || len(in.Nodes.Items) != 1 || in.Nodes.Items[0].MemoryMBTotal < 2 || in.Nodes.Items[0].CPUTotal < 1000 {
		t.Fatalf("inspect: %+v, %v", in.Nodes, err)
	}
	first, second := w.order("wait"), w.order("say started; exit 0")
	first.MemoryMB = int(in.Nodes.Items[0].MemoryMBTotal)
	w.launch(first)
	w.launch(second)
	w.until(first.Unit, "the first runs", running)
	u := w.until(second.Unit, "the second waits", func(u fleet.Unit) bool { return u.State == fleet.Pending && u.Trouble != nil })
	if u.Trouble.Cause != fleet.CauseUnschedulable || u.Trouble.Final || !strings.Contains(u.Trouble.Message, "insufficient memory") {
		t.Errorf("trouble %+v", u.Trouble)
	}
	if err := w.Terminate(t.Context(), first.Unit); err != nil {
		t.Fatal(err)
	}
	w.until(second.Unit, "the second has run", over)
}

// TestWhatARunnerInherits: the machine's variables, none of the coordinator's own, and no
// secret is written down but the token.
func TestWhatARunnerInherits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Environ = []string{"PATH=/usr/bin:/bin", "FROM_THE_MACHINE=inherited-value", "EVERDICT_SECRETS_KEY=the-key"}
	w.restart()
	o := w.order("say [$FROM_THE_MACHINE] [$EVERDICT_SECRETS_KEY] [$OF_THE_ORDER] [$EVERDICT_SHARED_MACHINE]; exit 0")
	o.Env = map[string]string{"OF_THE_ORDER": "ordered"}
	unit := w.launch(o)
	w.until(unit, "it ends", over)
	if out, err := w.Output(t.Context(), unit, 1000); err != nil || string(out) != "[inherited-value] [] [ordered] [true]\n" {
		t.Errorf("output %q, %v", out, err)
	}
	for _, name := range []string{"unit.json", "start.json", "keeper.json", "exit.json"} {
		b, err := os.ReadFile(filepath.Join(w.dir(unit), name))
		if err != nil || strings.Contains(string(b), "inherited-value") || strings.Contains(string(b), "say [") {
			t.Errorf("%s: %v, %s; want neither the environment nor the token in it", name, err, b)
		}
	}
}

// TestAProgramThatIsNotThere: the probe says so, and a unit has not started.
func TestAProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for what, cfg := range map[string]local.Config{
		"runner": {Keeper: []string{self, "keeper"}, Runner: []string{"/nowhere/runner"}},
		"keeper": {Keeper: []string{"/nowhere/keeper"}, Runner: []string{self, "unit"}},
	} {
		cfg.Dir, cfg.WorkDir, cfg.URL = t.TempDir(), t.TempDir(), "http://127.0.0.1:1"
		p, err := local.New(cfg).Open(t.Context(), w.target)
		if err != nil {
			t.Fatal(err)
		}
		var refused *fleet.RefusedError
		if _, err := p.Probe(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "/nowhere/"+what) {
			t.Errorf("%s: probe: %v, want that it is not there", what, err)
		}
		w.Provider = p
		unit := w.launch(w.order("exit 0"))
		if u := w.until(unit, "it cannot start", over); u.Trouble == nil || u.Trouble.Cause != fleet.CauseStart || !u.Trouble.Dead {
			t.Errorf("%s: trouble %+v, want that it cannot start", what, u.Trouble)
		}
	}
}
