package desktop_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// proc is the app as a process of its own, without tray and window.
type proc struct {
	t       testing.TB
	home    string
	environ []string
	dirs    home.Dirs
	cmd     *exec.Cmd
	client  *control.Client
	// url is where it finds the coordinator; empty: the house's own.
	url  string
	done chan struct{}
}

func startProc(t testing.TB, args ...string) *proc {
	t.Helper()
	return startProcWith(t, nil, args...)
}

// startProcWith has more in its environment.
func startProcWith(t testing.TB, environ []string, args ...string) *proc {
	t.Helper()
	root := shortDir(t)
	p := &proc{t: t, home: root, dirs: home.Below(root), environ: environ}
	p.client = control.Dial(p.dirs.Socket())
	t.Cleanup(p.client.Close)
	p.start(args...)
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *proc) command(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(everdictDesktop(p.t), args...)
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DOCKER_HOST", "BROWSER":
		default:
			cmd.Env = append(cmd.Env, kv)
		}
	}
	// Nothing of the machine's desktop is touched.
	cmd.Env = append(cmd.Env, home.Variable+"="+p.home, "EVERDICT_ROSTER_DIR="+p.home+"/roster", "HOME="+p.home, "XDG_CONFIG_HOME="+p.home+"/xdg", "XDG_DATA_HOME="+p.home+"/xdg-data")
	cmd.Env = append(cmd.Env, p.environ...)
	return cmd
}

func (p *proc) start(args ...string) {
	p.t.Helper()
	if args == nil {
		args = []string{"--no-tray", "--background"}
	}
	p.cmd = p.command(args...)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	p.done = done
	go func() {
		_ = p.cmd.Wait()
		close(done)
	}()
	house.Eventually(p.t, "the app answers", func() bool { _, err := p.client.State(context.Background()); return err == nil })
}

// kill is kill -9.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *proc) do(method, path string, body, into any) {
	p.t.Helper()
	if err := p.client.Do(context.Background(), method, path, body, into); err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (p *proc) until(what string, ok func(*control.State) bool) control.State {
	p.t.Helper()
	var last control.State
	house.Eventually(p.t, what, func() bool {
		s, err := p.client.State(context.Background())
		if err != nil {
			return false
		}
		last = *s
		return ok(s)
	})
	return last
}

