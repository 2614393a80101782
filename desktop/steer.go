package desktop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// some are the connections that an id means: one, or all for none. The caller has the mutex.
func (a *App) some(id string) ([]*connection, error) {
	if id == "" {
		return a.connections, nil
	}
	c, err := a.find(id)
	return []*connection{c}, err
}

// Pause implements control.App.
func (a *App) Pause(_ context.Context, r control.PauseRequest) (err error) {
	a.change(func() {
		var which []*connection
		if which, err = a.some(r.Connection); err != nil {
			return
		}
		for _, c := range which {
			c.rec.Paused = true
			if r.Stop && c.runner != nil {
				c.applied = c.pauseWords()
				c.runner.StopNow(c.applied)
			}
		}
		err = a.save()
	})
	return err
}

// Resume implements control.App.
func (a *App) Resume(_ context.Context, r control.ResumeRequest) (err error) {
	a.change(func() {
		var which []*connection
		if which, err = a.some(r.Connection); err != nil {
			return
		}
		for _, c := range which {
			c.rec.Paused = false
			c.override[control.ReasonHours], c.override[control.ReasonBattery] = true, true
		}
		err = a.save()
	})
	return err
}

// SetSettings implements control.App. One at a time: what is on the disk, in the app and started at login is the same.
func (a *App) SetSettings(ctx context.Context, s control.Settings) (control.Settings, error) {
	if err := settings.Check(&s); err != nil {
		return control.Settings{}, err
	}
	a.setting.Lock()
	defer a.setting.Unlock()
	if err := home.Write(a.settingsPath(), settingsVersion, &s); err != nil {
		return control.Settings{}, err
	}
	starts, known := a.startsAtLogin(ctx)
	login := false
	a.change(func() {
		login = s.StartAtLogin != a.settings.StartAtLogin || known && len(a.connections) > 0 && s.StartAtLogin != starts
		if s.PauseOnBattery && !a.settings.PauseOnBattery {
			for _, c := range a.connections {
				delete(c.override, control.ReasonBattery)
			}
		}
		a.settings = s
	})
	if login {
		a.autostart(ctx, s.StartAtLogin)
	}
	a.lookAround(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.StartAtLogin = a.settings.StartAtLogin
	return s, nil
}

// SetConnection implements control.App.
func (a *App) SetConnection(_ context.Context, id string, s control.ConnectionSettings) (control.Connection, error) {
	if err := settings.CheckConnection(&s); err != nil {
		return control.Connection{}, err
	}
	s.Understood = false
	var c *connection
	var err error
	a.change(func() {
		if c, err = a.find(id); err == nil {
			was := c.rec.Settings
			c.rec.Settings = s
			if err = a.save(); err != nil {
				c.rec.Settings = was
				return
			}
		}
	})
	if err != nil {
		return control.Connection{}, err
	}
	c.nudge()
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.view(), nil
}

// Retry implements control.App.
func (a *App) Retry(_ context.Context, id string) (control.Connection, error) {
	c, err := a.lookup(id)
	if err != nil {
		return control.Connection{}, err
	}
	c.nudge()
	c.lookNow()
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := c.runner; r != nil && !c.online {
		r.Redial()
	}
	return c.view(), nil
}

// Unpair implements control.App. What is decided here holds, whether the coordinator hears of it or not; should the app end
// in the middle, the next one goes on.
func (a *App) Unpair(ctx context.Context, id string) (control.Unpaired, error) {
	var c *connection
	var err error
	a.change(func() {
		if c, err = a.find(id); err == nil {
			was := c.rec.Unpairing
			c.rec.Unpairing = true
			if err = a.save(); err != nil {
				c.rec.Unpairing = was
			}
		}
	})
	if err != nil {
		return control.Unpaired{}, err
	}
	ctx = context.WithoutCancel(ctx)
	a.mu.Lock()
	rec, r := c.rec, c.runner
	a.mu.Unlock()
	if r != nil {
		r.StopNow("this computer is being disconnected")
	}
	c.stop()
	told := a.tellGone(ctx, rec)
	if err := a.vault.Delete(ctx, rec.ID, rec.Key); err != nil {
		a.log.Error("the key of a connection could not be removed", "err", err)
		a.change(func() {
			a.notice("warn", fmt.Sprintf("The key for %s could not be removed from the %s: %s.", hostOf(rec.Coordinator), rec.Key, protocol.Clip(err.Error(), 200)), "Remove it there: it is called "+vault.Service+", "+rec.ID+".")
		})
	}
	a.change(func() {
		a.connections = slices.DeleteFunc(a.connections, func(o *connection) bool { return o == c })
		err = a.save()
		a.historyRev++
	})
	state, work := a.cfg.Dirs.Runner(rec.ID)
	err = errors.Join(err, a.history.Forget(rec.ID), os.RemoveAll(state), os.RemoveAll(work))
	a.refreshKeys(ctx)
	releaseMemory()
	host := hostOf(rec.Coordinator)
	out := control.Unpaired{Told: told == nil, Text: fmt.Sprintf("This computer is not connected to %s any more, and %s knows.", host, host)}
	if told != nil {
		a.log.Warn("the coordinator could not be told that this computer is gone", "coordinator", host, "err", told)
		out.Text = fmt.Sprintf("This computer is not connected to %s any more. %s could not be told: remove the runner %s there.", host, host, rec.Label)
	}
	return out, err
}

// sayUnpaired makes a notice of what nobody waits to be told: how a connection ended that an earlier life of the app began
// to remove, or that a new one has replaced. text says for the latter that the coordinator does not know; empty: out.Text.
func (a *App) sayUnpaired(out control.Unpaired, err error, text string) {
	var p *protocol.Problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
		return // somebody was faster, and was told
	}
	if err != nil {
		a.log.Error("a connection could not be removed altogether", "err", err)
		a.change(func() {
			a.notice("error", "A connection could not be removed altogether: "+protocol.Clip(err.Error(), 300)+".", "")
		})
	}
	switch {
	case out.Text == "" || out.Told:
	case text == "":
		a.change(func() { a.notice("warn", out.Text, "") })
	default:
		a.change(func() { a.notice("warn", text, "Remove it there: it is the one that is not online.") })
	}
}

