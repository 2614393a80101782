package desktop

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
)

// autostarts is a system that starts apps at login.
type autostarts struct {
	on    bool
	kept  string // what is in the way
	fixed bool   // changes have no effect
	err   error
	set   []bool // what was asked for
}

func (s *autostarts) Autostart(_ context.Context, on bool) (string, error) {
	s.set = append(s.set, on)
	if s.kept == "" && !s.fixed && s.err == nil {
		s.on = on
	}
	return s.kept, s.err
}

func (s *autostarts) StartsAtLogin(context.Context) (bool, error) { return s.on, nil }

// The setting is what the system does, and what keeps the system from doing it is said.
func TestStartAtLogin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		system     autostarts
		connected  bool
		put        bool
		asked      bool // the system is
		want       bool
		level, say string // of the notice; empty: none
	}{
		{name: "before the first connection it is a wish", put: true, want: true},
		{name: "which can be withdrawn", put: false, asked: true, want: false},
		{name: "taken away by uninstall, and set again", connected: true, put: true, asked: true, want: true},
		{name: "it is there, and stays", system: autostarts{on: true}, connected: true, put: true, want: true},
		{name: "turned off", system: autostarts{on: true}, connected: true, put: false, asked: true, want: false},
		{name: "somebody else's file", system: autostarts{kept: "/x: it was there before"}, connected: true, put: true, asked: true, want: false,
			level: "warn", say: "/x: it was there before. The app is not started at login."},
		{name: "a file that was changed", system: autostarts{on: true, kept: "/x: it was changed"}, connected: true, put: false, asked: true, want: true,
			level: "warn", say: "/x: it was changed. The app is started at login."},
		{name: "arranged by hand", system: autostarts{on: true, fixed: true}, connected: true, put: false, asked: true, want: true,
			level: "warn", say: "started at login all the same"},
		{name: "it cannot be changed", system: autostarts{err: errors.New("no room")}, connected: true, put: true, asked: true, want: false,
			level: "error", say: "no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := New(Config{Dirs: home.Below(t.TempDir()), Autostart: c.system.Autostart, StartsAtLogin: c.system.StartsAtLogin})
			if err != nil {
				t.Fatal(err)
			}
			if c.connected {
				a.connections = append(a.connections, newConnection(a, record{ID: "con_1", Coordinator: "https://everdict.example", Runner: "rnr_1"}))
			}
			s := a.State().Settings
			s.StartAtLogin = c.put
			got, err := a.SetSettings(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			now := a.State()
			if got.StartAtLogin != c.want || now.Settings.StartAtLogin != c.want || (len(c.system.set) > 0) != c.asked {
				t.Errorf("set to %v: answered %v, shown %v, the system was asked for %v; want %v, and it asked: %v", c.put, got.StartAtLogin, now.Settings.StartAtLogin, c.system.set, c.want, c.asked)
			}
			switch {
			case c.say == "" && len(now.Notices) > 0:
				t.Errorf("it says %+v", now.Notices)
			case c.say != "" && (len(now.Notices) != 1 || now.Notices[0].Level != c.level || !strings.Contains(now.Notices[0].Text, c.say) || !sentence(now.Notices[0].Text)):
				t.Errorf("it says %+v, want one of level %s with %q", now.Notices, c.level, c.say)
			}
		})
	}
}

// What others change is seen when the window is opened, before it shows the setting.
func TestStartAtLoginIsLookedUp(t *testing.T) {
	t.Parallel()
	system := &autostarts{on: true}
	shown := true
	var a *App
	a, err := New(Config{Dirs: home.Below(t.TempDir()), StartsAtLogin: system.StartsAtLogin, Window: func(context.Context, func() (string, error)) error {
		shown = a.State().Settings.StartAtLogin
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	a.connections = append(a.connections, newConnection(a, record{ID: "con_1", Coordinator: "https://everdict.example", Runner: "rnr_1"}))
	for _, on := range []bool{true, false, true} {
		system.on = on
		if _, err := a.Open(t.Context(), control.OpenRequest{}); err != nil {
			t.Fatal(err)
		}
		if shown != on {
			t.Errorf("the window shows %v, want %v", shown, on)
		}
	}
}
