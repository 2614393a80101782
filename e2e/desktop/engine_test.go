package desktop_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// busybox is an image that e2e/docker.sh builds.
const busybox = "test/busybox:1"

// engineRig is an app whose container engine is this machine's, behind a socket that comes and goes.
type engineRig struct {
	*proc
	house        *house.House
	c            control.Connection
	real, socket string
}

func newEngineRig(t *testing.T) *engineRig {
	t.Helper()
	found := endpoint.Find(t.Context(), endpoint.This(nil))
	if found.Chosen == nil {
		t.Fatalf("this test needs a container engine (make deps): %v", found.Err())
	}
	r := &engineRig{real: strings.TrimPrefix(found.Chosen.Host, "unix://"), socket: filepath.Join(t.TempDir(), "docker.sock")}
	// Only the heartbeat is quick: no lease ends here.
	r.house = house.New(t, func(c *coordinator.Config) {
		c.Timing.Heartbeat, c.RetryAfter = 300*time.Millisecond, 50*time.Millisecond
	})
	r.proc = startProcWith(t, []string{"DOCKER_HOST=unix://" + r.socket})
	r.c = r.pair(r.house, func(...string) {})
	return r
}

func (r *engineRig) comes() {
	r.t.Helper()
	if err := os.Symlink(r.real, r.socket); err != nil {
		r.t.Fatal(err)
	}
}

func (r *engineRig) goes() {
	r.t.Helper()
	if err := os.Remove(r.socket); err != nil {
		r.t.Fatal(err)
	}
}

func (r *engineRig) set(change func(*control.ConnectionSettings)) {
	r.t.Helper()
	set := r.c.Settings
	change(&set)
	r.do(http.MethodPut, "connections/"+r.c.ID, set, nil)
	r.c.Settings = set
}

// offers waits until the coordinator knows the runner with containers, or without.
func (r *engineRig) offers(want bool) {
	r.t.Helper()
	house.Eventually(r.t, "what the coordinator knows of containers here is right", func() bool {
		all, err := r.house.Client.Runners(context.Background())
		return err == nil && len(all) == 1 && all[0].Online && slices.Contains(all[0].Capabilities, protocol.CapDocker) == want
	})
}

// says waits until the app is so, with all the words.
func (r *engineRig) says(status control.Status, words ...string) {
	r.t.Helper()
	r.until("it is "+string(status)+": "+strings.Join(words, ", "), func(s *control.State) bool {
		return s.Status == status && s.Connections[0].Online && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s.Text, w) })
	})
}

func (r *engineRig) submit(image, script string) string {
	req := house.Scripted(script)
	req.Runtime, req.Case.Image = r.c.Target, image
	return r.house.Submit(req)
}

// gated is a run without a container that ends when open is called.
func (r *engineRig) gated() (id string, open func()) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "go")
	id = r.submit("", "run until [ -e "+file+" ]; do sleep 0.05; done")
	r.until("it runs", func(s *control.State) bool { return s.Status == control.StatusRunning })
	return id, func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// notBegun checks that a run has cost no attempt.
func (r *engineRig) notBegun(id string) {
	r.t.Helper()
	if run := r.house.Run(id); run.Status != protocol.StatusQueued || run.Attempt > 0 {
		r.t.Errorf("the run is %s, attempt %d; want it queued and not begun", run.Status, run.Attempt)
	}
}

// Where all runs in containers, one without an engine takes none; an engine that comes is offered, and runs what waited. Nobody
// presses a button.
func TestDockerComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newEngineRig(t)
	gone := func(s *control.State) bool {
		c := s.Connections[0]
		return s.Status == control.StatusAttention && c.Reason == control.ReasonDocker && c.Paused && c.Online && c.CanRetry && !c.CanResume
	}
	r.set(func(s *control.ConnectionSettings) { s.Sandbox = control.SandboxDocker })
	r.until("it says that there is no engine", gone)
	id := r.submit(busybox, "say hello")
	r.house.Blocked(id, "docker")
	r.comes()
	house.Done(t, r.house.Settled(id))
	r.says(control.StatusIdle)
	r.offers(true)
	r.goes()
	r.until("it says that the engine is gone", gone)
	r.offers(false)
	for image, why := range map[string]string{busybox: "docker", "": "its container engine does not answer"} {
		id := r.submit(image, "say hello")
		r.house.Blocked(id, why)
		r.notBegun(id)
	}
}

