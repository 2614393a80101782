// Package tray shows Everdict's icon and menu in the notification area of the
// desktop: the StatusNotifierItem of Linux, the notification area of Windows, the
// menu bar of macOS. What they show comes in as a State; what a person does with
// them goes out by the item's id. It decides no text and keeps no state of the app.
package tray

import (
	"context"
	"errors"

	"github.com/everdict/everdict/desktop/sessionbus"
)

// Reasons why there is no tray. Each is wrapped in a sentence that a person can read.
var (
	// ErrNoBus: there is no session bus, so there never will be a tray. Linux only.
	ErrNoBus = sessionbus.ErrNone
	// ErrNoHost: nothing on this desktop shows tray icons at the moment, as in plain
	// GNOME. Run may be called all the same: the icon is there as soon as a host is.
	ErrNoHost = errors.New("no tray on this desktop")
	// ErrGone: there was a tray, and what carried it (on Linux the session bus) has ended.
	// On Linux Run may be called again.
	ErrGone = errors.New("the desktop's tray is gone")
	// ErrRunning: one process has one icon.
	ErrRunning = errors.New("the tray is running already")
)

// State is all that the tray shows. The zero value is an offline icon without a menu.
type State struct {
	Icon Icon
	// Title names the icon for screen readers and for panels that list icons by name.
	Title string
	// Tooltip is one line. Windows shows the first 127 UTF-16 units of it.
	Tooltip string
	Items   []Item
}

// Item is one line of the menu.
type Item struct {
	// ID is what Config.Clicked gets. Items that keep their ids and their order are
	// changed in place, so that an open menu does not close.
	ID    string
	Title string
	// Disabled items are shown and cannot be clicked.
	Disabled bool
	// Checked shows a tick.
	Checked bool
	// Separator is a line; everything else of the item is ignored.
	Separator bool
	Children  []Item
}

// Config is what Run shows and whom it tells.
type Config struct {
	// States is what to show. Run reads it for as long as it runs and shows the newest;
	// nothing is shown before the first.
	States <-chan State
	// Clicked gets the id of an item. Clicks are passed on one after the other, in their
	// order, by a goroutine of their own, and none is dropped while one is being handled.
	Clicked func(id string)
	// Activated is called when the icon itself is clicked, in the same order; not on
	// macOS, where that opens the menu.
	Activated func()
	// Opened gets the links that macOS opens with this app. Elsewhere a link is an
	// argument of a second process.
	Opened func(url string)
}

// Run shows the tray until ctx ends, which returns nil. If there can be no tray it
// returns ErrNoBus at once, and ErrGone when the bus ends while it runs; without a host
// it waits for one. On macOS it must be called by the main goroutine, and is the event
// loop of the app. One Run at a time; on Windows one in a process's life.
func Run(ctx context.Context, cfg Config) error {
	return run(ctx, cfg)
}

// Available says in words why a tray would not be seen now: ErrNoBus or ErrNoHost,
// wrapped. It changes nothing.
func Available(ctx context.Context) error {
	return available(ctx)
}

// clicks passes on what a person clicked, in order.
type clicks struct {
	cfg   Config
	queue chan func()
}

func newClicks(cfg Config) *clicks {
	return &clicks{cfg: cfg, queue: make(chan func(), 64)}
}

// run ends with ctx.
func (c *clicks) run(ctx context.Context) {
	for {
		select {
		case f := <-c.queue:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func (c *clicks) clicked(ctx context.Context, id string) {
	if c.cfg.Clicked != nil {
		c.put(ctx, func() { c.cfg.Clicked(id) })
	}
}

func (c *clicks) activated(ctx context.Context) {
	if c.cfg.Activated != nil {
		c.put(ctx, c.cfg.Activated)
	}
}

func (c *clicks) opened(ctx context.Context, url string) {
	if c.cfg.Opened != nil {
		c.put(ctx, func() { c.cfg.Opened(url) })
	}
}

func (c *clicks) put(ctx context.Context, f func()) {
	select {
	case c.queue <- f:
	case <-ctx.Done():
	}
}

// alike says that b can be shown by changing the lines of a.
func alike(a, b []Item) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Separator != b[i].Separator || !alike(a[i].Children, b[i].Children) {
			return false
		}
		// Whether a line can have a tick is fixed when it is made.
		if b[i].Checked && !a[i].Checked {
			return false
		}
	}
	return true
}
