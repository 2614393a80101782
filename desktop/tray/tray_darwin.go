package tray

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/ebitengine/purego/objc"
)

// AppKit takes calls on the main thread alone, and main runs there if it is locked to it
// before it starts.
func init() { runtime.LockOSThread() }

const cocoa = "/System/Library/Frameworks/Cocoa.framework/Cocoa"

// Constants of AppKit.
const (
	activationAccessory    = 1  // NSApplicationActivationPolicyAccessory: no icon in the Dock
	variableLength         = -1 // NSVariableStatusItemLength
	eventApplicationDefine = 15 // NSEventTypeApplicationDefined
)

// points is how wide and high the icon is in the menu bar; its picture has twice as many
// pixels.
const points = 18

type point struct{ X, Y float64 }

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
	if _, err := purego.Dlopen(cocoa, purego.RTLD_GLOBAL|purego.RTLD_NOW); err != nil {
		return fmt.Errorf("load Cocoa: %w", err)
	}
	if err := register(); err != nil {
		return err
	}
	if !objc.Send[bool](named("NSThread"), sel("isMainThread")) {
		return errors.New("the tray must be run by the main goroutine")
	}
	ctx, cancel := context.WithCancel(ctx)
	var passing sync.WaitGroup
	defer passing.Wait()
	defer cancel()
	b := &bar{ctx: ctx, clicks: newClicks(cfg)}
	current = b
	passing.Go(func() { b.clicks.run(ctx) })

	pool := named("NSAutoreleasePool").Send(sel("new"))
	defer pool.Send(sel("drain"))
	b.app = named("NSApplication").Send(sel("sharedApplication"))
	b.app.Send(sel("setActivationPolicy:"), activationAccessory)
	b.delegate = objc.ID(class).Send(sel("new"))
	b.app.Send(sel("setDelegate:"), b.delegate)
	system := named("NSStatusBar").Send(sel("systemStatusBar"))
	b.item = system.Send(sel("statusItemWithLength:"), float64(variableLength)).Send(sel("retain"))
	passing.Go(func() { b.follow(cfg.States) })
	b.app.Send(sel("run")) // until stop
	system.Send(sel("removeStatusItem:"), b.item)
	b.item.Send(sel("release"))
	return nil
}

// register makes the class whose methods AppKit calls.
func register() (err error) {
	if class != 0 {
		return nil
	}
	class, err = objc.RegisterClass("EverdictTray", objc.GetClass("NSObject"), nil, nil, []objc.MethodDef{
		{Cmd: sel("application:openURLs:"), Fn: func(_ objc.ID, _ objc.SEL, _, urls objc.ID) {
			for i := range objc.Send[uint64](urls, sel("count")) {
				url := urls.Send(sel("objectAtIndex:"), i).Send(sel("absoluteString"))
				current.clicks.opened(current.ctx, objc.Send[string](url, sel("UTF8String")))
			}
		}},
		{Cmd: sel("clicked:"), Fn: func(_ objc.ID, _ objc.SEL, sender objc.ID) {
			if tag := objc.Send[int](sender, sel("tag")); tag >= 0 && tag < len(current.ids) {
				current.clicks.clicked(current.ctx, current.ids[tag])
			}
		}},
		{Cmd: sel("showNext"), Fn: func(objc.ID, objc.SEL) { current.show() }},
		{Cmd: sel("stop"), Fn: func(objc.ID, objc.SEL) { current.stop() }},
	})
	if err != nil {
		return fmt.Errorf("register with Objective-C: %w", err)
	}
	return nil
}

// follow hands each state to the main thread, and in the end stops its loop.
func (b *bar) follow(states <-chan State) {
	defer b.onMain("stop")
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
			b.onMain("showNext")
		case <-b.ctx.Done():
			return
		}
	}
}

func (b *bar) onMain(method string) {
	b.delegate.Send(sel("performSelectorOnMainThread:withObject:waitUntilDone:"), sel(method), objc.ID(0), false)
}

// stop ends the loop, which looks only after an event.
func (b *bar) stop() {
	b.app.Send(sel("stop:"), objc.ID(0))
	event := named("NSEvent").Send(sel("otherEventWithType:location:modifierFlags:timestamp:windowNumber:context:subtype:data1:data2:"),
		uint64(eventApplicationDefine), point{}, uint64(0), float64(0), 0, objc.ID(0), int16(0), 0, 0)
	b.app.Send(sel("postEvent:atStart:"), event, true)
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
	button := b.item.Send(sel("button"))
	png := s.Icon.PNG(2 * points)
	data := named("NSData").Send(sel("dataWithBytes:length:"), unsafe.Pointer(&png[0]), uint64(len(png)))
	image := named("NSImage").Send(sel("alloc")).Send(sel("initWithData:"), data)
	image.Send(sel("setSize:"), point{points, points})
	image.Send(sel("setTemplate:"), true) // its shape alone, in the colour of the menu bar
	button.Send(sel("setImage:"), image)
	image.Send(sel("release"))
	button.Send(sel("setToolTip:"), text(s.Tooltip))
	button.Send(sel("setAccessibilityLabel:"), text(s.Title))
	b.ids = b.ids[:0]
	menu := b.menu(s.Items)
	b.item.Send(sel("setMenu:"), menu)
	menu.Send(sel("release"))
}

func (b *bar) menu(items []Item) objc.ID {
	menu := named("NSMenu").Send(sel("new"))
	menu.Send(sel("setAutoenablesItems:"), false)
	for _, it := range items {
		if it.Separator {
			menu.Send(sel("addItem:"), named("NSMenuItem").Send(sel("separatorItem")))
			continue
		}
		line := menu.Send(sel("addItemWithTitle:action:keyEquivalent:"), text(it.Title), sel("clicked:"), text(""))
		line.Send(sel("setTarget:"), b.delegate)
		line.Send(sel("setTag:"), len(b.ids))
		b.ids = append(b.ids, it.ID)
		line.Send(sel("setEnabled:"), !it.Disabled)
		if it.Checked {
			line.Send(sel("setState:"), 1)
		}
		if len(it.Children) > 0 {
			sub := b.menu(it.Children)
			line.Send(sel("setSubmenu:"), sub)
			sub.Send(sel("release"))
		}
	}
	return menu
}

var sel = objc.RegisterName

func named(class string) objc.ID { return objc.ID(objc.GetClass(class)) }

func text(s string) objc.ID { return named("NSString").Send(sel("stringWithUTF8String:"), s) }
