package desktop

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/desktop/vault"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

const (
	// askBound is for one request to the coordinator.
	askBound = 20 * time.Second
	// redeemBound is how long a redemption is tried again for want of an answer.
	redeemBound = 2 * time.Minute
)

// pairing is this computer becoming a runner: by an approval in the browser, or by a link of the dashboard with a code.
// Its goroutine (run) goes through the steps; App.mu guards view and request.
type pairing struct {
	app    *App
	id     string // of the connection that it will be
	label  string
	view   control.Pairing
	cancel context.CancelFunc

	// Of a link; the zero values: the address was typed in.
	account      protocol.Account
	code, number string
	// replaces is the connection that goes when this one is there.
	replaces string

	place    control.KeyPlace
	key      ed25519.PrivateKey
	verifier string
	state    string
	request  string      // its id at the coordinator
	start    string      // where the browser begins; see callback
	granted  chan string // room for one
}

func (p *pairing) over() bool {
	return p.view.Status == control.PairingDone || p.view.Status == control.PairingFailed
}

// Pair implements control.App.
func (a *App) Pair(_ context.Context, r control.PairRequest) (control.Pairing, error) {
	address, err := cleanAddress(r.Coordinator)
	if err != nil {
		return control.Pairing{}, err
	}
	return a.beginPairing(&pairing{label: r.Label, view: control.Pairing{Coordinator: address}}, r.Replace, false)
}

// cleanAddress is the address of a coordinator that somebody typed.
func cleanAddress(typed string) (string, error) {
	s := strings.TrimSpace(typed)
	if s != "" && !strings.Contains(s, "://") {
		scheme := "https://"
		if u, err := url.Parse("http://" + s); err == nil && protocol.LoopbackHost(u.Hostname()) {
			scheme = "http://" // a coordinator of this machine, everdict up
		}
		s = scheme + s
	}
	s = strings.TrimRight(s, "/")
	if err := protocol.CheckCoordinator(s); err != nil {
		return "", protocol.BadRequest("%s", err).WithHint("want https://HOST, as in the address of its dashboard")
	}
	return s, nil
}

// beginPairing begins a pairing. replace: a connection with the same coordinator may be replaced; instead: a pairing that goes
// on may be ended. Where it is refused, nothing is.
func (a *App) beginPairing(p *pairing, replace, instead bool) (control.Pairing, error) {
	if p.label == "" {
		p.label = deviceName()
	}
	if !protocol.ValidName(p.label, 80) {
		return control.Pairing{}, protocol.BadRequest("the name of this computer has 1 to 80 printable characters")
	}
	p.app, p.id, p.granted = a, protocol.NewID(connectionPrefix), make(chan string, 1)
	p.view.Host, p.view.Status, p.view.ByLink = hostOf(p.view.Coordinator), control.PairingContacting, p.code != ""
	p.view.Text = fmt.Sprintf("%s is being asked.", p.view.Host)
	a.mu.Lock()
	if a.ctx == nil || a.closing {
		a.mu.Unlock()
		return control.Pairing{}, protocol.Unavailable("the app is starting or ending")
	}
	former := a.pairing
	if former != nil && former.over() {
		former = nil
	}
	if former != nil && (!instead || former.view.Status == control.PairingRedeeming) {
		host, hint := former.view.Host, "finish that, or cancel it"
		if former.view.Status == control.PairingRedeeming {
			hint = "wait until that is done" // it may have made a runner
		}
		a.mu.Unlock()
		return control.Pairing{}, protocol.Conflict("this computer is being connected to %s", host).WithHint("%s", hint)
	}
	for _, c := range a.connections {
		if sameCoordinator(c.rec.Coordinator, p.view.Coordinator) {
			p.replaces = c.rec.ID
		}
	}
	if p.replaces != "" && !replace {
		a.mu.Unlock()
		return control.Pairing{}, protocol.Conflict("this computer is connected to %s already", p.view.Host).
			WithData("connection", p.replaces).WithHint("replace that connection, or keep it")
	}
	if former != nil {
		former.cancel()
	}
	ctx, cancel := context.WithCancel(a.ctx)
	p.cancel = cancel
	a.pairing = p
	view := p.view
	a.runs.Go(func() {
		defer cancel()
		p.run(ctx)
	})
	a.mu.Unlock()
	a.change(func() {})
	return view, nil
}

