// Package bustest is a desktop for tests without one: a private D-Bus daemon, a panel
// that takes tray icons, and a server of notifications. Nothing of the session that the
// tests run in is touched.
package bustest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// Bus is a session bus that nobody else is on.
type Bus struct {
	Address string

	daemon *exec.Cmd
	stop   sync.Once
}

// Start starts a bus, which ends with the test.
func Start(t testing.TB) *Bus {
	t.Helper()
	// A socket's path may have 107 bytes, which the directory of a test can exceed.
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return start(t, "unix:path="+filepath.Join(dir, "bus"))
}

// Again starts another bus in the place of one that was stopped, as the next login of the user does.
func (b *Bus) Again(t testing.TB) *Bus {
	t.Helper()
	return start(t, b.Place())
}

// Place is the address without the id of the bus: that of whichever bus is there.
func (b *Bus) Place() string {
	place, _, _ := strings.Cut(b.Address, ",")
	return place
}

func start(t testing.TB, place string) *Bus {
	t.Helper()
	b := &Bus{daemon: exec.Command("dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address", "--address="+place)}
	out, err := b.daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.daemon.Start(); err != nil {
		t.Fatalf("start a D-Bus daemon: %v (make deps installs it)", err)
	}
	t.Cleanup(b.Stop)
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the address of the D-Bus daemon: %v", err)
	}
	b.Address = strings.TrimSpace(address)
	return b
}

// Stop ends the bus, as a logout does.
func (b *Bus) Stop() {
	b.stop.Do(func() {
		_ = b.daemon.Process.Kill()
		_ = b.daemon.Wait()
	})
}

// Environ is our environment with this bus in it, and no display.
func (b *Bus) Environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY":
		default:
			env = append(env, kv)
		}
	}
	return append(env, "DBUS_SESSION_BUS_ADDRESS="+b.Address)
}

// Connect connects to the bus until the test ends.
func (b *Bus) Connect(t testing.TB) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		t.Fatalf("connect to the private bus: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// own takes a name on the bus.
func own(t testing.TB, conn *dbus.Conn, name string) {
	t.Helper()
	reply, err := conn.RequestName(name, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("take the name %s: reply %v, error %v", name, reply, err)
	}
}

// Note is a notification as it came.
type Note struct {
	Title, Body, Icon string
	Hints             map[string]dbus.Variant
}

// Notifications starts a server of notifications that says it reads markup, as most do.
func (b *Bus) Notifications(t testing.TB) <-chan Note {
	t.Helper()
	conn := b.Connect(t)
	s := &noteServer{notes: make(chan Note, 64)}
	const path, name = "/org/freedesktop/Notifications", "org.freedesktop.Notifications"
	if err := conn.Export(s, path, name); err != nil {
		t.Fatal(err)
	}
	own(t, conn, name)
	return s.notes
}

type noteServer struct{ notes chan Note }

// Notify is org.freedesktop.Notifications.Notify.
func (s *noteServer) Notify(_ string, _ uint32, icon, title, body string, _ []string, hints map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	s.notes <- Note{Title: title, Body: body, Icon: icon, Hints: hints}
	return 1, nil
}

// GetCapabilities is org.freedesktop.Notifications.GetCapabilities.
func (s *noteServer) GetCapabilities() ([]string, *dbus.Error) {
	return []string{"body", "body-markup"}, nil
}
