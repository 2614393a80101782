package desktop_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
)

// With the first connection the app is started at login. Uninstalling takes that away, the setting says so, and sets it again;
// somebody else's file in that place is kept, and said.
func TestStartAtLogin(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	p := startProc(t)
	file := filepath.Join(p.home, "xdg", "autostart", "dev.everdict.desktop")
	there := func() bool { _, err := os.Stat(file); return err == nil }
	if s := p.until("it answers", func(*control.State) bool { return true }); !s.Settings.StartAtLogin || there() {
		t.Errorf("before the first connection: the setting is %v, the file is there: %v", s.Settings.StartAtLogin, there())
	}
	p.pair(h, func(...string) {})
	set := func(on bool) control.Settings {
		t.Helper()
		s := p.until("it answers", func(*control.State) bool { return true })
		want := s.Settings
		want.StartAtLogin = on
		var got control.Settings
		p.do(http.MethodPut, "settings", want, &got)
		return got
	}
	if !there() {
		t.Fatal("with the first connection it is not started at login")
	}
	if out, err := p.command("uninstall").CombinedOutput(); err != nil || there() {
		t.Fatalf("uninstall: %v, %s; the file is there: %v", err, out, there())
	}
	p.kill()
	p.start()
	if s := p.until("it answers", func(*control.State) bool { return true }); s.Settings.StartAtLogin {
		t.Error("after uninstall the setting of the next app says that it is started at login")
	}
	if got := set(true); !got.StartAtLogin || !there() {
		t.Errorf("set again: %v, the file is there: %v", got.StartAtLogin, there())
	}
	if out, err := p.command("uninstall").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v, %s", err, out)
	}
	if got := set(true); !got.StartAtLogin || !there() {
		t.Errorf("the same value, put after another uninstall: %v, the file is there: %v", got.StartAtLogin, there())
	}
	if got := set(false); got.StartAtLogin || there() {
		t.Errorf("turned off: %v, the file is there: %v", got.StartAtLogin, there())
	}
	foreign := []byte("[Desktop Entry]\nType=Application\nName=Other\nExec=/usr/bin/other\n")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := set(true); got.StartAtLogin {
		t.Error("beside somebody else's file the setting says that it is started at login")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != string(foreign) {
		t.Errorf("somebody else's file is %q, %v", b, err)
	}
	p.until("it is said", func(s *control.State) bool {
		return len(s.Notices) > 0 && strings.Contains(s.Notices[0].Text, file)
	})
}
