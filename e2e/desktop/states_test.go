package desktop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/desktop"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// scene is an app whose connection is in one of the states.
type scene struct {
	*app
	c     control.Connection
	proxy *house.Proxy // between app and coordinator, where the state needs one

	// run is what works on this computer, and waiting what waits for its one slot; empty: there is none.
	run, waiting string
	// processes is how many of the job say who they are. Default 1.
	processes int
	// back ends what keeps app and coordinator apart; nil: nothing does.
	back func()

	// gate lets jobs go on when it is there; pids is where each of them writes its number.
	gate, pids string
	own        []process // what wrote itself there
	all        []process // what had anything to do with the app's directories
}

// process is one by its number and the moment of its start, so that a later one with the number is another.
type process struct {
	pid   int
	began string
}

// stat is what the kernel says of a process: whether it runs, and since when. One that has ended and was not waited for by
// whoever inherited it does not run.
func stat(pid int) (began string, runs bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 {
		return "", false
	}
	return f[19], f[0] != "Z" && f[0] != "X"
}

func (p process) runs() bool {
	began, runs := stat(p.pid)
	return runs && began == p.began
}

// still are those that run.
func still(all []process) []process {
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool { return !p.runs() })
}

// below are the processes that have a directory in their environment, or work in it.
func below(t testing.TB, dir string) (all []process) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscan(e.Name(), &pid); n != 1 || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // it may have ended
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if !bytes.Contains(environ, []byte(dir)) && !strings.HasPrefix(cwd, dir) {
			continue
		}
		if began, runs := stat(pid); runs {
			all = append(all, process{pid, began})
		}
	}
	return all
}

// wait is a shell command that writes down who it is and ends when the gate is open.
func (s *scene) wait() string {
	return "echo $$ >> " + s.pids + "; until [ -e " + s.gate + " ]; do sleep 0.05; done"
}

// give submits the run of the scene.
func (s *scene) give(script string, more ...func(*protocol.RunRequest)) {
	s.t.Helper()
	req := house.Scripted(script)
	req.Runtime = s.c.Target
	for _, f := range more {
		f(req)
	}
	s.run = s.house.Submit(req)
}

// in waits until the job is in a phase and its process runs.
func (s *scene) in(phase control.Phase) {
	s.t.Helper()
	s.connection("the job is in its phase "+string(phase), func(c control.Connection) bool {
		return len(c.Jobs) == 1 && c.Jobs[0].Run == s.run && c.Jobs[0].Phase == phase
	})
	house.Eventually(s.t, "its process runs", func() bool {
		b, _ := os.ReadFile(s.pids) // it may not be there yet
		s.own = nil
		for line := range strings.Lines(string(b)) {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil {
				return false
			}
			if began, runs := stat(pid); runs {
				s.own = append(s.own, process{pid, began})
			}
		}
		return len(s.own) >= max(1, s.processes)
	})
}

// works begins a run whose agent works.
func (s *scene) works() {
	s.t.Helper()
	s.give("run " + s.wait())
	s.in(control.PhaseRun)
}

