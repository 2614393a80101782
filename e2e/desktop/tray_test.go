package desktop_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/eventually"
	"github.com/everdict/everdict/desktop/sessionbus/bustest"
	"github.com/everdict/everdict/e2e/house"
)

// The icon follows the state, its menu steers the app, and what ends is told, all over a session bus of the test's own.
func TestTray(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	bus := bustest.Start(t)
	panel, notes := bus.Panel(t), bus.Notifications(t)
	p := startProcWith(t, []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Address}, "--background")
	icon := panel.Tray(t)
	c := p.pair(h, func(...string) {})
	says := func(words string) {
		t.Helper()
		eventually.Nil(t, "the tooltip says "+words, func() error {
			look, err := icon.Look()
			if err == nil && !strings.Contains(look.Tooltip, words) {
				err = fmt.Errorf("it says %q", look.Tooltip)
			}
			return err
		})
	}
	says("waiting for a run")
	icon.Click(t, "Pause")
	says("Paused: by you")
	icon.Click(t, "Resume")
	says("waiting for a run")
	file := filepath.Join(p.home, "go")
	req := house.Scripted("run until [ -e " + file + " ]; do sleep 0.05; done")
	req.Runtime = c.Target
	id := h.Submit(req)
	says("A job runs")
	// Quitting asks while a job runs.
	icon.Click(t, "Quit…")
	p.until("it says so", func(s *control.State) bool { return len(s.Notices) > 0 })
	icon.Click(t, "Pause after this job")
	says("No new ones are taken")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Settled(id)
	says("Paused: by you")
	told := func(what, words string) {
		t.Helper()
		select {
		case n := <-notes:
			if !strings.Contains(n.Title+" "+n.Body, words) {
				t.Errorf("%s: the notification is %+v, want one with %q", what, n, words)
			}
		case <-time.After(house.Patience):
			t.Errorf("%s was not told", what)
		}
	}
	told("as whom it was connected", "as "+c.Account.Subject)
	told("the end of a job", "c1")
	icon.Click(t, "Resume")
	says("waiting for a run")
	req = house.Scripted("hang")
	req.Runtime = c.Target
	h.Submit(req)
	says("A job runs")
	icon.Click(t, "Stop now")
	says("Paused: by you")
	p.do(http.MethodGet, "state", nil, nil)
	icon.Click(t, "Quit")
	select {
	case <-p.done:
	case <-time.After(house.Patience):
		t.Fatal("the app did not end")
	}
}