// Where only some run in containers, the others are taken without an engine, and no attempt is spent on finding out.
func TestDockerComesAndGoesBesideTheProcessSandbox(t *testing.T) {
	t.Parallel()
	r := newEngineRig(t)
	r.offers(false)
	r.says(control.StatusIdle, "No container engine")
	id := r.submit(busybox, "say hello")
	r.house.Blocked(id, "docker")
	r.comes()
	house.Done(t, r.house.Settled(id))
	r.offers(true)
	r.goes()
	r.says(control.StatusIdle, "No container engine")
	r.offers(false)
	id = r.submit(busybox, "say hello")
	r.house.Blocked(id, "docker")
	house.Done(t, r.house.Settled(r.submit("", "say hello")))
	r.notBegun(id)
}

// An engine that comes while something runs is offered when nothing does; slots that are free do not stand idle for it.
func TestDockerComesWhileAJobRuns(t *testing.T) {
	t.Parallel()
	r := newEngineRig(t)
	r.set(func(s *control.ConnectionSettings) { s.Slots = 2 })
	r.says(control.StatusIdle)
	long, open := r.gated()
	r.comes()
	r.says(control.StatusRunning, "container engine", "when nothing runs")
	house.Done(t, r.house.Settled(r.submit("", "say hello")))
	id := r.submit(busybox, "say hello")
	r.house.Blocked(id, "docker")
	open()
	house.Done(t, r.house.Settled(long))
	house.Done(t, r.house.Settled(id))
}

// An engine that goes while something runs: no new runs are taken until it is withdrawn, or is back.
func TestDockerGoesWhileAJobRuns(t *testing.T) {
	t.Parallel()
	r := newEngineRig(t)
	r.comes()
	r.offers(true)
	r.set(func(s *control.ConnectionSettings) { s.Slots = 2 })
	r.says(control.StatusIdle)
	long, open := r.gated()
	r.goes()
	r.says(control.StatusRunning, "No container engine")
	id := r.submit(busybox, "say hello")
	r.house.Blocked(id, "engine")
	r.notBegun(id)
	r.comes()
	house.Done(t, r.house.Settled(id))
	r.goes()
	r.says(control.StatusRunning, "No container engine")
	id = r.submit(busybox, "say hello")
	open()
	house.Done(t, r.house.Settled(long))
	r.offers(false)
	r.house.Blocked(id, "docker")
	r.notBegun(id)
}

// Settings that are changed back while a job runs leave nothing: the runner takes runs, and says so.
func TestSettingsChangedBack(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	a := newApp(t, h)
	c := a.pair()
	id, open := a.gated(c)
	set := func(slots int) {
		s := c.Settings
		s.Slots = slots
		if _, err := a.SetConnection(context.Background(), c.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(c control.Connection) bool { return strings.Contains(c.Text, "settings") }
	set(c.Settings.Slots + 2)
	a.connection("the new settings wait", waits)
	set(c.Settings.Slots)
	a.connection("nothing waits", func(c control.Connection) bool { return !waits(c) })
	open()
	h.Settled(id)
	if run := h.Settled(a.submit(c, "say hello")); run.Status != protocol.StatusSucceeded {
		t.Errorf("the next run is %s", run.Status)
	}
	// With no job it is the same.
	set(c.Settings.Slots + 2)
	set(c.Settings.Slots)
	a.connection("it is idle", is(control.StatusIdle))
	if run := h.Settled(a.submit(c, "say hello")); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run after that is %s", run.Status)
	}
}
