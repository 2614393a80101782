package desktop

import (
	"context"
	"strings"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/tray"
	"github.com/everdict/everdict/protocol"
)

// Ids of the tray's items. An item of one connection has its id after a slash.
const (
	itemOpen   = "open"
	itemPause  = "pause"
	itemResume = "resume"
	itemStop   = "stop"
	itemVisit  = "visit"
	itemRetry  = "retry"
	itemQuit   = "quit"
)

var icons = map[control.Status]tray.Icon{
	control.StatusNone: tray.Offline, control.StatusConnecting: tray.Offline, control.StatusConnected: tray.Connected, control.StatusIdle: tray.Idle,
	control.StatusRunning: tray.Running, control.StatusPaused: tray.Paused, control.StatusAttention: tray.Attention,
}

// Tray is what the tray shows of a state.
func Tray(s control.State) tray.State {
	out := tray.State{Icon: icons[s.Status], Title: "Everdict", Tooltip: "Everdict: " + s.Text}
	running, paused := 0, len(s.Connections) > 0
	for _, c := range s.Connections {
		running += len(c.Jobs)
		paused = paused && c.CanResume
	}
	line := tray.Item{Separator: true}
	out.Items = append(out.Items, tray.Item{ID: "status", Title: protocol.Clip(s.Text, 80), Disabled: true}, line, tray.Item{ID: itemOpen, Title: "Open Everdict"})
	if len(s.Connections) > 0 {
		if paused {
			out.Items = append(out.Items, tray.Item{ID: itemResume, Title: "Resume"})
		} else {
			title := "Pause"
			if running > 0 {
				title = "Pause after this job"
			}
			out.Items = append(out.Items, tray.Item{ID: itemPause, Title: title})
		}
		out.Items = append(out.Items, tray.Item{ID: itemStop, Title: "Stop now", Disabled: running == 0}, line)
	}
	for _, c := range s.Connections {
		item := tray.Item{ID: itemVisit + "/" + c.ID, Title: c.Host + " (" + string(c.Status) + ")"}
		if len(s.Connections) > 1 {
			toggle := tray.Item{ID: itemPause + "/" + c.ID, Title: "Pause"}
			if c.CanResume {
				toggle = tray.Item{ID: itemResume + "/" + c.ID, Title: "Resume"}
			}
			item.ID = ""
			item.Children = []tray.Item{{ID: itemVisit + "/" + c.ID, Title: "Open its dashboard"}, toggle}
		}
		if c.CanRetry {
			item.Children = append(item.Children, tray.Item{ID: itemRetry + "/" + c.ID, Title: "Try again now"})
		}
		if len(item.Children) > 0 && item.ID != "" {
			item.Children = append([]tray.Item{{ID: item.ID, Title: "Open its dashboard"}}, item.Children...)
			item.ID = ""
		}
		out.Items = append(out.Items, item)
	}
	if len(s.Connections) > 0 {
		out.Items = append(out.Items, line)
	}
	quit := "Quit"
	if running > 0 {
		quit = "Quit…" // the window asks
	}
	out.Items = append(out.Items, tray.Item{ID: itemQuit, Title: quit})
	for i := range out.Items { // each has an id of its own
		if out.Items[i].ID == "" {
			out.Items[i].ID = "item/" + out.Items[i].Title
		}
	}
	return out
}

// Clicked does what an item of the tray says.
func (a *App) Clicked(ctx context.Context, item string) {
	what, id, _ := strings.Cut(item, "/")
	var err error
	switch what {
	case itemOpen:
		a.ShowWindow(ctx)
	case itemPause:
		err = a.Pause(ctx, control.PauseRequest{Connection: id})
	case itemStop:
		err = a.Pause(ctx, control.PauseRequest{Connection: id, Stop: true})
	case itemResume:
		err = a.Resume(ctx, control.ResumeRequest{Connection: id})
	case itemVisit:
		err = a.Visit(ctx, control.VisitRequest{Connection: id})
	case itemRetry:
		_, err = a.Retry(ctx, id)
	case itemQuit:
		if err = a.Quit(ctx, control.QuitRequest{}); err != nil {
			a.change(func() {
				a.notice("warn", "A job runs. Quitting now gives it back to the queue.", "Quit in the window, or stop it first.")
			})
			a.ShowWindow(ctx)
			return
		}
	}
	if err != nil {
		a.log.Warn("the tray could not do it", "item", item, "err", err)
		a.change(func() { a.notice("error", protocol.Clip(err.Error(), 300), "") })
	}
}
