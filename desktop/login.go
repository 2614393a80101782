package desktop

import (
	"context"

	"github.com/everdict/everdict/protocol"
)

// Start at login is a fact of the system: others turn it on and off as well, such as the desktop's own settings or
// everdict-desktop uninstall. While there are connections the setting is that fact, looked up; before the first it is what
// will be done then.

// startsAtLogin looks the fact up; known is false where nothing says it.
func (a *App) startsAtLogin(ctx context.Context) (on, known bool) {
	if a.cfg.StartsAtLogin == nil {
		return false, false
	}
	on, err := a.cfg.StartsAtLogin(ctx)
	if err != nil {
		a.log.Warn("whether the app is started at login is not known", "err", err)
	}
	return on, err == nil
}

// lookAtLogin brings the setting up to date.
func (a *App) lookAtLogin(ctx context.Context) {
	on, known := a.startsAtLogin(ctx)
	a.mu.Lock()
	same := !known || len(a.connections) == 0 || a.settings.StartAtLogin == on
	a.mu.Unlock()
	if !same {
		a.change(func() { a.settings.StartAtLogin = on })
	}
}

// autostart makes the app start at login, or not, and says what kept it from that.
func (a *App) autostart(ctx context.Context, on bool) {
	if a.cfg.Autostart == nil {
		return
	}
	kept, err := a.cfg.Autostart(ctx, on)
	is, known := a.startsAtLogin(ctx)
	state := map[bool]string{true: "The app is started at login", false: "The app is not started at login"}
	text, next := "", ""
	switch {
	case err != nil:
		a.log.Error("start at login could not be changed", "on", on, "err", err)
		text = "Start at login could not be changed: " + protocol.Clip(err.Error(), 300) + "."
	case kept != "":
		a.log.Warn("start at login was left as it is", "on", on, "kept", kept)
		text = "Start at login was left as it is, since something else has its place: " + protocol.Clip(kept, 300) + "."
		if known {
			text += " " + state[is] + "."
		}
		next = "Remove that if you do not want it, and set it again."
	case known && is != on:
		a.log.Warn("start at login was changed without effect", "on", on)
		text, next = state[is]+" all the same: it was not the app that arranged that.", "See the settings of your desktop."
	}
	if text != "" {
		a.change(func() { a.notice(map[bool]string{true: "error", false: "warn"}[err != nil], text, next) })
	}
	a.lookAtLogin(ctx)
}