// sameCoordinator compares addresses as far as that can be done without asking.
func sameCoordinator(a, b string) bool {
	norm := func(s string) string {
		u, err := url.Parse(s)
		if err != nil {
			return s
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
		}
		return strings.ToLower(u.Scheme+"://"+u.Hostname()) + ":" + port + strings.TrimRight(u.Path, "/")
	}
	return norm(a) == norm(b)
}

// pairingError is why a pairing has failed, in words.
type pairingError struct{ text, next string }

func (e *pairingError) Error() string { return e.text }

func pairingFailed(next, format string, args ...any) error {
	return &pairingError{fmt.Sprintf(format, args...), next}
}

// run goes through the steps and says how it ended.
func (p *pairing) run(ctx context.Context) {
	err := p.steps(ctx)
	releaseMemory()
	if err == nil {
		return
	}
	p.app.mu.Lock()
	asked := p.view.Status == control.PairingRedeeming
	p.app.mu.Unlock()
	if !asked || ctx.Err() == nil { // otherwise the app ends, and the next one learns what came of it
		p.app.forgetLeftover(context.WithoutCancel(ctx), p.id)
	}
	var e *pairingError
	if !errors.As(err, &e) {
		e = &pairingError{text: protocol.Clip(err.Error(), 300)}
	}
	if ctx.Err() != nil {
		e = &pairingError{text: "Connecting was cancelled."}
	}
	p.app.log.Warn("pairing has failed", "coordinator", p.view.Host, "err", err)
	p.app.change(func() {
		p.view.Status, p.view.Text, p.view.Next, p.view.Number, p.view.URL, p.view.ExpiresAt = control.PairingFailed, e.text, e.next, "", "", nil
	})
}

