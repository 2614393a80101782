package desktop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/eventually"
	"github.com/everdict/everdict/desktop/sessionbus/bustest"
	"github.com/everdict/everdict/e2e/house"
)

// An app that was started before there was a session bus has its icon when one comes, and again when that one has ended and
// the next one is there. The icon works: its menu steers the app.
func TestTrayOutlivesTheBus(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	bus.Stop()
	p := startProcWith(t, []string{"DBUS_SESSION_BUS_ADDRESS=" + bus.Place()}, "--background")
	for range 2 {
		bus = bus.Again(t)
		icon := bus.Panel(t).Tray(t)
		eventually.Nil(t, "the icon says how it is", func() error {
			look, err := icon.Look()
			if err == nil && look.Tooltip != "Everdict: This computer is connected to no coordinator." {
				err = fmt.Errorf("it says %q", look.Tooltip)
			}
			return err
		})
		icon.Find(t, "Open Everdict")
		bus.Stop()
	}
	p.until("the app goes on", func(s *control.State) bool { return s.Status == control.StatusNone })
	bus = bus.Again(t)
	bus.Panel(t).Tray(t).Click(t, "Quit")
	select {
	case <-p.done:
	case <-time.After(house.Patience):
		t.Fatal("the app did not end")
	}
}
