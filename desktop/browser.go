package desktop

import (
	"context"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

// page is where it is approved, while it waits.
func (p *pairing) page() string {
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	return p.view.URL
}

func (p *pairing) openBrowser(address string) {
	if p.app.cfg.Browser == nil {
		p.app.change(func() { p.view.Next = "Open the address in a browser in which you are signed in." })
		return
	}
	if err := p.app.cfg.Browser(address); err != nil {
		p.app.log.Warn("the browser could not be opened", "err", err)
		p.app.change(func() {
			p.view.Next = "The browser could not be opened: open the address yourself, in one in which you are signed in."
		})
	}
}

// PairBrowser implements control.App.
func (a *App) PairBrowser(context.Context) (control.Pairing, error) {
	a.mu.Lock()
	p := a.pairing
	if p == nil || p.view.Status != control.PairingWaiting {
		a.mu.Unlock()
		return control.Pairing{}, protocol.Conflict("no pairing waits for the browser")
	}
	address := p.start
	a.mu.Unlock()
	p.openBrowser(address)
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.view, nil
}