func (s *scene) open() {
	s.t.Helper()
	if err := os.WriteFile(s.gate, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// finish lets the run of the scene come to its end.
func (s *scene) finish() protocol.Run {
	s.t.Helper()
	s.open()
	s.slowGit(false)
	return s.house.Until(s.run, "the run is over", func(r protocol.Run) bool {
		if r.Status == protocol.StatusSuspended {
			if _, err := s.house.Client.Approve(context.Background(), s.run, protocol.Decision{}); err != nil {
				s.t.Errorf("answer what the run asks: %v", err)
			}
		}
		return r.Status.Terminal()
	})
}

// slowGit makes every git of this app's runner wait, or lets it go on: see TestMain.
func (s *scene) slowGit(slow bool) {
	s.t.Helper()
	fifo := filepath.Join(filepath.Dir(s.cfg.Dirs.State), gitGate)
	if slow {
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	// Whoever reads it already is let go, and whoever looks for it later does not find it.
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err = errors.Join(err, os.Remove(fifo), f.Close()); err != nil {
		s.t.Fatal(err)
	}
}

// states are what the connection can be doing when somebody decides something.
var states = map[string]func(*scene){
	"idle": func(*scene) {},
	"paused": func(s *scene) {
		s.pause(false)
		s.connection("it is paused", because(control.StatusPaused, control.ReasonUser))
	},
	"queued": func(s *scene) {
		s.works()
		s.waiting = s.submit(s.c, "say later")
		s.house.Blocked(s.waiting, "to become free")
	},
	"preparing": func(s *scene) {
		s.give("say hello", func(r *protocol.RunRequest) {
			r.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}, Setup: []string{s.wait()}}
		})
		s.in(control.PhasePrepare)
	},
	"running": func(s *scene) { s.works() },
	// With a daemon that heeds no signal and has left everything that a shell could end it by.
	"running a daemon": func(s *scene) {
		s.processes = 2
		s.give("fork " + s.wait() + "\nrun " + s.wait())
		s.in(control.PhaseRun)
	},
	"running, to be paused": func(s *scene) {
		s.works()
		s.pause(false)
	},
	"asking": func(s *scene) {
		s.give("run echo $PPID >> " + s.pids + "\nask May I?")
		s.in(control.PhaseRun)
		s.house.Until(s.run, "it asks", func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended })
		s.connection("it is held", func(c control.Connection) bool { return c.Jobs[0].Held })
	},
	"held": func(s *scene) {
		s.works()
		s.proxy.Hold()
		s.back = s.proxy.Release
		s.connection("it is held", func(c control.Connection) bool { return len(c.Jobs) == 1 && c.Jobs[0].Held })
	},
	"away": func(s *scene) {
		s.works()
		s.house.Stop()
		s.back = s.house.Start
		s.connection("it is connecting", func(c control.Connection) bool { return c.Status == control.StatusConnecting && len(c.Jobs) == 1 })
	},
	"collecting": func(s *scene) {
		s.give("create answer hello\nrun "+s.wait(), func(r *protocol.RunRequest) {
			r.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
		})
		s.in(control.PhaseRun)
		s.slowGit(true)
		s.open()
		s.connection("what it did is collected", func(c control.Connection) bool { return len(c.Jobs) == 1 && c.Jobs[0].Phase == control.PhaseCollect })
		house.Eventually(s.t, "git runs", func() bool { s.own = below(s.t, s.cfg.Dirs.State); return len(s.own) > 0 })
	},
	"grading": func(s *scene) {
		s.give("say hello", func(r *protocol.RunRequest) {
			config, err := json.Marshal(protocol.TestsPassConfig{Cmd: s.wait()})
			if err != nil {
				s.t.Fatal(err)
			}
			r.Case.Graders = []protocol.GraderSpec{{ID: protocol.GraderTestsPass, Config: config}}
		})
		s.in(control.PhaseGrade)
	},
}

// newScene brings an app into a state.
func newScene(t *testing.T, state string, clocks func(*coordinator.Config)) *scene {
	t.Helper()
	h := house.New(t, clocks, func(c *coordinator.Config) {
		if state == "held" && c.Lease.TTL == time.Minute { // soon held still, and not given away
			c.Timing.LeaseMargin, c.Timing.HeartbeatTimeout = 58*time.Second, 1200*time.Millisecond
		}
	})
	s := &scene{app: newApp(t, h, func(c *desktop.Config) {
		if state == "asking" {
			c.Everdict = everdict(t)
		}
	})}
	if state == "held" {
		s.proxy = h.Proxy()
		s.url = s.proxy.URL()
	}
	dir := t.TempDir()
	s.gate, s.pids = filepath.Join(dir, "go"), filepath.Join(dir, "pids")
	s.c = s.pair()
	states[state](s)
	s.all = append(below(t, filepath.Dir(s.cfg.Dirs.State)), s.own...)
	if s.run != "" && len(still(s.own)) == 0 {
		t.Fatal("the job has no process: there is nothing to look at")
	}
	return s
}