// tellGone has the coordinator revoke this computer's own runner.
func (a *App) tellGone(ctx context.Context, rec record) error {
	if rec.Revoked != "" {
		return nil // it knows
	}
	ctx, cancel := context.WithTimeout(ctx, askBound/2)
	defer cancel()
	s, err := a.vault.Get(ctx, rec.ID, rec.Key)
	if err != nil {
		return err
	}
	key := link.DeviceKey{Runner: rec.Runner, Key: s.Key}
	err = a.tellGoneOnce(ctx, rec.Coordinator, key)
	if refusal(err) == link.CodeNonce { // it has restarted since it gave the nonce
		err = a.tellGoneOnce(ctx, rec.Coordinator, key)
	}
	// Any other refusal, such as that of a nonce or of something on the way, does not say that the runner is gone.
	if reason := refusal(err); reason == "revoked" || reason == "unknown" {
		return nil
	}
	return err
}

// refusal is the reason of a coordinator that does not take a credential; empty: err is something else.
func refusal(err error) string {
	var p *protocol.Problem
	if !errors.As(err, &p) || p.Code != protocol.CodeUnauthenticated {
		return ""
	}
	reason, _ := p.Data["reason"].(string)
	return reason
}

func (a *App) tellGoneOnce(ctx context.Context, coordinator string, key link.DeviceKey) error {
	c, err := a.client(coordinator, "")
	if err != nil {
		return err
	}
	bearer, err := key.Bearer(ctx, func(ctx context.Context) (string, error) {
		n, err := c.Nonce(ctx)
		if err != nil {
			return "", err
		}
		return n.Nonce, nil
	})
	if err != nil {
		return err
	}
	if c, err = a.client(coordinator, string(bearer)); err != nil {
		return err
	}
	return c.Unpair(ctx)
}

// refreshKeys says where keys are and whether the keyring can be used.
func (a *App) refreshKeys(ctx context.Context) {
	err := a.vault.Usable(ctx)
	a.change(func() {
		k := control.Keys{Place: a.keys.Place, Keyring: err == nil}
		if err == nil || errors.Is(err, vault.ErrLocked) {
			k.Place = control.KeyringPlace
		}
		var files []string
		for _, c := range a.connections {
			if c.rec.Key == control.FilePlace {
				files = append(files, hostOf(c.rec.Coordinator))
			}
		}
		if len(files) > 0 {
			k.Warning = "The keys for " + strings.Join(files, ", ") + " lie in files that every program of yours can read, jobs of the process sandbox among them."
		}
		a.keys = k
	})
}

