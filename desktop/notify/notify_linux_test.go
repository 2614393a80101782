package notify

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/everdict/everdict/desktop/eventually"
	"github.com/everdict/everdict/desktop/sessionbus/bustest"
)

func TestNotify(t *testing.T) {
	bus := bustest.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	if err := Notify(t.Context(), "Run failed", ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("with nobody who shows it: %v, want %v", err, ErrUnavailable)
	}
	notes := bus.Notifications(t)
	if err := Notify(t.Context(), "Run passed", `118 of 120 <a href="http://evil.example">&amp;`); err != nil {
		t.Fatal(err)
	}
	got := next(t, notes)
	// As markup, so that the text is what is read.
	if want := `118 of 120 &lt;a href=&#34;http://evil.example&#34;&gt;&amp;amp;`; got.Title != "Run passed" || got.Body != want {
		t.Errorf("shown were %q and %q, want Run passed and %q", got.Title, got.Body, want)
	}
	if entry := got.Hints["desktop-entry"].Value(); entry != AppID || got.Icon != "everdict" {
		t.Errorf("it is of app %v with icon %q, want %s, everdict", entry, got.Icon, AppID)
	}
	if err := Notify(t.Context(), "\x00", "body"); err == nil {
		t.Error("a notification without a title was shown")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Notify(ended, "Run passed", ""); err == nil {
		t.Error("a notification was shown after its context had ended")
	}

	// The bus ends, and another session begins.
	bus.Stop()
	if err := Notify(t.Context(), "Run passed", ""); err == nil {
		t.Error("a notification was shown on a bus that is gone")
	}
	bus = bustest.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	notes = bus.Notifications(t)
	if err := Notify(t.Context(), "Back", ""); err != nil {
		t.Fatal(err)
	}
	if got := next(t, notes); got.Title != "Back" {
		t.Errorf("shown was %q, want Back", got.Title)
	}
}

func next(t *testing.T, notes <-chan bustest.Note) bustest.Note {
	t.Helper()
	select {
	case n := <-notes:
		return n
	case <-time.After(eventually.Patience):
		t.Fatal("no notification came")
		return bustest.Note{}
	}
}