func (s *scene) pause(stop bool) {
	s.t.Helper()
	if err := s.Pause(context.Background(), control.PauseRequest{Stop: stop}); err != nil {
		s.t.Fatalf("pause: %v", err)
	}
}

func (s *scene) resume() {
	s.t.Helper()
	if err := s.Resume(context.Background(), control.ResumeRequest{}); err != nil {
		s.t.Fatalf("resume: %v", err)
	}
}

// reach ends what keeps app and coordinator apart.
func (s *scene) reach() {
	if s.back != nil {
		s.back()
		s.back = nil
	}
}

// gone wants no process of the job any more, now.
func (s *scene) gone(when string) {
	s.t.Helper()
	left := map[process]bool{}
	for _, p := range append(still(s.all), below(s.t, filepath.Dir(s.cfg.Dirs.State))...) {
		left[p] = true
	}
	for p := range left {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)) // it may have ended since
		s.t.Errorf("%s process %d of the job runs: %q", when, p.pid, bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
	}
}

// untouched wants the job to go on.
func (s *scene) untouched(when string) {
	s.t.Helper()
	if n := len(still(s.own)); n != len(s.own) {
		s.t.Errorf("%s %d of the job's %d processes run", when, n, len(s.own))
	}
	c := s.State().Connections[0]
	if want := s.run != ""; (len(c.Jobs) == 1 && c.Jobs[0].Run == s.run) != want || len(c.Jobs) > 1 {
		s.t.Errorf("%s the jobs are %+v, want %q", when, c.Jobs, s.run)
	}
}

// kept wants one entry in the history, that of the scene's run, with an outcome; none if nothing ran.
func (s *scene) kept(want control.Outcome) {
	s.t.Helper()
	hist, err := s.History(10)
	var got []string
	for _, e := range hist.Entries {
		got = append(got, e.Run+" "+string(e.Outcome))
	}
	var wanted []string
	if s.run != "" {
		wanted = []string{s.run + " " + string(want)}
	}
	if err != nil || !slices.Equal(got, wanted) {
		s.t.Errorf("the history is %q, %v, want %q", got, err, wanted)
	}
}

// there is the runner as the coordinator shows it.
func (s *scene) there(what string, ok func(*protocol.Runner) bool) {
	s.t.Helper()
	house.Eventually(s.t, "the coordinator shows that "+what, func() bool {
		runners, err := s.house.Client.Runners(context.Background())
		if err != nil || len(runners) > 1 {
			return false
		}
		if len(runners) == 0 {
			return ok(nil)
		}
		return ok(&runners[0])
	})
}

func (s *scene) showsPaused(want bool) {
	s.t.Helper()
	s.there(fmt.Sprintf("it is paused: %v", want), func(r *protocol.Runner) bool {
		return r != nil && r.Online && strings.Contains(r.Paused, "its owner has paused it") == want && (r.Paused != "") == want
	})
}

// succeeds wants the run to have come to its end at its first attempt.
func (s *scene) succeeds(run protocol.Run, attempt int64) {
	s.t.Helper()
	if run.Status != protocol.StatusSucceeded || run.Attempt != attempt {
		s.t.Errorf("the run is %s at attempt %d, want it done at attempt %d: %+v", run.Status, run.Attempt, attempt, run.Failure)
	}
}

// stays wants a run to wait, for a reason, untouched by anybody.
func (s *scene) stays(id, words string) {
	s.t.Helper()
	s.house.Blocked(id, words)
	if r := s.house.Run(id); r.Status != protocol.StatusQueued || r.Attempt != 0 {
		s.t.Errorf("a run that nobody may take is %s at attempt %d", r.Status, r.Attempt)
	}
}

