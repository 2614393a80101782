package tray

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unicode/utf16"

	"fyne.io/systray"
)

// once: the library can quit a single time.
var once sync.Once

// picture has the sizes of the notification area at scales from 100 to 300 per cent.
func picture(i Icon) []byte { return i.ICO(16, 20, 24, 32, 48) }

func setIcon(ico []byte) { systray.SetIcon(ico) }

// hostWait is how long the taskbar has to take the icon. At a login the app can be there
// before it.
const hostWait = 10 * time.Second

// tooltipUnits is how much of a tooltip fits into NOTIFYICONDATA beside its final zero.
const tooltipUnits = 127

func fit(tooltip string) string {
	units := utf16.Encode([]rune(tooltip))
	if len(units) <= tooltipUnits {
		return tooltip
	}
	return string(utf16.Decode(units[:tooltipUnits-1])) + "…"
}

func available(context.Context) error { return nil }

func run(ctx context.Context, cfg Config) error {
	if !running.TryLock() {
		return ErrRunning
	}
	defer running.Unlock()
	used := true
	once.Do(func() { used = false })
	if used {
		return errors.New("on Windows the tray can be shown once in a process's life")
	}
	s, begin, end := prepare(ctx, cfg)
	if s == nil {
		return nil
	}
	defer end()
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		// The window behind the icon gets its messages on the thread that made it.
		runtime.LockOSThread()
		systray.Run(func() { close(ready) }, nil)
	}()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil
	case <-time.After(hostWait):
		return fmt.Errorf("%w: Windows did not take the icon within %v", ErrNoHost, hostWait)
	}
	s.show(begin)
	err := s.follow(cfg.States, ended)
	systray.Quit()
	<-ended
	return err
}
