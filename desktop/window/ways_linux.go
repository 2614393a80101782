package window

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// appBrowsers know --app. The names are those of their packages' programs.
var appBrowsers = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"microsoft-edge", "microsoft-edge-stable", "brave-browser",
}

func ways(Options) []way {
	browser, show := "browser in app mode", func(context.Context, *session) error {
		return fmt.Errorf("none of %q is installed", appBrowsers)
	}
	if path, ok := found(appBrowsers...); ok {
		browser, show = path, app(path)
	}
	return []way{
		{WebView, "WebKitGTK", onDisplay(webkit)},
		{App, browser, onDisplay(show)},
		{Browser, "default browser", onDisplay(tab)},
	}
}

// onDisplay asks first whether there is a display: without one, browsers and xdg-open fail
// late, or say that they did not.
func onDisplay(show func(context.Context, *session) error) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		if !display() {
			return ErrNoDisplay
		}
		return show(ctx, s)
	}
}

func display() bool { return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" }

// endWithUs has the browser end with the thread that starts it, which Main holds.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }

// openWait is how long xdg-open has to fail. Where there is no desktop environment it
// becomes the browser and does not end.
const openWait = 5 * time.Second

func openURL(address string) error {
	if !display() {
		return ErrNoDisplay
	}
	path, ok := found("xdg-open")
	if !ok {
		return errors.New("xdg-open is not installed (package xdg-utils)")
	}
	cmd := exec.Command(path, address)
	// In a session of its own it outlives us, and no terminal of ours ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("xdg-open: %w: no browser is set up", err)
		}
		return nil
	case <-time.After(openWait):
		return nil
	}
}