// decisions are what a person can decide, each with what has to come of it.
var decisions = map[string]struct {
	clocks func(*coordinator.Config)
	act    func(*scene)
}{
	// Revoked over there. Its run is given to another when the lease is over, so that has to come soon.
	"revoke": {house.Quick, func(s *scene) {
		ctx := context.Background()
		if s.proxy == nil {
			s.reach()
		}
		if err := s.house.Client.RevokeRunner(ctx, s.c.Runner); err != nil {
			s.t.Fatal(err)
		}
		if s.run != "" {
			s.house.Blocked(s.run, "was revoked")
			events, err := s.house.Client.Events(ctx, s.run)
			if err != nil || !slices.ContainsFunc(events, func(e protocol.RunEvent) bool { return e.Kind == protocol.RunRunnerRevoked }) {
				s.t.Errorf("the life of the run is %+v, %v, want that its runner was revoked", events, err)
			}
			if _, err := s.house.Client.Approve(ctx, s.run, protocol.Decision{}); err == nil {
				s.t.Error("a question was answered that nobody asks any more")
			}
		}
		s.reach()
		got := s.connection("it is said", because(control.StatusAttention, control.ReasonRevoked))
		s.gone("when it is said that this computer was revoked,")
		if got.Next == "" || got.RetryAt != nil || got.Online || len(got.Jobs) != 0 {
			s.t.Errorf("revoked: %+v; want the next step, no retry, no session and no job", got)
		}
		s.kept(control.OutcomeLost)
		s.there("it is gone", func(r *protocol.Runner) bool { return r == nil })
		for _, id := range []string{s.run, s.waiting} {
			if id != "" {
				s.house.Until(id, id+" waits in vain and says so", func(r protocol.Run) bool {
					return r.Status == protocol.StatusQueued && strings.Contains(r.Placement.BlockedReason, "was revoked and cannot come back")
				})
			}
		}
		// It stays so over a restart, without asking the coordinator.
		s.house.Stop()
		s.end()
		s.start()
		s.connection("it is still said", because(control.StatusAttention, control.ReasonRevoked))
	}},
	"unpair": {house.Steady, func(s *scene) {
		type answer struct {
			control.Unpaired
			err error
		}
		done := make(chan answer, 1)
		go func() {
			u, err := s.Unpair(context.Background(), s.c.ID)
			done <- answer{u, err}
		}()
		if s.back != nil {
			// What is decided here needs nobody else.
			house.Eventually(s.t, "the job is gone while the coordinator cannot be reached", func() bool { return len(still(s.all)) == 0 })
			s.reach()
		}
		var u answer
		select {
		case u = <-done:
		case <-time.After(house.Patience):
			s.t.Fatal("it is not unpaired")
		}
		s.gone("when this computer is unpaired,")
		if u.err != nil || !u.Told {
			s.t.Errorf("unpair: %+v, want the coordinator told", u)
		}
		if now := s.State(); len(now.Connections) != 0 || now.Status != control.StatusNone {
			s.t.Errorf("connections after unpairing: %+v", now.Connections)
		}
		if hist, err := s.History(10); err != nil || len(hist.Entries) != 0 {
			s.t.Errorf("the history of what is gone: %+v, %v", hist.Entries, err)
		}
		runner, work := s.cfg.Dirs.Runner(s.c.ID)
		keys, err := filepath.Glob(filepath.Join(s.cfg.Dirs.Config, "keys", "*.key"))
		if err != nil || len(keys) != 0 {
			s.t.Errorf("keys are left: %v, %v", keys, err)
		}
		for _, dir := range []string{runner, work} {
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				s.t.Errorf("%s is left: %v", dir, err)
			}
		}
		s.there("it is gone", func(r *protocol.Runner) bool { return r == nil })
		for _, id := range []string{s.run, s.waiting} {
			if id != "" {
				s.house.Blocked(id, "was revoked")
			}
		}
	}},
	// What runs goes on to its end, and nothing comes after it.
	"pause": {house.Steady, func(s *scene) {
		s.pause(false)
		s.untouched("after a pause")
		if c := s.State().Connections[0]; !c.Paused || !slices.Equal(c.Pauses, []control.Reason{control.ReasonUser}) {
			s.t.Errorf("paused: %+v", c)
		}
		s.reach()
		s.showsPaused(true)
		if s.waiting == "" {
			s.waiting = s.submit(s.c, "say later")
		}
		s.stays(s.waiting, "its owner has paused it")
		s.untouched("when everybody knows of the pause,")
		if s.run != "" {
			s.succeeds(s.finish(), 1)
		}
		s.connection("it is paused", because(control.StatusPaused, control.ReasonUser))
		s.gone("when the job has ended,")
		s.kept(s.outcome())
		s.stays(s.waiting, "its owner has paused it")
	}},
	// Neither pause nor resume disturbs what runs, and what comes after it is taken.
	"resume": {house.Steady, func(s *scene) {
		s.pause(false)
		s.resume()
		s.untouched("after pause and resume")
		if c := s.State().Connections[0]; c.Paused || len(c.Pauses) != 0 {
			s.t.Errorf("resumed: %+v", c)
		}
		s.reach()
		s.showsPaused(false)
		if s.waiting == "" {
			s.waiting = s.submit(s.c, "say later")
		}
		s.untouched("when everybody knows that it goes on,")
		if s.run != "" {
			s.succeeds(s.finish(), 1)
		}
		s.succeeds(s.house.Settled(s.waiting), 1)
		s.connection("it is idle", is(control.StatusIdle))
		s.gone("when all have ended,")
	}},
	// What runs is given back, and runs again when this computer does.
	"stop now": {house.Steady, func(s *scene) {
		s.pause(true)
		if s.back != nil {
			house.Eventually(s.t, "the job is gone while the coordinator cannot be reached", func() bool { return len(still(s.all)) == 0 })
			s.reach()
		}
		s.connection("it is paused", because(control.StatusPaused, control.ReasonUser))
		s.gone("when it is paused,")
		s.kept(control.OutcomeReturned)
		s.showsPaused(true)
		if s.run != "" {
			s.house.Until(s.run, "the run is back in the queue", func(r protocol.Run) bool {
				return r.Status == protocol.StatusQueued && r.Attempt == 1 && r.Suspended == nil && strings.Contains(r.Placement.BlockedReason, "its owner has paused it")
			})
		}
		if s.waiting == "" {
			s.waiting = s.submit(s.c, "say later")
		}
		s.stays(s.waiting, "its owner has paused it")
		s.resume()
		if s.run != "" {
			s.succeeds(s.finish(), 2)
		}
		s.succeeds(s.house.Settled(s.waiting), 1)
		s.connection("it is idle", is(control.StatusIdle))
		s.gone("when all have ended,")
	}},
}

// outcome is how the job ends here when it comes to its end.
func (s *scene) outcome() control.Outcome {
	if run := s.run; run != "" && s.house.Run(run).Verdict != nil {
		return control.OutcomePassed
	}
	return control.OutcomeUnjudged
}

// TestF35_EveryDecisionInEachState: whatever this computer is doing, a person at it or at the coordinator can stop it, let it
// end, let it go on, or send it away: the run's record, the coordinator's list and the processes of the job all agree.
func TestF35_EveryDecisionInEachState(t *testing.T) {
	t.Parallel()
	for state := range states {
		for name, decision := range decisions {
			t.Run(state+"/"+name, func(t *testing.T) {
				t.Parallel()
				decision.act(newScene(t, state, decision.clocks))
			})
		}
	}
}
