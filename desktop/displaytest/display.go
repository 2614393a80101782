// Package displaytest is a screen for tests that have none: an X server of their own that
// draws into memory, with a window manager. Nothing of the session that the tests run in
// is touched.
package displaytest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/eventually"
)

// Display is a screen.
type Display struct {
	// Name is what DISPLAY has, such as ":1".
	Name string
}

// Start starts a screen, which ends with the test. Xvfb takes the first number that is free.
func Start(t testing.TB) *Display {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	server := exec.Command("Xvfb", "-displayfd", "3", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset")
	server.ExtraFiles = []*os.File{w}
	start(t, server)
	w.Close()
	number := make([]byte, 16)
	n, err := r.Read(number)
	if err != nil {
		t.Fatalf("read the number of the display: %v", err)
	}
	d := &Display{Name: ":" + strings.TrimSpace(string(number[:n]))}
	manager := exec.Command("openbox", "--sm-disable")
	manager.Env = d.Environ(os.Environ())
	start(t, manager)
	// The window manager is there when it says so on the root window.
	eventually.Nil(t, "the window manager", func() error {
		out, err := d.command("xprop", "-root", "_NET_SUPPORTING_WM_CHECK").Output()
		if err == nil && !bytes.Contains(out, []byte("window id")) {
			err = fmt.Errorf("the root window says %q", out)
		}
		return err
	})
	return d
}

func start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v (make deps installs it)", cmd.Path, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// Environ is an environment with this display in it, and no other.
func (d *Display) Environ(base []string) []string {
	var env []string
	for _, kv := range base {
		if name, _, _ := strings.Cut(kv, "="); name != "DISPLAY" && name != "WAYLAND_DISPLAY" && name != "XAUTHORITY" {
			env = append(env, kv)
		}
	}
	return append(env, "DISPLAY="+d.Name)
}

func (d *Display) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = d.Environ(os.Environ())
	return cmd
}

// Window waits for a window of this WM_CLASS that is seen, and returns its id.
func (d *Display) Window(t testing.TB, class string) string {
	t.Helper()
	var id string
	eventually.Nil(t, "a window of class "+class, func() error {
		out, err := d.command("xdotool", "search", "--onlyvisible", "--class", "^"+class+"$").Output()
		if ids := strings.Fields(string(out)); len(ids) > 0 {
			id = ids[len(ids)-1]
			return nil
		}
		return fmt.Errorf("there is none (%v)", err)
	})
	return id
}

// Title is what the window is called.
func (d *Display) Title(t testing.TB, id string) string {
	t.Helper()
	out, err := d.command("xdotool", "getwindowname", id).Output()
	if err != nil {
		t.Fatalf("read the title of window %s: %v", id, err)
	}
	return strings.TrimSpace(string(out))
}

// CloseWindow closes the window as its frame does: the window manager asks it to
// (WM_DELETE_WINDOW).
func (d *Display) CloseWindow(t testing.TB, id string) {
	t.Helper()
	if out, err := d.command("wmctrl", "-i", "-c", id).CombinedOutput(); err != nil {
		t.Fatalf("ask the window manager to close window %s: %v\n%s", id, err, out)
	}
}
