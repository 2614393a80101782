package desktop

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/protocol"
)

// idleConnection is one whose runner is connected, takes runs and offers git and what else is named.
func idleConnection(t *testing.T, offered ...string) *connection {
	t.Helper()
	a, err := New(Config{Dirs: home.Below(t.TempDir()), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	rec := record{ID: "con_1", Coordinator: "https://h.example", Runner: "rnr_1", Settings: settings.DefaultConnection("linux")}
	c := newConnection(a, rec)
	c.started, c.runner, c.online, c.trouble = rec, agent.New(agent.Config{}), true, trouble{}
	c.offered = append([]string{protocol.CapGit}, offered...)
	c.seen = c.offered
	a.connections = []*connection{c}
	return c
}

// A runner is started anew as long as it differs from the one that there would be now, and no longer.
func TestRenewal(t *testing.T) {
	t.Parallel()
	const docker = protocol.CapDocker
	for _, k := range []struct {
		name    string
		offered []string
		change  func(*connection)
		want    renewal
	}{
		{"nothing", []string{docker}, func(*connection) {}, ""},
		{"another order", []string{docker}, func(c *connection) { c.seen = []string{docker, protocol.CapGit} }, ""},
		{"settings", nil, func(c *connection) { c.rec.Settings.Slots = 3 }, renewSettings},
		{"settings and back", nil, func(c *connection) { c.rec.Settings.Slots = 3; c.rec.Settings.Slots = 1 }, ""},
		{"the key has moved", nil, func(c *connection) { c.rec.Key = control.KeyringPlace }, renewSettings},
		{"an engine has come", nil, func(c *connection) { c.seen = []string{protocol.CapGit, docker} }, renewCome},
		{"an engine has gone", []string{docker}, func(c *connection) { c.seen = []string{protocol.CapGit} }, renewGone},
		{"the engine is another one", []string{docker}, func(c *connection) { c.engine = "unix:///other.sock" }, renewMachine},
		{"a login has come", nil, func(c *connection) { c.seen = []string{protocol.CapGit, protocol.CapClaudeLogin} }, renewMachine},
		{"the app ends", nil, func(c *connection) { c.seen, c.draining = nil, true }, ""},
		{"no runner", nil, func(c *connection) { c.seen, c.runner = nil, nil }, ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := idleConnection(t, k.offered...)
			c.app.change(func() { k.change(c) })
			if got := c.renewal(); got != k.want {
				t.Fatalf("the renewal is %q, want %q", got, k.want)
			}
			if c.runner == nil || c.draining {
				return
			}
			if paused := c.applied != ""; paused != (k.want != "") {
				t.Errorf("the runner is paused: %q", c.applied)
			}
			if now := c.renew(); now != (k.want != "") {
				t.Errorf("the runner ends now: %v", now)
			}
			want := control.StatusConnecting
			if k.want == "" {
				want = control.StatusIdle
			}
			if v := c.app.State().Connections[0]; v.Status != want || !sentence(v.Text) {
				t.Errorf("it is shown as %s: %s", v.Status, v.Text)
			}
		})
	}
}

// The buttons are there when they do something.
func TestResumeAndRetryHaveAnEffect(t *testing.T) {
	t.Parallel()
	at := protocol.At(time.Now())
	for _, k := range []struct {
		name          string
		change        func(*connection)
		resume, retry bool
	}{
		{"idle", func(*connection) {}, false, false},
		{"paused by the user", func(c *connection) { c.rec.Paused = true }, true, false},
		{"outside of its hours", func(c *connection) { c.app.hoursOpen = false }, true, false},
		{"on battery", func(c *connection) { c.app.power.OnBattery = true }, true, false},
		{"no engine", func(c *connection) { c.condition = control.ReasonDocker }, false, true},
		{"no disk", func(c *connection) { c.condition = control.ReasonDisk }, false, true},
		{"no disk, and paused by the user", func(c *connection) { c.rec.Paused, c.condition = true, control.ReasonDisk }, true, true},
		{"the last run was refused", func(c *connection) { c.degraded = "no directories" }, false, false},
		{"no answer", func(c *connection) {
			c.online, c.trouble = false, trouble{status: control.StatusConnecting, reason: control.ReasonUnreachable, retryAt: &at}
		}, false, true},
		{"starting", func(c *connection) {
			c.online, c.trouble = false, trouble{status: control.StatusConnecting, reason: control.ReasonStarting}
		}, false, false},
		{"in use elsewhere", func(c *connection) {
			c.online, c.trouble = false, trouble{status: control.StatusAttention, reason: control.ReasonElsewhere, final: true}
		}, false, true},
		{"revoked", func(c *connection) {
			c.online, c.rec.Revoked, c.trouble = false, "gone", trouble{status: control.StatusAttention, reason: control.ReasonRevoked, final: true}
		}, false, false},
		{"being disconnected", func(c *connection) { c.rec.Unpairing = true }, false, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := idleConnection(t, protocol.CapDocker)
			c.app.change(func() { k.change(c) })
			v := c.app.State().Connections[0]
			if v.CanResume != k.resume || v.CanRetry != k.retry {
				t.Errorf("%s (%s): resume %v, retry %v; want %v, %v", v.Status, v.Text, v.CanResume, v.CanRetry, k.resume, k.retry)
			}
		})
	}
}

// Without an engine that is said, whether or not jobs need one.
func TestNoEngineIsSaid(t *testing.T) {
	t.Parallel()
	c := idleConnection(t)
	if v := c.app.State().Connections[0]; v.Status != control.StatusIdle || !strings.Contains(v.Text, "engine") {
		t.Errorf("without an engine: %s, %q", v.Status, v.Text)
	}
	c = idleConnection(t, protocol.CapDocker)
	if v := c.app.State().Connections[0]; v.Status != control.StatusIdle || strings.Contains(v.Text, "engine") {
		t.Errorf("with an engine: %s, %q", v.Status, v.Text)
	}
}

// A report of the machine that an engine has made untrue is made anew.
func TestMachineReportFollowsTheEngine(t *testing.T) {
	t.Parallel()
	a := idleConnection(t).app
	told := &control.Machine{}
	told.Capabilities = []string{protocol.CapGit}
	a.machine = told
	before := a.machineRev
	a.change(func() { a.sawDocker(false) })
	if a.machine != told || a.machineRev != before {
		t.Error("a report that is true was dropped")
	}
	a.change(func() { a.sawDocker(true) })
	if a.machine != nil || a.machineRev == before {
		t.Error("a report without the engine that is there was kept")
	}
}

// Settings that two have sent at once are the same on the disk, here, and in what starts at login.
func TestSettingsAtOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	login := true
	a, err := New(Config{Dirs: home.Below(t.TempDir()), Autostart: func(_ context.Context, on bool) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		login = on
		return "", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		var wg sync.WaitGroup
		for _, on := range []bool{true, false} {
			wg.Go(func() {
				s := settings.Default()
				s.StartAtLogin = on
				if _, err := a.SetSettings(context.Background(), s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var kept control.Settings
		if err := home.Read(filepath.Join(a.cfg.Dirs.Config, "settings.json"), settingsVersion, &kept, settings.Check); err != nil {
			t.Fatal(err)
		}
		if here := a.State().Settings.StartAtLogin; kept.StartAtLogin != here || login != here {
			t.Fatalf("starts at login: %v on the disk, %v here, %v in truth", kept.StartAtLogin, here, login)
		}
	}
}