// MoveKeys implements control.App.
func (a *App) MoveKeys(ctx context.Context, m control.KeyMove) (control.Keys, error) {
	if m.Place != control.KeyringPlace && m.Place != control.FilePlace {
		return control.Keys{}, protocol.BadRequest("there is no place %q for keys", protocol.Clip(string(m.Place), 20)).WithHint("want keyring or file")
	}
	if m.Place == control.KeyringPlace {
		if err := a.vault.Usable(ctx); err != nil {
			return control.Keys{}, protocol.Conflict("the keyring cannot be used: %s", err).WithHint("unlock or start it first")
		}
	}
	a.mu.Lock()
	all := slices.Clone(a.connections)
	a.mu.Unlock()
	for _, c := range all {
		if err := a.moveKey(ctx, c, m.Place); err != nil {
			return control.Keys{}, err
		}
	}
	a.refreshKeys(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys, nil
}

// moveKey copies first, then says where the key is, then removes the old one: no crash loses it.
func (a *App) moveKey(ctx context.Context, c *connection, to control.KeyPlace) error {
	a.mu.Lock()
	id, from := c.rec.ID, c.rec.Key
	a.mu.Unlock()
	if from == to {
		return nil
	}
	s, err := a.vault.Get(ctx, id, from)
	if err == nil {
		err = a.vault.Put(ctx, id, to, s)
	}
	if err != nil {
		return err
	}
	a.change(func() {
		c.rec.Key = to
		if err = a.save(); err != nil {
			c.rec.Key = from
		}
	})
	if err != nil {
		return errors.Join(err, a.vault.Delete(ctx, id, to))
	}
	return a.vault.Delete(ctx, id, from)
}

// History implements control.App.
func (a *App) History(limit int) (control.History, error) {
	a.mu.Lock()
	rev := a.historyRev
	a.mu.Unlock()
	entries, err := a.history.Last(limit)
	return control.History{Rev: rev, Entries: entries}, err
}

// Machine implements control.App.
func (a *App) Machine(ctx context.Context, again bool) (control.Machine, error) {
	a.mu.Lock()
	known := a.machine
	a.mu.Unlock()
	if known != nil && !again {
		return *known, nil
	}
	sandbox := control.SandboxDocker
	a.mu.Lock()
	if len(a.connections) == 0 || slices.ContainsFunc(a.connections, func(c *connection) bool { return c.rec.Settings.Sandbox == control.SandboxProcess }) {
		sandbox = control.SandboxProcess
	}
	a.mu.Unlock()
	report := doctor.Examine(ctx, doctor.Config{Version: a.cfg.Version, Sandbox: sandbox, StateDir: a.cfg.Dirs.State, WorkDir: a.cfg.Dirs.Work})
	m := control.Machine{At: protocol.At(time.Now()), Report: report}
	a.change(func() {
		a.machineRev++
		m.Rev = a.machineRev
		a.machine = &m
		for _, c := range a.connections { // what they offer is no other than what is shown
			c.seen = report.Capabilities
			c.lookNow()
		}
	})
	return m, nil
}

// Log implements control.App.
func (a *App) Log(run string, epoch int64) (control.LogTail, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.connections {
		if c.runner == nil || c.job(run, epoch) == nil {
			continue
		}
		if tail := c.runner.Tail(run, epoch); tail != nil {
			return tail, nil
		}
	}
	return nil, protocol.NotFound("%s does not run here", protocol.Clip(run, 60)).WithHint("its log is on its page at the coordinator")
}

// Visit implements control.App.
func (a *App) Visit(_ context.Context, r control.VisitRequest) error {
	c, err := a.lookup(r.Connection)
	if err != nil {
		return err
	}
	address := c.rec.Coordinator
	if r.Run != "" {
		if !strings.HasPrefix(r.Run, protocol.RunPrefix) || !protocol.ValidName(r.Run, 80) {
			return protocol.BadRequest("%q is no run", protocol.Clip(r.Run, 40))
		}
		address = runURL(address, r.Run)
	}
	if a.cfg.Browser == nil {
		return protocol.Conflict("there is no browser").WithHint("%s", "open "+address)
	}
	return a.cfg.Browser(address)
}

// releaseMemory gives back what a moment of work has taken: a resident app is small.
func releaseMemory() { debug.FreeOSMemory() }
