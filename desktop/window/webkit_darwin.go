package window

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ebitengine/purego/objc"

	"github.com/everdict/everdict/desktop/appkit"
)

// Constants of AppKit.
const (
	activationRegular = 0  // NSApplicationActivationPolicyRegular
	styleMask         = 15 // titled, closable, miniaturizable, resizable
	backingBuffered   = 2  // NSBackingStoreBuffered
)

// webkit shows the page in a window of our own.
func webkit(ctx context.Context, s *session) error {
	if err := appkit.Load("Cocoa", "WebKit"); err != nil {
		return err
	}
	if !appkit.MainThread() {
		return errors.New("a window must be shown by the main goroutine")
	}
	var app, window objc.ID
	class, err := objc.RegisterClass("EverdictWindow", objc.GetClass("NSObject"), nil, nil, []objc.MethodDef{
		{Cmd: appkit.Sel("windowWillClose:"), Fn: func(_ objc.ID, _ objc.SEL, _ objc.ID) { appkit.Stop(app) }},
		{Cmd: appkit.Sel("closeWindow"), Fn: func(objc.ID, objc.SEL) { window.Send(appkit.Sel("close")) }},
		{Cmd: appkit.Sel("raiseWindow"), Fn: func(objc.ID, objc.SEL) { front(app, window) }},
		// A link that wants a window of its own goes to the default browser.
		{Cmd: appkit.Sel("webView:createWebViewWithConfiguration:forNavigationAction:windowFeatures:"), Fn: func(_ objc.ID, _ objc.SEL, _, _, action, _ objc.ID) objc.ID {
			link := appkit.String(action.Send(appkit.Sel("request")).Send(appkit.Sel("URL")).Send(appkit.Sel("absoluteString")))
			go func() {
				if err := OpenURL(link); err != nil {
					slog.Warn("link not opened", "err", err)
				}
			}()
			return 0
		}},
	})
	if err != nil {
		return fmt.Errorf("register with Objective-C: %w", err)
	}
	page, err := s.address(ctx)
	if err != nil {
		return err
	}
	pool := appkit.New("NSAutoreleasePool")
	defer pool.Send(appkit.Sel("drain"))
	app = appkit.Class("NSApplication").Send(appkit.Sel("sharedApplication"))
	app.Send(appkit.Sel("setActivationPolicy:"), activationRegular)
	delegate := objc.ID(class).Send(appkit.Sel("new"))
	app.Send(appkit.Sel("setMainMenu:"), menu(s.Title))

	frame := appkit.Rect{Size: appkit.Point{X: float64(s.Width), Y: float64(s.Height)}}
	window = appkit.Class("NSWindow").Send(appkit.Sel("alloc")).Send(appkit.Sel("initWithContentRect:styleMask:backing:defer:"),
		frame, uint64(styleMask), uint64(backingBuffered), false)
	window.Send(appkit.Sel("setReleasedWhenClosed:"), false)
	window.Send(appkit.Sel("setTitle:"), appkit.Text(s.Title))
	window.Send(appkit.Sel("setDelegate:"), delegate)
	config := appkit.New("WKWebViewConfiguration")
	// Nothing of the page is kept: its address is another one next time.
	config.Send(appkit.Sel("setWebsiteDataStore:"), appkit.Class("WKWebsiteDataStore").Send(appkit.Sel("nonPersistentDataStore")))
	view := appkit.Class("WKWebView").Send(appkit.Sel("alloc")).Send(appkit.Sel("initWithFrame:configuration:"), frame, config)
	view.Send(appkit.Sel("setUIDelegate:"), delegate)
	window.Send(appkit.Sel("setContentView:"), view)
	address := appkit.Class("NSURL").Send(appkit.Sel("URLWithString:"), appkit.Text(page))
	view.Send(appkit.Sel("loadRequest:"), appkit.Class("NSURLRequest").Send(appkit.Sel("requestWithURL:"), address))
	window.Send(appkit.Sel("center"))
	front(app, window)

	stop := context.AfterFunc(ctx, func() { appkit.OnMain(delegate, "closeWindow") })
	defer stop()
	s.opened(WebView, func() { appkit.OnMain(delegate, "raiseWindow") })
	app.Send(appkit.Sel("run")) // until the window is closed
	return nil
}

func front(app, window objc.ID) {
	window.Send(appkit.Sel("makeKeyAndOrderFront:"), objc.ID(0))
	app.Send(appkit.Sel("activateIgnoringOtherApps:"), true)
}

// menu is what the keys for copy, paste, close and quit go through.
func menu(title string) objc.ID {
	bar := appkit.New("NSMenu")
	add := func(title string, lines [][3]string) {
		sub := appkit.New("NSMenu").Send(appkit.Sel("initWithTitle:"), appkit.Text(title))
		for _, l := range lines {
			sub.Send(appkit.Sel("addItemWithTitle:action:keyEquivalent:"), appkit.Text(l[0]), appkit.Sel(l[1]), appkit.Text(l[2]))
		}
		item := appkit.New("NSMenuItem")
		item.Send(appkit.Sel("setSubmenu:"), sub)
		bar.Send(appkit.Sel("addItem:"), item)
	}
	add(title, [][3]string{{"Close Window", "performClose:", "w"}, {"Quit " + title, "terminate:", "q"}})
	add("Edit", [][3]string{{"Cut", "cut:", "x"}, {"Copy", "copy:", "c"}, {"Paste", "paste:", "v"}, {"Select All", "selectAll:", "a"}})
	return bar
}
