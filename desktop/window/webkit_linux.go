package window

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ebitengine/purego"
)

// All that is called of GTK and WebKitGTK. The libraries are opened when a window is: to
// build needs neither them nor a C compiler, and where they are missing that is an error.
// Nothing checks these signatures against the C headers: a wrong one is a crash. That is
// why they are few and stand here together, and why a test opens a window.
var gtk struct {
	initCheck        func(argc, argv uintptr) int32
	setPrgname       func(name string)
	windowNew        func(kind int32) uintptr
	windowSetTitle   func(window uintptr, title string)
	windowSetDefault func(window uintptr, width, height int32)
	windowPresent    func(window uintptr)
	containerAdd     func(container, widget uintptr)
	widgetShowAll    func(widget uintptr)
	signalConnect    func(object uintptr, signal string, callback, data, destroy uintptr, flags int32) uint64
	idleAdd          func(callback, data uintptr) uint32
	main             func()
	mainQuit         func()

	contextNewEphemeral func() uintptr
	viewNew             func(context uintptr) uintptr
	viewLoadURI         func(view uintptr, uri string)
	decisionAction      func(decision uintptr) uintptr
	actionRequest       func(action uintptr) uintptr
	requestURI          func(request uintptr) string
	decisionIgnore      func(decision uintptr)
}

// Kinds of WebKitPolicyDecisionType.
const (
	decideNavigation = 0
	decideNewWindow  = 1
)

// loadGTK opens the libraries, once.
var loadGTK = sync.OnceValue(func() error {
	ui, err := library("libgtk-3.so.0")
	if err != nil {
		return err
	}
	// 4.1 and 4.0 are the same interface, over two versions of an HTTP library.
	web, err := library("libwebkit2gtk-4.1.so.0", "libwebkit2gtk-4.0.so.37")
	if err != nil {
		return err
	}
	return errors.Join(
		bind(ui, map[string]any{
			"gtk_init_check":              &gtk.initCheck,
			"g_set_prgname":               &gtk.setPrgname,
			"gtk_window_new":              &gtk.windowNew,
			"gtk_window_set_title":        &gtk.windowSetTitle,
			"gtk_window_set_default_size": &gtk.windowSetDefault,
			"gtk_window_present":          &gtk.windowPresent,
			"gtk_container_add":           &gtk.containerAdd,
			"gtk_widget_show_all":         &gtk.widgetShowAll,
			"g_signal_connect_data":       &gtk.signalConnect,
			"g_idle_add":                  &gtk.idleAdd,
			"gtk_main":                    &gtk.main,
			"gtk_main_quit":               &gtk.mainQuit,
		}),
		bind(web, map[string]any{
			"webkit_web_context_new_ephemeral":                        &gtk.contextNewEphemeral,
			"webkit_web_view_new_with_context":                        &gtk.viewNew,
			"webkit_web_view_load_uri":                                &gtk.viewLoadURI,
			"webkit_navigation_policy_decision_get_navigation_action": &gtk.decisionAction,
			"webkit_navigation_action_get_request":                    &gtk.actionRequest,
			"webkit_uri_request_get_uri":                              &gtk.requestURI,
			"webkit_policy_decision_ignore":                           &gtk.decisionIgnore,
		}),
	)
})

// library opens the first of the libraries that is there.
func library(names ...string) (uintptr, error) {
	var errs []error
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return h, nil
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

// bind looks functions up by itself: purego's own way panics where one is missing.
func bind(lib uintptr, functions map[string]any) error {
	for name, f := range functions {
		symbol, err := purego.Dlsym(lib, name)
		if err != nil {
			return fmt.Errorf("this version of the library has no %s: %w", name, err)
		}
		purego.RegisterFunc(f, symbol)
	}
	return nil
}

// webkit shows the page in a window of our own.
func webkit(ctx context.Context, s *session) error {
	if err := loadGTK(); err != nil {
		return err
	}
	gtk.setPrgname("everdict") // StartupWMClass of the .desktop file
	if gtk.initCheck(0, 0) == 0 {
		return fmt.Errorf("%w that GTK can open", ErrNoDisplay)
	}
	page, err := s.address(ctx)
	if err != nil {
		return err
	}
	window := gtk.windowNew(0) // GTK_WINDOW_TOPLEVEL
	gtk.windowSetTitle(window, s.Title)
	gtk.windowSetDefault(window, int32(s.Width), int32(s.Height))
	// Nothing of the page is kept: its address is another one next time.
	view := gtk.viewNew(gtk.contextNewEphemeral())
	gtk.containerAdd(window, view)

	var crashed error
	quit := purego.NewCallback(func(_, _, _ uintptr) uintptr { gtk.mainQuit(); return 1 })
	gtk.signalConnect(window, "delete-event", quit, 0, 0, 0)
	gtk.signalConnect(view, "web-process-terminated", purego.NewCallback(func(_ uintptr, reason int32, _ uintptr) uintptr {
		crashed = fmt.Errorf("WebKit's process of the page has ended (reason %d)", reason)
		gtk.mainQuit()
		return 0
	}), 0, 0, 0)
	gtk.signalConnect(view, "decide-policy", purego.NewCallback(func(_, decision uintptr, kind int32, _ uintptr) uintptr {
		if kind != decideNavigation && kind != decideNewWindow {
			return 0 // as it likes
		}
		link := gtk.requestURI(gtk.actionRequest(gtk.decisionAction(decision)))
		if kind == decideNavigation && !outward(page, link) {
			return 0
		}
		gtk.decisionIgnore(decision)
		go func() {
			if err := OpenURL(link); err != nil {
				slog.Warn("link not opened", "err", err)
			}
		}()
		return 1
	}), 0, 0, 0)

	// Callbacks are never freed, so what other goroutines want is done by one.
	wishes := make(chan func(), 16)
	idle := purego.NewCallback(func(uintptr) uintptr {
		select {
		case f := <-wishes:
			f()
		default:
		}
		return 0 // once
	})
	onMain := func(f func()) {
		select {
		case wishes <- f:
			gtk.idleAdd(idle, 0)
		default: // it has enough to do
		}
	}
	stop := context.AfterFunc(ctx, func() { onMain(gtk.mainQuit) })
	defer stop()

	gtk.viewLoadURI(view, page)
	gtk.widgetShowAll(window)
	s.opened(WebView, func() { onMain(func() { gtk.windowPresent(window) }) })
	gtk.main()
	return crashed
}
