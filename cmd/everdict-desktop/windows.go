package main

import (
	"context"
	"os"
	"sync"

	"github.com/everdict/everdict/desktop/window"
)

// windows is the one window of the app.
type windows struct {
	executable, profiles string

	mu     sync.Mutex
	open   *window.Process // the last one; nil: none was opened
	closed bool
}

// show opens the window, or brings the one that is open to the front. A browser's window cannot be brought there: it is
// closed and opened anew.
func (w *windows) show(_ context.Context, url func() (string, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if p := w.open; p != nil && p.Tracked() {
		select {
		case <-p.Done():
		default:
			if p.Raise() == nil {
				return nil
			}
			_ = p.Close() // the new one takes its place
		}
	}
	p, err := window.Open(context.Background(), window.Config{
		Executable: w.executable, URL: url, Options: window.Options{ProfileDir: w.profiles}, Environ: os.Environ(),
	})
	if err != nil {
		return err
	}
	w.open = p
	return nil
}

// close closes the window for good.
func (w *windows) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.open != nil && w.open.Tracked() {
		_ = w.open.Close()
	}
}
