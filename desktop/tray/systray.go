//go:build linux || windows

package tray

import (
	"context"
	"sync"

	"fyne.io/systray"
)

// running is held while Run runs: the library keeps its tray in variables.
var running sync.Mutex

// shown is what the library shows: the last state and the lines of its menu. The
// goroutine of Run owns it.
type shown struct {
	ctx    context.Context
	clicks *clicks
	state  State
	any    bool
	lines  []*line

	passing sync.WaitGroup // what runs beside Run
}

// line is one item of the menu that is shown.
type line struct {
	item     *systray.MenuItem // nil for a separator
	children []*line
}

// show changes what differs.
func (s *shown) show(next State) {
	if !s.any || next.Icon != s.state.Icon {
		setIcon(picture(next.Icon))
	}
	if !s.any || next.Title != s.state.Title {
		systray.SetTitle(next.Title)
	}
	if !s.any || next.Tooltip != s.state.Tooltip {
		systray.SetTooltip(fit(next.Tooltip))
	}
	if s.any && alike(s.state.Items, next.Items) {
		s.change(s.lines, s.state.Items, next.Items)
	} else {
		systray.ResetMenu()
		s.lines = s.build(nil, next.Items)
	}
	s.state, s.any = next, true
}

func (s *shown) change(lines []*line, old, next []Item) {
	for i, l := range lines {
		was, is := old[i], next[i]
		if l.item == nil {
			continue
		}
		if was.Title != is.Title {
			l.item.SetTitle(is.Title)
		}
		if was.Disabled != is.Disabled {
			able(l.item, is)
		}
		if was.Checked && !is.Checked {
			l.item.Uncheck()
		}
		s.change(l.children, was.Children, is.Children)
	}
}

func (s *shown) build(parent *systray.MenuItem, items []Item) []*line {
	lines := make([]*line, 0, len(items))
	for _, it := range items {
		if it.Separator {
			if parent == nil {
				systray.AddSeparator()
			} else {
				parent.AddSeparator()
			}
			lines = append(lines, &line{})
			continue
		}
		l := &line{item: add(parent, it)}
		// The library drops a click that nobody is waiting for at that instant, so the
		// channel gets room. It is in place before able tells the library of the item anew.
		pressed := make(chan struct{}, 64)
		l.item.ClickedCh = pressed
		able(l.item, it)
		id := it.ID
		go func() { // ends when the item is removed, which closes the channel, or with ctx
			for {
				select {
				case _, ok := <-pressed:
					if !ok {
						return
					}
					s.clicks.clicked(s.ctx, id)
				case <-s.ctx.Done():
					return
				}
			}
		}()
		l.children = s.build(l.item, it.Children)
		lines = append(lines, l)
	}
	return lines
}

// add makes an item. Only one that has a tick is made checkable: panels draw an empty box
// beside it.
func add(parent *systray.MenuItem, it Item) *systray.MenuItem {
	switch {
	case parent == nil && it.Checked:
		return systray.AddMenuItemCheckbox(it.Title, "", true)
	case parent == nil:
		return systray.AddMenuItem(it.Title, "")
	case it.Checked:
		return parent.AddSubMenuItemCheckbox(it.Title, "", true)
	default:
		return parent.AddSubMenuItem(it.Title, "")
	}
}

func able(m *systray.MenuItem, it Item) {
	if it.Disabled {
		m.Disable()
	} else {
		m.Enable()
	}
}

// follow shows each state until ctx ends or gone is closed.
func (s *shown) follow(states <-chan State, gone <-chan struct{}) error {
	for {
		select {
		case next, ok := <-states:
			if !ok {
				states = nil // nothing new will come; what there is stays
				continue
			}
			s.show(next)
		case <-gone:
			if s.ctx.Err() != nil {
				return nil
			}
			return ErrGone
		case <-s.ctx.Done():
			return nil
		}
	}
}

// prepare waits for the first state and begins to pass on what is clicked, until end. It
// returns nil if ctx ended before.
func prepare(ctx context.Context, cfg Config) (s *shown, begin State, end func()) {
	select {
	case first, ok := <-cfg.States:
		if !ok { // there never will be anything to show
			<-ctx.Done()
			return nil, begin, nil
		}
		begin = first
	case <-ctx.Done():
		return nil, begin, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s = &shown{ctx: ctx, clicks: newClicks(cfg)}
	s.passing.Go(func() { s.clicks.run(ctx) })
	var activated func()
	if cfg.Activated != nil {
		activated = func() { s.clicks.activated(ctx) }
	}
	systray.SetOnTapped(activated)
	return s, begin, func() {
		cancel()
		s.passing.Wait()
	}
}
