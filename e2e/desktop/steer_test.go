package desktop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// running begins a run that does not end by itself.
func running(a *app, c control.Connection) string {
	a.t.Helper()
	id := a.submit(c, "print 3 lines\nhang")
	a.connection("the job's agent works", func(c control.Connection) bool {
		return len(c.Jobs) == 1 && c.Jobs[0].Run == id && c.Jobs[0].Phase == control.PhaseRun
	})
	return id
}

func TestPauseAfterThisJob(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	c := a.pair()
	first, open := a.gated(c)
	if err := a.Pause(ctx, control.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	second := a.submit(c, "say later")
	h.Blocked(second, "paused")
	a.connection("it says both", func(c control.Connection) bool {
		return c.Status == control.StatusRunning && c.Reason == control.ReasonUser && c.Paused
	})
	open()
	if run := h.Settled(first); run.Status != protocol.StatusSucceeded {
		t.Errorf("the job that ran when it was paused is %s", run.Status)
	}
	a.connection("it is paused", because(control.StatusPaused, control.ReasonUser))
	if run := h.Run(second); run.Status != protocol.StatusQueued {
		t.Errorf("the second run is %s while the computer is paused", run.Status)
	}
	// A pause outlives the app.
	a.end()
	a.start()
	a.connection("it is paused after a restart", because(control.StatusPaused, control.ReasonUser))
	if err := a.Resume(ctx, control.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(second); run.Status != protocol.StatusSucceeded {
		t.Errorf("the second run is %s after the resume", run.Status)
	}
}

func TestStopNowGivesBack(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	c := a.pair()
	id := running(a, c)
	if err := a.Pause(ctx, control.PauseRequest{Stop: true}); err != nil {
		t.Fatal(err)
	}
	a.connection("it is paused", because(control.StatusPaused, control.ReasonUser))
	h.Until(id, "the run is back in the queue", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
	hist, err := a.History(1)
	if err != nil || len(hist.Entries) != 1 || hist.Entries[0].Outcome != control.OutcomeReturned {
		t.Errorf("the history is %+v, %v; want one job that was given back", hist.Entries, err)
	}
	if err := a.Resume(ctx, control.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	run := h.Until(id, "it runs again", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning })
	if run.Attempt < 2 {
		t.Errorf("it runs as attempt %d, want a second one", run.Attempt)
	}
}

func TestUnpairWithoutTheCoordinator(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	c := a.pair()
	h.Stop()
	a.connection("it is connecting", is(control.StatusConnecting))
	u, err := a.Unpair(context.Background(), c.ID)
	if err != nil || u.Told || !strings.Contains(u.Text, c.Label) {
		t.Errorf("unpair: %+v, %v; want it said that the coordinator does not know", u, err)
	}
	if s := a.State(); len(s.Connections) != 0 {
		t.Errorf("connections after unpairing: %+v", s.Connections)
	}
}

func TestCoordinatorComesAndGoes(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	c := a.pair()
	h.Stop()
	got := a.connection("it is connecting", is(control.StatusConnecting))
	if got.Text == "" || got.RetryAt == nil {
		t.Errorf("connecting: %+v; want why, and when it is tried again", got)
	}
	h.Start()
	if _, err := a.Retry(context.Background(), c.ID); err != nil {
		t.Fatal(err)
	}
	a.connection("it is idle again", is(control.StatusIdle))
}

func TestAllowedHours(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	ctx := context.Background()
	c := a.pair()
	now := time.Now()
	// An hour that is far from now, on each day.
	begin := fmt.Sprintf("%02d:00", (now.Hour()+6)%24)
	end := fmt.Sprintf("%02d:00", (now.Hour()+7)%24)
	s := a.State().Settings
	s.Hours = []control.Hours{{Days: []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, From: begin, To: end}}
	if _, err := a.SetSettings(ctx, s); err != nil {
		t.Fatal(err)
	}
	got := a.connection("it is paused by its hours", because(control.StatusPaused, control.ReasonHours))
	if got.ResumesAt == nil || got.ResumesAt.Local().Format("15:04") != begin {
		t.Errorf("it resumes at %v, want %s", got.ResumesAt, begin)
	}
	id := a.submit(c, "say hello")
	h.Blocked(id, "hours")
	if err := a.Resume(ctx, control.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("after a resume by hand the run is %s", run.Status)
	}
}

func TestBattery(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	plugged := make(chan struct{})
	on := make(chan bool, 1)
	on <- false
	a := newApp(t, h, onBattery(on, plugged))
	a.pair()
	<-on
	on <- true
	plugged <- struct{}{}
	a.connection("it is paused on battery", because(control.StatusPaused, control.ReasonBattery))
	<-on
	on <- false
	plugged <- struct{}{}
	a.connection("it goes on", is(control.StatusIdle))
}

// The runs of others are let in here alone, and with a word of understanding.
func TestOnlyMine(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	c := a.pair()
	if !c.Settings.OnlyMine {
		t.Error("a new connection takes the runs of others")
	}
	set := c.Settings
	set.OnlyMine = false
	if _, err := a.SetConnection(context.Background(), c.ID, set); err == nil {
		t.Error("the runs of others were let in without a container and without a word")
	}
	set.Understood = true
	if _, err := a.SetConnection(context.Background(), c.ID, set); err != nil {
		t.Fatal(err)
	}
	a.connection("it is back", func(c control.Connection) bool { return c.Status == control.StatusIdle && !c.Settings.OnlyMine })
	house.Eventually(t, "the coordinator knows that it takes everybody's", func() bool {
		runners, err := h.Client.Runners(context.Background())
		return err == nil && len(runners) == 1 && runners[0].Scope == protocol.RunnerScopeWorkspace
	})
}

// A run of somebody else's is refused here, even if the coordinator sends it. This one does: the app was given another
// account than the one that it knows.
func TestOthersRunsAreRefusedHere(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	c := a.pair()
	if !c.Settings.OnlyMine {
		t.Fatal("a new connection takes the runs of others")
	}
	a.end()
	file := filepath.Join(a.cfg.Dirs.Config, "connections.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mine, others := fmt.Sprintf(`"subject":%q`, c.Account.Subject), `"subject":"somebody-else"`
	var doc bytes.Buffer
	if err := json.Compact(&doc, b); err != nil || strings.Count(doc.String(), mine) != 1 {
		t.Fatalf("the account is not in %s once: %v, %s", file, err, b)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(doc.String(), mine, others, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.connection("it is idle", is(control.StatusIdle))
	ran := filepath.Join(t.TempDir(), "ran")
	id := a.submit(c, "run touch "+ran)
	got := a.connection("it says that it takes no such run", because(control.StatusAttention, control.ReasonFailed))
	if !strings.Contains(got.Text, id) || !strings.Contains(got.Text, "the runs of somebody-else alone") {
		t.Errorf("it says %q, want which run, and whose it takes", got.Text)
	}
	run := h.Until(id, "the run is given back", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
	if _, err := os.Lstat(ran); !errors.Is(err, os.ErrNotExist) || run.StartedAt != nil {
		t.Errorf("the run was begun: %v, %+v", err, run)
	}
	if hist, err := a.History(10); err != nil || len(hist.Entries) != 0 {
		t.Errorf("the history is %+v, %v, want no job", hist.Entries, err)
	}
}

// New settings wait for the job that runs.
func TestSettingsWaitForTheJob(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	c := a.pair()
	id, open := a.gated(c)
	set := c.Settings
	set.Slots = 3
	if _, err := a.SetConnection(context.Background(), c.ID, set); err != nil {
		t.Fatal(err)
	}
	a.connection("it says so", func(c control.Connection) bool { return strings.Contains(c.Text, "settings") })
	open()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d", run.Status, run.Attempt)
	}
	house.Eventually(t, "the coordinator knows three slots", func() bool {
		runners, err := h.Client.Runners(context.Background())
		return err == nil && len(runners) == 1 && runners[0].Slots == 3
	})
}

// A broken file is moved aside and said, and the app goes on.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	a.pair()
	a.end()
	for _, name := range []string{"settings.json", "connections.json"} {
		if err := os.WriteFile(filepath.Join(a.cfg.Dirs.Config, name), []byte(`{"version":1,"content":{"hours":[{"from":"x"}],"connections":[{"id":"../x"}]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.start()
	s := a.State()
	if len(s.Notices) != 2 || len(s.Connections) != 0 || s.Settings.Appearance != "system" {
		t.Errorf("after broken files: %+v", s)
	}
	aside, err := filepath.Glob(filepath.Join(a.cfg.Dirs.Config, "*.broken-*"))
	if err != nil || len(aside) != 2 {
		t.Errorf("moved aside: %v, %v; want two files", aside, err)
	}
}

// What is on the disk is the user's alone.
func TestFilesAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	a.pair()
	if err := a.Pause(context.Background(), control.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(a.cfg.Dirs.Config, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestQuitAsksWhenAJobRuns(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	c := a.pair()
	id := running(a, c)
	p := problemOf(a.Quit(context.Background(), control.QuitRequest{}))
	if p == nil || p.Code != protocol.CodeConflict || p.Data["reason"] != "JOB_RUNNING" {
		t.Fatalf("quit while a job runs: %v", p)
	}
	if err := a.Quit(context.Background(), control.QuitRequest{Force: true}); err != nil {
		t.Fatal(err)
	}
	a.stop = nil
	select {
	case err := <-a.done:
		if err != nil {
			t.Errorf("the app ended with %v", err)
		}
	case <-time.After(house.Patience):
		t.Fatal("the app did not end")
	}
	h.Until(id, "the run is back in the queue", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
}

// The log of a job can be read along.
func TestLiveLog(t *testing.T) {
	t.Parallel()
	h := steadyHouse(t)
	a := newApp(t, h)
	c := a.pair()
	id := running(a, c)
	tail, err := a.Log(id, a.State().Connections[0].Jobs[0].Epoch)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var from int64
	ctx, cancel := context.WithTimeout(context.Background(), house.Patience)
	defer cancel()
	for strings.Count(text, "\n") < 3 {
		p, at, err := tail.Read(ctx, from)
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		text += string(p)
		from = at + int64(len(p))
	}
}
