package desktop

import (
	"context"
	"fmt"
	"time"

	"github.com/everdict/everdict/desktop/control"
)

// words are a notification.
type words struct{ title, body string }

// notification is what a change is worth telling; nil: nothing. The caller has the mutex.
func (a *App) notification() *words {
	all := make([]control.Connection, 0, len(a.connections))
	for _, c := range a.connections {
		all = append(all, c.view())
	}
	status, text := overall(all)
	was := a.status
	a.status = status
	if !a.settings.Notifications || status == was || status != control.StatusAttention {
		return nil
	}
	return &words{"Everdict needs you", text}
}

// tell shows a notification, nil: none, and waits for nobody.
func (a *App) tell(w *words) {
	if w == nil || a.cfg.Notify == nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := a.cfg.Notify(ctx, w.title, w.body); err != nil {
			a.log.Debug("notification was not shown", "err", err)
		}
	}()
}

// tellEnd tells that a job has ended, unless a window shows it.
func (a *App) tellEnd(e control.Entry) {
	a.mu.Lock()
	on := a.settings.Notifications
	a.mu.Unlock()
	if !on || a.cfg.Notify == nil || a.page.Windows() > 0 {
		return
	}
	title := map[control.Outcome]string{
		control.OutcomePassed: "passed", control.OutcomeFailed: "failed", control.OutcomeUnjudged: "ended", control.OutcomeError: "ended with an error",
		control.OutcomeCancelled: "was cancelled", control.OutcomeReturned: "was given back", control.OutcomeLost: "was lost",
	}[e.Outcome]
	body := e.Harness
	if e.CostUSD != nil {
		body += fmt.Sprintf(", $%.2f", *e.CostUSD)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := a.cfg.Notify(ctx, fmt.Sprintf("%s %s", e.Case, title), body); err != nil {
		a.log.Debug("notification was not shown", "err", err)
	}
}