// pair connects the process, with an HTTP client as the browser, and lets look see each moment of it.
func (p *proc) pair(h *house.House, look func(secrets ...string)) control.Connection {
	p.t.Helper()
	p.do(http.MethodPost, "pair", control.PairRequest{Coordinator: cmp.Or(p.url, h.URL())}, nil)
	s := p.until("the pairing waits", func(s *control.State) bool {
		return s.Pairing != nil && s.Pairing.Status == control.PairingWaiting
	})
	id := s.Pairing.URL[strings.LastIndexAny(s.Pairing.URL, "/=")+1:]
	look()
	approval, err := h.Client.ApprovePairing(context.Background(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	grant := approval.Callback[strings.Index(approval.Callback, "grant=")+len("grant="):]
	grant, _, _ = strings.Cut(grant, "&")
	look(grant)
	if status, text := browse(p.t, approval.Callback); status != http.StatusOK {
		p.t.Fatalf("the callback answers %d: %s", status, text)
	}
	look(grant)
	s = p.until("it is online", func(s *control.State) bool { return len(s.Connections) == 1 && s.Connections[0].Online })
	set := s.Connections[0].Settings
	set.Sandbox = control.SandboxProcess
	p.do(http.MethodPut, "connections/"+s.Connections[0].ID, set, nil)
	s = p.until("it is idle", func(s *control.State) bool {
		return s.Status == control.StatusIdle && s.Connections[0].Settings.Sandbox == control.SandboxProcess
	})
	look(grant)
	return s.Connections[0]
}

// A copy of the key on a second machine: the one that came last has the session, the other says so and ends what it ran,
// and comes back when a person wants it (F35, F52).
func TestF52_CopiedKey(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	first := startProc(t)
	c := first.pair(h, func(...string) {})
	gate, pids := filepath.Join(first.home, "go"), filepath.Join(first.home, "pids")
	req := house.Scripted("run echo $$ >> " + pids + "; until [ -e " + gate + " ]; do sleep 0.05; done")
	req.Runtime = c.Target
	id := h.Submit(req)
	var pid int
	house.Eventually(t, "the job runs", func() bool {
		b, _ := os.ReadFile(pids) // it may not be there yet
		n, _ := fmt.Sscan(string(b), &pid)
		return n == 1
	})
	// Another machine has other locks: they lie with the temporary files.
	second := startProcWith(t, []string{"TMPDIR=" + shortDir(t)})
	second.kill()
	if err := os.RemoveAll(second.dirs.Config); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(second.dirs.Config, os.DirFS(first.dirs.Config)); err != nil {
		t.Fatal(err)
	}
	second.start()
	one := func(s *control.State) control.Connection {
		if len(s.Connections) != 1 {
			return control.Connection{}
		}
		return s.Connections[0]
	}
	state := first.until("the first says that another has the connection", func(s *control.State) bool {
		return because(control.StatusAttention, control.ReasonElsewhere)(one(s))
	})
	said := one(&state)
	if _, runs := stat(pid); runs {
		t.Error("the job of the first runs on when it has said so")
	}
	if !strings.Contains(said.Text, "with the key of this computer") || said.Next == "" || said.RetryAt != nil {
		t.Errorf("the first says %+v, want that the key may be copied, what to do, and no retry", said)
	}
	second.until("the second has the connection", func(s *control.State) bool { return one(s).Online })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
		t.Errorf("the run is %s, attempt %d, want it done by the second: %+v", run.Status, run.Attempt, run.Failure)
	}
	// A person wants the first one back, and the second says so.
	first.do(http.MethodPost, "connections/"+c.ID+"/retry", nil, nil)
	first.until("the first has the connection", func(s *control.State) bool { return one(s).Online })
	second.until("the second says so", func(s *control.State) bool { return because(control.StatusAttention, control.ReasonElsewhere)(one(s)) })
}

// A link that the app was started with is in its arguments no more when it answers.
func TestLinkLeavesTheArguments(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	code, err := h.Client.CreatePairCode(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p := startProc(t, "--no-tray", "--background", code.Link)
	s := p.until("it asks", func(s *control.State) bool { return s.Question != nil })
	if s.Question.Coordinator != h.URL() {
		t.Errorf("it asks %+v", s.Question)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
	if err != nil || bytes.Contains(b, []byte("prc_")) {
		t.Errorf("its arguments are %q, %v", b, err)
	}
	// A second process hands its link over, and ends well.
	second := p.command("everdict://open")
	if out, err := second.CombinedOutput(); err != nil {
		t.Errorf("the second process: %v, %s", err, out)
	}
	hostile := p.command("everdict://pair?c=http://evil.example")
	if out, err := hostile.CombinedOutput(); err == nil || !strings.Contains(string(out), "no link for Everdict") {
		t.Errorf("a hostile link by a second process: %v, %s", err, out)
	}
}

// kill -9 while a job runs: the job ends, the run is done by the next life of the app, and nothing is left (F51, F52).
func TestKilledWhileRunning(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	p := startProc(t)
	c := p.pair(h, func(...string) {})
	marker := filepath.Join(p.home, "pid")
	again := filepath.Join(p.home, "again")
	req := house.Scripted("run echo $$ >> " + marker + "; until [ -e " + again + " ]; do sleep 0.05; done")
	req.Runtime = c.Target
	id := h.Submit(req)
	var pid int
	house.Eventually(t, "the job runs", func() bool {
		b, err := os.ReadFile(marker)
		if err != nil {
			return false
		}
		n, _ := fmt.Sscan(string(b), &pid)
		return n == 1
	})
	p.kill()
	house.Eventually(t, "the job of the killed app is gone", func() bool { _, runs := stat(pid); return !runs })
	if err := os.WriteFile(again, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.until("it is connected again", func(s *control.State) bool { return len(s.Connections) == 1 && s.Connections[0].Online })
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
		t.Errorf("the run is %s, attempt %d: %+v", run.Status, run.Attempt, run.Failure)
	}
}

// The computer sleeps over its lease: the coordinator shows it as away and gives the run to a next attempt; awake, the app
// asks before the job takes another step, and all is as before (F51).
func TestF51_Sleeps(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	p := startProc(t)
	c := p.pair(h, func(...string) {})
	file := filepath.Join(p.home, "go")
	req := house.Scripted("run until [ -e " + file + " ]; do sleep 0.05; done")
	req.Runtime = c.Target
	id := h.Submit(req)
	p.until("it runs", func(s *control.State) bool { return s.Status == control.StatusRunning })
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	online := func(want bool) func() bool {
		return func() bool {
			runners, err := h.Client.Runners(context.Background())
			return err == nil && len(runners) == 1 && runners[0].Online == want
		}
	}
	house.Eventually(t, "the coordinator shows it as away", online(false))
	h.Until(id, "the run is back in the queue", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "it is back", online(true))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
		t.Errorf("the run is %s, attempt %d: %+v", run.Status, run.Attempt, run.Failure)
	}
	p.until("it is idle", func(s *control.State) bool { return s.Status == control.StatusIdle })
	var hist control.History
	p.do(http.MethodGet, "history", nil, &hist)
	// On a slow machine there can be more that were lost.
	lost := func(e control.Entry) bool { return e.Outcome == control.OutcomeLost }
	if len(hist.Entries) < 2 || lost(hist.Entries[0]) || !slices.ContainsFunc(hist.Entries[1:], lost) {
		t.Errorf("the history is %+v; want the attempt that was lost, and the one after it", hist.Entries)
	}
}

// kill -9 at each step of a pairing: the next life either has the connection or has nothing, and no key is left over.
func TestKilledWhilePairing(t *testing.T) {
	t.Parallel()
	keys := func(p *proc) []string {
		k, err := filepath.Glob(filepath.Join(p.dirs.Config, "keys", "*.key"))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	waiting := func(t *testing.T, h *house.House) (*proc, string) {
		p := startProc(t)
		p.do(http.MethodPost, "pair", control.PairRequest{Coordinator: h.URL()}, nil)
		s := p.until("the pairing waits", func(s *control.State) bool { return s.Pairing != nil && s.Pairing.Status == control.PairingWaiting })
		return p, s.Pairing.URL[strings.LastIndexAny(s.Pairing.URL, "/=")+1:]
	}
	t.Run("before the approval", func(t *testing.T) {
		t.Parallel()
		h := quickHouse(t)
		p, id := waiting(t, h)
		p.kill()
		if len(keys(p)) != 1 {
			t.Fatalf("keys while it waits: %v, want one", keys(p))
		}
		p.start()
		s := p.until("it says so", func(s *control.State) bool { return len(s.Notices) > 0 })
		if len(s.Connections) != 0 || len(keys(p)) != 0 {
			t.Errorf("%d connections, keys %v; want none", len(s.Connections), keys(p))
		}
		// The approval that comes now finds nobody, and makes nothing that works.
		approval, err := h.Client.ApprovePairing(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := browse(t, approval.Callback); status == http.StatusOK {
			t.Error("somebody took the approval of a dead app")
		}
	})
	t.Run("after the grant has come", func(t *testing.T) {
		t.Parallel()
		h := quickHouse(t)
		p, id := waiting(t, h)
		approval, err := h.Client.ApprovePairing(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := browse(t, approval.Callback); status != http.StatusOK {
			t.Fatalf("callback: %d", status)
		}
		p.kill() // before, while or after it redeems
		p.start()
		s := p.until("it is connected, or says that it is not", func(s *control.State) bool { return len(s.Connections) == 1 || len(s.Notices) > 0 })
		runners, err := h.Client.Runners(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want := len(s.Connections); len(keys(p)) != want {
			t.Errorf("%d connections and keys %v", want, keys(p))
		}
		if len(s.Connections) == 1 && (len(runners) != 1 || runners[0].ID != s.Connections[0].Runner) {
			t.Errorf("the connection is runner %s, the coordinator has %+v", s.Connections[0].Runner, runners)
		}
	})
}

// SIGTERM drains.
func TestTermDrains(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	p := startProc(t)
	c := p.pair(h, func(...string) {})
	file := filepath.Join(p.home, "go")
	req := house.Scripted("run until [ -e " + file + " ]; do sleep 0.05; done")
	req.Runtime = c.Target
	id := h.Submit(req)
	p.until("it runs", func(s *control.State) bool { return s.Status == control.StatusRunning })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(house.Patience):
		t.Fatal("the app did not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d", run.Status, run.Attempt)
	}
}

// The commands of a terminal.
func TestCommands(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	p := startProc(t)
	say := func(args ...string) (string, error) {
		out, err := p.command(args...).CombinedOutput()
		return string(out), err
	}
	want := func(words string, args ...string) {
		t.Helper()
		if out, err := say(args...); err != nil || !strings.Contains(out, words) {
			t.Errorf("%v: %v, %s; want %q in it", args, err, out, words)
		}
	}
	want("connected to no coordinator", "status")
	c := p.pair(h, func(...string) {})
	want("waiting for a run", "status")
	want(c.ID, "status", "--json")
	code, err := h.Client.CreatePairCode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want("", code.Link)
	house.Eventually(t, "status says what the link asks", func() bool {
		out, err := say("status")
		return err == nil && strings.Contains(out, "a link asks to connect this computer to "+strings.TrimPrefix(h.URL(), "http://"))
	})
	want("Paused: by you", "pause")
	want("waiting for a run", "resume", c.ID)
	want("RUN", "history")
	if out, err := say("pair", h.URL()); err == nil || !strings.Contains(out, "--replace") && !strings.Contains(out, "replace that connection") {
		t.Errorf("pair twice: %v, %s", err, out)
	}
	if out, err := say("disconnect", "../x"); err == nil || !strings.Contains(out, "no connection") {
		t.Errorf("disconnect what is not there: %v, %s", err, out)
	}
	want("knows", "disconnect", c.ID)
	want("", "quit")
	select {
	case <-p.done:
	case <-time.After(house.Patience):
		t.Fatal("the app did not end")
	}
	for _, slip := range []struct{ words, arg string }{{"did you mean everdict-desktop status?", "statsu"}, {"see everdict-desktop", "--backgruond"}, {"neither a command nor a link", "https://everdict.example"}} {
		if out, err := say(slip.arg); err == nil || !strings.Contains(out, slip.words) {
			t.Errorf("%s: %v, %s; want %q in it, and no app", slip.arg, err, out, slip.words)
		}
	}
	if out, err := say("status"); err == nil || !strings.Contains(out, "not running") {
		t.Errorf("status without an app: %v, %s", err, out)
	}
}
