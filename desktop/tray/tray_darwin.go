package tray

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego/objc"

	"github.com/everdict/everdict/desktop/appkit"
)

// Constants of AppKit.
const (
	activationAccessory = 1  // NSApplicationActivationPolicyAccessory: no icon in the Dock
	variableLength      = -1 // NSVariableStatusItemLength
)

// points is how wide and high the icon is in the menu bar; its picture has twice as many
// pixels.
const points = 18

var (
	running sync.Mutex
	class   objc.Class // EverdictTray, registered once
	// current is the bar that the methods of the class belong to. Only the main thread
	// uses it.
	current *bar
)

func available(context.Context) error { return nil }

// bar is the item in the menu bar.
type bar struct {
	ctx      context.Context
	clicks   *clicks
	app      objc.ID
	delegate objc.ID
	item     objc.ID
	ids      []string // of the menu's lines, by their tags

	mu   sync.Mutex
	next *State // waits for the main thread
}

func run(ctx context.Context, cfg Config) error {
	if !running.TryLock() {
		return ErrRunning
	}
	defer running.Unlock()
	if err := appkit.Load("Cocoa"); err != nil {
		return err
	}
	if err := register(); err != nil {
		return err
	}
	if !appkit.MainThread() {
		return errors.New("the tray must be run by the main goroutine")
	}
	ctx, cancel := context.WithCancel(ctx)
	var passing sync.WaitGroup
	defer passing.Wait()
	defer cancel()
	b := &bar{ctx: ctx, clicks: newClicks(cfg)}
	current = b
	passing.Go(func() { b.clicks.run(ctx) })

	pool := appkit.New("NSAutoreleasePool")
	defer pool.Send(appkit.Sel("drain"))
	b.app = appkit.Class("NSApplication").Send(appkit.Sel("sharedApplication"))
	b.app.Send(appkit.Sel("setActivationPolicy:"), activationAccessory)
	b.delegate = objc.ID(class).Send(appkit.Sel("new"))
	b.app.Send(appkit.Sel("setDelegate:"), b.delegate)
	system := appkit.Class("NSStatusBar").Send(appkit.Sel("systemStatusBar"))
	b.item = system.Send(appkit.Sel("statusItemWithLength:"), float64(variableLength)).Send(appkit.Sel("retain"))
	passing.Go(func() { b.follow(cfg.States) })
	b.app.Send(appkit.Sel("run")) // until stop
	system.Send(appkit.Sel("removeStatusItem:"), b.item)
	b.item.Send(appkit.Sel("release"))
	return nil
}

// register makes the class whose methods AppKit calls.
func register() (err error) {
	if class != 0 {
		return nil
	}
	class, err = objc.RegisterClass("EverdictTray", objc.GetClass("NSObject"), nil, nil, []objc.MethodDef{
		{Cmd: appkit.Sel("application:openURLs:"), Fn: func(_ objc.ID, _ objc.SEL, _, urls objc.ID) {
			for i := range objc.Send[uint64](urls, appkit.Sel("count")) {
				url := urls.Send(appkit.Sel("objectAtIndex:"), i).Send(appkit.Sel("absoluteString"))
				current.clicks.opened(current.ctx, appkit.String(url))
			}
		}},
		{Cmd: appkit.Sel("clicked:"), Fn: func(_ objc.ID, _ objc.SEL, sender objc.ID) {
			if tag := objc.Send[int](sender, appkit.Sel("tag")); tag >= 0 && tag < len(current.ids) {
				current.clicks.clicked(current.ctx, current.ids[tag])
			}
		}},
		{Cmd: appkit.Sel("showNext"), Fn: func(objc.ID, objc.SEL) { current.show() }},
		{Cmd: appkit.Sel("stop"), Fn: func(objc.ID, objc.SEL) { appkit.Stop(current.app) }},
	})
	if err != nil {
		return fmt.Errorf("register with Objective-C: %w", err)
	}
	return nil
}

// follow hands each state to the main thread, and in the end stops its loop.
func (b *bar) follow(states <-chan State) {
	defer appkit.OnMain(b.delegate, "stop")
	for {
		select {
		case s, ok := <-states:
			if !ok {
				states = nil
				continue
			}
			b.mu.Lock()
			b.next = &s
			b.mu.Unlock()
			appkit.OnMain(b.delegate, "showNext")
		case <-b.ctx.Done():
			return
		}
	}
}

// show shows the state that waits.
func (b *bar) show() {
	b.mu.Lock()
	s := b.next
	b.next = nil
	b.mu.Unlock()
	if s == nil {
		return
	}
	button := b.item.Send(appkit.Sel("button"))
	png := s.Icon.PNG(2 * points)
	data := appkit.Class("NSData").Send(appkit.Sel("dataWithBytes:length:"), unsafe.Pointer(&png[0]), uint64(len(png)))
	image := appkit.Class("NSImage").Send(appkit.Sel("alloc")).Send(appkit.Sel("initWithData:"), data)
	image.Send(appkit.Sel("setSize:"), appkit.Point{X: points, Y: points})
	image.Send(appkit.Sel("setTemplate:"), true) // its shape alone, in the colour of the menu bar
	button.Send(appkit.Sel("setImage:"), image)
	image.Send(appkit.Sel("release"))
	button.Send(appkit.Sel("setToolTip:"), appkit.Text(s.Tooltip))
	button.Send(appkit.Sel("setAccessibilityLabel:"), appkit.Text(s.Title))
	b.ids = b.ids[:0]
	menu := b.menu(s.Items)
	b.item.Send(appkit.Sel("setMenu:"), menu)
	menu.Send(appkit.Sel("release"))
}

func (b *bar) menu(items []Item) objc.ID {
	menu := appkit.New("NSMenu")
	menu.Send(appkit.Sel("setAutoenablesItems:"), false)
	for _, it := range items {
		if it.Separator {
			menu.Send(appkit.Sel("addItem:"), appkit.Class("NSMenuItem").Send(appkit.Sel("separatorItem")))
			continue
		}
		line := menu.Send(appkit.Sel("addItemWithTitle:action:keyEquivalent:"), appkit.Text(it.Title), appkit.Sel("clicked:"), appkit.Text(""))
		line.Send(appkit.Sel("setTarget:"), b.delegate)
		line.Send(appkit.Sel("setTag:"), len(b.ids))
		b.ids = append(b.ids, it.ID)
		line.Send(appkit.Sel("setEnabled:"), !it.Disabled)
		if it.Checked {
			line.Send(appkit.Sel("setState:"), 1)
		}
		if len(it.Children) > 0 {
			sub := b.menu(it.Children)
			line.Send(appkit.Sel("setSubmenu:"), sub)
			sub.Send(appkit.Sel("release"))
		}
	}
	return menu
}