func (p *pairing) steps(ctx context.Context) error {
	place, err := p.app.placeForKey(ctx)
	if err != nil {
		return err
	}
	p.place, p.key, p.verifier, p.state = place, protocol.NewDeviceKey(), protocol.NewVerifier(), protocol.NewVerifier()
	c, err := p.app.client(p.view.Coordinator, "")
	if err != nil {
		return err
	}
	req := p.app.pairingRequest(ctx, p)
	if p.code == "" {
		back, err := listenForGrant(p.state, p.requestID, p.page, p.granted)
		if err != nil {
			return err
		}
		defer back.close()
		p.app.mu.Lock()
		p.start = back.start()
		p.app.mu.Unlock()
		req.Callback = &protocol.PairingCallback{Port: back.port, State: p.state}
	}
	started, err := p.ask(ctx, c, req)
	if err != nil {
		return err
	}
	// From here on a crash leaves a key that is found again, and either made a connection or removed.
	if err := p.keep(ctx, started.ID, ""); err != nil {
		return err
	}
	grant := ""
	if p.code == "" {
		if grant, err = p.approval(ctx, started); err != nil {
			return err
		}
		if err := p.keep(ctx, started.ID, grant); err != nil {
			return err
		}
	}
	p.app.change(func() {
		if ctx.Err() != nil {
			return
		}
		p.view.Status, p.view.Text, p.view.Number, p.view.URL, p.view.ExpiresAt = control.PairingRedeeming, fmt.Sprintf("%s makes this computer a runner.", p.view.Host), "", "", nil
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	device, err := redeem(ctx, c, started.ID, &protocol.PairingRedeem{Verifier: p.verifier, Grant: grant, Proof: protocol.SignPairing(p.key, started.ID, grant)})
	if err != nil {
		return pairingWords(err, p.view.Host)
	}
	return p.app.paired(ctx, p.leftover(), p.view.Coordinator, p.key, device, p.account)
}

// placeForKey is where a new key goes. A keyring that is locked is not passed over in silence.
func (a *App) placeForKey(ctx context.Context) (control.KeyPlace, error) {
	a.mu.Lock()
	place := a.keys.Place
	a.mu.Unlock()
	if place == control.FilePlace {
		return place, nil
	}
	switch err := a.vault.Usable(ctx); {
	case err == nil:
		return control.KeyringPlace, nil
	case errors.Is(err, vault.ErrLocked):
		return "", pairingFailed("Unlock the keyring and try again, or keep keys in a file: see the settings.", "The keyring is locked, and the key of this connection would be kept in it.")
	}
	return control.FilePlace, nil
}

func (a *App) pairingRequest(ctx context.Context, p *pairing) *protocol.PairingRequest {
	host, _ := os.Hostname()
	if !protocol.ValidName(host, 253) {
		host = ""
	}
	capabilities := []string{}
	for _, c := range doctor.Capabilities(ctx, doctor.Config{}) {
		capabilities = append(capabilities, c.ID)
	}
	return &protocol.PairingRequest{
		Label: p.label, OS: runtime.GOOS, Arch: runtime.GOARCH, Hostname: host, Version: a.cfg.Version, Capabilities: capabilities,
		PublicKey: protocol.PublicKey(p.key), Challenge: protocol.PairingChallenge(p.verifier), Code: p.code, Number: p.number,
	}
}

// ask makes the request, and checks what came back before anything of it is used.
func (p *pairing) ask(ctx context.Context, c *client.Client, req *protocol.PairingRequest) (*protocol.PairingStarted, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	started, err := c.StartPairing(ctx, req)
	if err != nil {
		return nil, pairingWords(err, p.view.Host)
	}
	if started.Check() != nil {
		return nil, pairingFailed("", "What %s answers cannot be understood.", p.view.Host)
	}
	if p.code != "" {
		if started.Account == nil || *started.Account != p.account {
			return nil, pairingFailed("Do not use that link. Make a new one in your own dashboard.",
				"The link said %s, and %s says somebody else: this computer was not connected.", p.account.Subject, p.view.Host)
		}
	} else if !sameOrigin(started.URL, p.view.Coordinator) {
		return nil, pairingFailed("Type the address that the coordinator calls its own (its --public-url).", "%s sends the browser to another address, which was not opened: %s.", p.view.Host, protocol.Clip(hostOf(started.URL), 100))
	}
	p.app.mu.Lock()
	p.request = started.ID
	p.app.mu.Unlock()
	return started, nil
}

// sameOrigin says whether two addresses have one scheme, host and port.
func sameOrigin(a, b string) bool {
	u, err1 := url.Parse(a)
	v, err2 := url.Parse(b)
	return err1 == nil && err2 == nil && u.User == nil && sameCoordinator(u.Scheme+"://"+u.Host, v.Scheme+"://"+v.Host)
}

func (p *pairing) requestID() string {
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	return p.request
}

// approval opens the browser and waits for the grant.
func (p *pairing) approval(ctx context.Context, started *protocol.PairingStarted) (string, error) {
	life := time.Duration(started.ExpiresInSec) * time.Second
	expires := protocol.At(time.Now().Add(life))
	p.app.change(func() {
		p.view.Status, p.view.Number, p.view.URL, p.view.ExpiresAt = control.PairingWaiting, started.Number, started.URL, &expires
		p.view.Text = "Approve this computer in the browser, if it shows the same number."
	})
	p.openBrowser(p.start)
	timer := time.NewTimer(life)
	defer timer.Stop()
	select {
	case grant := <-p.granted:
		return grant, nil
	case <-timer.C:
		return "", pairingFailed("Begin again.", "Nobody approved this computer in time.")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// PairCancel implements control.App.
func (a *App) PairCancel(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch p := a.pairing; {
	case p == nil || p.over():
	case p.view.Status == control.PairingRedeeming:
		return protocol.Conflict("%s is making this computer a runner, and may have done so", p.view.Host).WithHint("wait for its answer, and disconnect then")
	default:
		p.cancel()
	}
	return nil
}

// grantedByLink takes the grant of a deep link: the way back where the browser cannot reach the callback.
func (a *App) grantedByLink(d protocol.DeepLink) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pairing
	if p == nil || p.view.Status != control.PairingWaiting || p.request != d.Pairing || subtle.ConstantTimeCompare([]byte(p.state), []byte(d.State)) != 1 {
		return errors.New("the app does not wait for this approval: begin to connect in the app")
	}
	select {
	case p.granted <- d.Code:
	default: // it came already
	}
	return nil
}

func (p *pairing) leftover() leftover {
	return leftover{ID: p.id, Key: p.place, Label: p.label, Replaces: p.replaces}
}

// keep puts the key into the vault, with what it takes to redeem, after the list of connections says so.
func (p *pairing) keep(ctx context.Context, request, grant string) error {
	p.app.mu.Lock()
	known := slices.ContainsFunc(p.app.leftovers, func(l leftover) bool { return l.ID == p.id })
	var err error
	if !known {
		p.app.leftovers = append(p.app.leftovers, p.leftover())
		err = p.app.save()
	}
	p.app.mu.Unlock()
	if err != nil {
		return err
	}
	return p.app.vault.Put(ctx, p.id, p.place, vault.Secret{Key: p.key, Pending: &vault.Pending{
		Coordinator: p.view.Coordinator, Pairing: request, Verifier: p.verifier, Grant: grant, Subject: p.account.Subject, Workspace: p.account.Workspace,
	}})
}

// redeem makes the machine a runner. It is tried again for want of an answer; one that was lost is not lost: the second
// time the coordinator says what the first has made.
func redeem(ctx context.Context, c *client.Client, id string, req *protocol.PairingRedeem) (*protocol.PairedDevice, error) {
	bound, cancel := context.WithTimeout(ctx, redeemBound)
	defer cancel()
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		once, cancel := context.WithTimeout(bound, askBound)
		device, err := c.RedeemPairing(once, id, req)
		cancel()
		var p *protocol.Problem
		switch {
		case err == nil && device.Status == protocol.PairingDone:
			return device, nil
		case errors.As(err, &p) && p.Status < 500 && p.Status != http.StatusTooManyRequests:
			if device := protocol.UsedBefore(p); device != nil {
				return device, nil
			}
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-bound.Done():
			if ctx.Err() != nil || err == nil {
				err = ctx.Err()
			}
			return nil, err
		}
	}
}

// paired makes a connection of a pairing that has ended well. expected is who the link was for.
func (a *App) paired(ctx context.Context, l leftover, coordinator string, key ed25519.PrivateKey, d *protocol.PairedDevice, expected protocol.Account) error {
	host := hostOf(coordinator)
	if d.Check() != nil || expected.Subject != "" && *d.Account != expected {
		return pairingFailed("", "What %s answers cannot be understood: this computer was not connected.", host)
	}
	r := record{
		ID: l.ID, Coordinator: coordinator, Account: *d.Account, Runner: d.Runner.ID, Label: l.Label, Target: protocol.TargetSelfPrefix + d.Runner.ID,
		PairedAt: protocol.At(time.Now()), Key: l.Key, Settings: settings.DefaultConnection(runtime.GOOS),
	}
	if d.Runner.Label != "" {
		r.Label = d.Runner.Label
	}
	ctx = context.WithoutCancel(ctx) // it is a runner now, whatever is cancelled
	if err := a.vault.Put(ctx, r.ID, r.Key, vault.Secret{Key: key}); err != nil {
		// What was kept for the redemption has the key as well.
		a.log.Warn("the key of a connection still has its pairing beside it", "err", err)
	}
	c := newConnection(a, r)
	var err error
	login := false
	a.change(func() {
		login = len(a.connections) == 0 && a.settings.StartAtLogin // with the first one it is done
		a.connections = append(a.connections, c)
		a.leftovers = slices.DeleteFunc(a.leftovers, func(o leftover) bool { return o.ID == l.ID })
		err = a.save()
		if p := a.pairing; p != nil && p.id == l.ID {
			p.view.Status, p.view.Connection = control.PairingDone, r.ID
			p.view.Text, p.view.Next = fmt.Sprintf("This computer is connected to %s as %s.", host, r.Account.Subject), ""
		}
	})
	if err != nil {
		a.log.Error("connections cannot be kept", "err", err)
		a.change(func() {
			a.notice("error", fmt.Sprintf("The connection with %s could not be written to the disk: %s.", host, protocol.Clip(err.Error(), 300)),
				"Make room and change one of its settings, which writes it again. Otherwise it is gone with the next start.")
		})
	}
	if expected.Subject == "" { // nobody here has said whose it will be
		a.mu.Lock()
		on := a.settings.Notifications
		a.mu.Unlock()
		if on {
			a.tell(&words{"This computer is connected", fmt.Sprintf("to %s as %s, whose runs it takes. If that is not you, disconnect it.", host, r.Account.Subject)})
		}
	}
	a.refreshKeys(ctx)
	a.mu.Lock()
	life, closing := a.ctx, a.closing
	a.mu.Unlock()
	if login {
		a.autostart(ctx, true)
	}
	if !closing {
		c.start(life)
	}
	if l.Replaces != "" {
		out, err := a.Unpair(ctx, l.Replaces)
		a.sayUnpaired(out, err, fmt.Sprintf("This computer is connected to %s anew, and its old runner could not be removed there.", host))
	}
	return nil
}

// forgetLeftover removes the key of a pairing that came to nothing.
func (a *App) forgetLeftover(ctx context.Context, id string) {
	a.mu.Lock()
	i := slices.IndexFunc(a.leftovers, func(l leftover) bool { return l.ID == id })
	var l leftover
	if i >= 0 {
		l = a.leftovers[i]
	}
	a.mu.Unlock()
	if i < 0 {
		return
	}
	if err := a.vault.Delete(ctx, l.ID, l.Key); err != nil {
		a.log.Error("the key of a pairing that failed could not be removed, it is tried again at the next start", "err", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leftovers = slices.DeleteFunc(a.leftovers, func(o leftover) bool { return o.ID == id })
	if err := a.save(); err != nil {
		a.log.Error("connections cannot be kept", "err", err)
	}
}

// settle brings the pairings to an end that an earlier life of the app did not see through: those that may have been
// redeemed are redeemed once more, and say what came of it; the others have come to nothing.
func (a *App) settle(ctx context.Context) {
	a.mu.Lock()
	todo := slices.Clone(a.leftovers)
	a.mu.Unlock()
	for _, l := range todo {
		a.runs.Go(func() {
			if err := a.settleOne(ctx, l); err != nil && ctx.Err() == nil {
				a.log.Warn("a pairing that was interrupted has come to nothing", "err", err)
				a.forgetLeftover(ctx, l.ID)
				a.change(func() {
					a.notice("warn", "Connecting this computer was interrupted.", "Begin again. If the coordinator shows a runner of this computer that is never online, remove it there.")
				})
			}
		})
	}
}

func (a *App) settleOne(ctx context.Context, l leftover) error {
	s, err := a.vault.Get(ctx, l.ID, l.Key)
	if err != nil {
		return err
	}
	q := s.Pending
	if q == nil {
		return errors.New("it is not known for what the key was made")
	}
	if q.Grant == "" && q.Subject == "" {
		return errors.New("nobody had approved it")
	}
	c, err := a.client(q.Coordinator, "")
	if err != nil {
		return err
	}
	device, err := redeem(ctx, c, q.Pairing, &protocol.PairingRedeem{Verifier: q.Verifier, Grant: q.Grant, Proof: protocol.SignPairing(s.Key, q.Pairing, q.Grant)})
	if err != nil {
		return err
	}
	return a.paired(ctx, l, q.Coordinator, s.Key, device, protocol.Account{Subject: q.Subject, Workspace: q.Workspace})
}

// client calls a coordinator. It tries nothing again: who calls it does.
func (a *App) client(coordinator, token string) (*client.Client, error) {
	return client.New(client.Config{BaseURL: coordinator, Token: token, CAFile: a.cfg.CAFile, UserAgent: "everdict-desktop/" + a.cfg.Version, Retries: -1})
}

// pairingWords says why a coordinator did not do its part.
func pairingWords(err error, host string) error {
	var p *protocol.Problem
	if !errors.As(err, &p) {
		return pairingFailed("Check the address and the network, and begin again.", "%s", lost(err, host).text)
	}
	reason, _ := p.Data["reason"].(string)
	switch {
	case reason == protocol.ReasonExpired:
		return pairingFailed("Begin again.", "It took too long.")
	case reason == protocol.ReasonDenied:
		return pairingFailed("", "This computer was refused in the browser.")
	case reason == protocol.ReasonNumber:
		return pairingFailed("Make a new link in the dashboard and type the number that it shows.", "The number is not the one of the dashboard, and the link is worth nothing any more.")
	case reason == protocol.ReasonUsed:
		return pairingFailed("Make a new link in the dashboard.", "The link was used already.")
	case reason == protocol.ReasonOff:
		return pairingFailed("Ask who runs it.", "%s does not take computers in this way: %s", host, protocol.Clip(p.Message, 200))
	case p.Status == http.StatusNotFound:
		return pairingFailed("Check the address: it is that of the dashboard. An old coordinator needs an update.", "At %s is no coordinator that computers connect to.", host)
	case p.Status == http.StatusTooManyRequests:
		return pairingFailed("Wait a minute.", "%s was asked too often.", host)
	}
	return pairingFailed(protocol.Clip(p.Hint, 200), "%s says: %s", host, protocol.Clip(p.Message, 300))
}
