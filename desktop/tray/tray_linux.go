package tray

import (
	"context"
	"fmt"
	"log/slog"

	"fyne.io/systray"
	"github.com/godbus/dbus/v5"

	"github.com/everdict/everdict/desktop/sessionbus"
)

// watcher is the bus name of whoever collects tray icons for the panels.
const watcher = "org.kde.StatusNotifierWatcher"

// size is that of the one picture an icon has on the bus. Panels of 16, 24 and 48 pixels
// scale it by whole numbers.
const size = 48

func picture(i Icon) []byte { return i.PNG(size) }

// setIcon: the library panics when the bus has gone by the time that an icon changes.
// Run sees that end by itself, and what it hosts must outlive a panel.
func setIcon(png []byte) {
	defer func() {
		if r := recover(); r != nil {
			slog.Debug("tray icon not changed", "err", r)
		}
	}()
	systray.SetIcon(png)
}

func fit(tooltip string) string { return tooltip }

func available(ctx context.Context) error {
	conn, err := sessionbus.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var owned bool
	if err := conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, watcher).Store(&owned); err != nil {
		return fmt.Errorf("ask the session bus for %s: %w", watcher, err)
	}
	if !owned {
		return fmt.Errorf("%w: nobody has the name %s on the session bus; in GNOME an extension such as AppIndicator brings one", ErrNoHost, watcher)
	}
	return nil
}

func run(ctx context.Context, cfg Config) error {
	if !running.TryLock() {
		return ErrRunning
	}
	defer running.Unlock()
	// The library panics later if it gets no bus, so that is found out before. This also
	// leaves the bus's address in the environment, where the library looks for it.
	probe, err := sessionbus.Connect(ctx)
	if err != nil {
		return err
	}
	probe.Close()
	s, begin, end := prepare(ctx, cfg)
	if s == nil {
		return nil
	}
	defer end()
	// The connection that the library is going to use: its end is the end of the tray.
	conn, err := dbus.SessionBus()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBus, err)
	}
	defer conn.Close()
	appeared, err := hosts(conn)
	if err != nil {
		return fmt.Errorf("%w: watch for panels: %w", ErrNoBus, err)
	}

	built := make(chan struct{})
	// All is in place before the item is on the bus. The menu is only read once it is
	// built: the library holds the panel's question until then.
	start, _ := systray.RunWithExternalLoop(func() { <-built }, nil)
	s.show(begin)
	close(built)
	start()
	s.passing.Go(func() { register(s.ctx, conn, appeared) })
	// The library's own end is not called: it closes the same connection, and panics if it
	// has none.
	return s.follow(cfg.States, conn.Context().Done())
}

// hosts begins to watch for panels that appear.
func hosts(conn *dbus.Conn) (<-chan *dbus.Signal, error) {
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	return signals, conn.AddMatchSignal(
		dbus.WithMatchSender("org.freedesktop.DBus"),
		dbus.WithMatchInterface("org.freedesktop.DBus"),
		dbus.WithMatchMember("NameOwnerChanged"),
		dbus.WithMatchArg(0, watcher),
	)
}

// register shows the icon to each panel that appears. The library does the same, but looks
// first and watches afterwards: a panel that comes in between, as at a login, it misses.
// Panels take the second registration for the first.
func register(ctx context.Context, conn *dbus.Conn, signals <-chan *dbus.Signal) {
	for {
		select {
		case sig, ok := <-signals:
			if !ok {
				return // the bus is gone
			}
			if len(sig.Body) != 3 || sig.Body[0] != watcher || sig.Body[2] == "" {
				continue
			}
			// The path is the library's. A panel that is gone again is no error.
			call := conn.Object(watcher, "/StatusNotifierWatcher").CallWithContext(ctx, watcher+".RegisterStatusNotifierItem", 0, "/StatusNotifierItem")
			if call.Err != nil {
				slog.Debug("tray icon not registered", "err", call.Err)
			}
		case <-ctx.Done():
			return
		}
	}
}
