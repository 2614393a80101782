package desktop

import (
	"context"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// Open implements control.App: it shows the window and takes a deep link. Any web page can make one, so that it only ever
// makes the app ask.
func (a *App) Open(ctx context.Context, r control.OpenRequest) (control.Opened, error) {
	refused := ""
	if r.Link != "" {
		if err := a.takeLink(r.Link); err != nil {
			refused = err.Error()
			a.log.Warn("a link was refused", "err", err)
			a.change(func() { a.notice("warn", "A link was not followed: "+protocol.Clip(refused, 300)+".", "") })
		}
	}
	a.ShowWindow(ctx)
	return control.Opened{Refused: refused}, nil
}

// ShowWindow opens the window, or brings it to the front. What goes wrong is said in a notice.
func (a *App) ShowWindow(ctx context.Context) {
	a.lookAtLogin(ctx)
	if a.cfg.Window == nil {
		return
	}
	if err := a.cfg.Window(context.WithoutCancel(ctx), a.page.URL); err != nil {
		a.log.Error("the window could not be opened", "err", err)
		a.change(func() {
			a.notice("error", "The window could not be opened: "+protocol.Clip(err.Error(), 300)+".", "everdict-desktop status shows the same in a terminal.")
		})
	}
}

func (a *App) takeLink(s string) error {
	d, err := protocol.ParseDeepLink(s)
	if err != nil {
		return err
	}
	switch d.Kind {
	case protocol.LinkGranted:
		return a.grantedByLink(d)
	case protocol.LinkPair:
		a.ask(d)
	}
	return nil
}

// ask makes a link of the dashboard a question. Nothing is contacted. A newer link takes the place of an older one: the
// person sees the one that they clicked last.
func (a *App) ask(d protocol.DeepLink) {
	q := control.Question{ID: protocol.NewID("ask_"), Coordinator: d.Coordinator, Host: hostOf(d.Coordinator), Account: d.Account,
		ExpiresAt: protocol.At(time.Now().Add(protocol.PairingLifeSec * time.Second))}
	a.change(func() {
		for _, c := range a.connections {
			if sameCoordinator(c.rec.Coordinator, d.Coordinator) {
				q.Known = c.rec.ID
			}
		}
		a.question, a.link = &q, d
	})
	time.AfterFunc(protocol.PairingLifeSec*time.Second, func() {
		a.mu.Lock()
		stale := a.question != nil && a.question.ID == q.ID
		a.mu.Unlock()
		if stale {
			a.change(func() { a.dropQuestion(q.ID) })
		}
	})
}

func (a *App) dropQuestion(id string) {
	if a.question != nil && a.question.ID == id {
		a.question, a.link = nil, protocol.DeepLink{}
	}
}

// Answer implements control.App.
func (a *App) Answer(_ context.Context, r control.Answer) (*control.Pairing, error) {
	a.mu.Lock()
	q, d := a.question, a.link
	a.mu.Unlock()
	switch {
	case q == nil || q.ID != r.Question:
		return nil, protocol.Conflict("this question is over").WithHint("click on the link in the dashboard once more")
	case !r.Connect:
		a.change(func() { a.dropQuestion(q.ID) })
		return nil, nil
	case !twoDigits(r.Number):
		return nil, protocol.BadRequest("the number is missing").WithHint("type the two digits that the dashboard shows: a wrong number makes the link worthless")
	}
	p := &pairing{label: r.Label, account: d.Account, code: d.Code, number: r.Number, view: control.Pairing{Coordinator: d.Coordinator}}
	view, err := a.beginPairing(p, r.Replace, r.Instead)
	if err != nil {
		return nil, err
	}
	a.change(func() { a.dropQuestion(q.ID) })
	return &view, nil
}

func twoDigits(s string) bool {
	return len(s) == 2 && s[0] >= '0' && s[0] <= '9' && s[1] >= '0' && s[1] <= '9'
}
