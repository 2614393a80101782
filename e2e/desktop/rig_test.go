// Package desktop_test drives the desktop app against a real coordinator: pairing both ways with an HTTP client in the
// place of the browser, and what a person does with the connection then.
package desktop_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/desktop"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// app is a desktop app in this process, with a person's hands.
type app struct {
	*desktop.App
	t     testing.TB
	house *house.House
	cfg   desktop.Config
	// url is where the app finds the coordinator.
	url string
	// opened are the addresses that were opened in the browser.
	opened chan string
	stop   context.CancelFunc
	done   chan error
}

// newApp starts an app that ends with the test.
func newApp(t testing.TB, h *house.House, configure ...func(*desktop.Config)) *app {
	t.Helper()
	opened := make(chan string, 16)
	cfg := desktop.Config{
		Dirs: home.Below(shortDir(t)), Version: "test", Log: house.Log(t, "desktop"), Lookup: builtin.Lookup, Timing: h.Config.Timing,
		Browser: func(url string) error { opened <- url; return nil }, DrainTimeout: time.Minute,
	}
	for _, f := range configure {
		f(&cfg)
	}
	a := &app{t: t, house: h, url: h.URL(), cfg: cfg, opened: opened}
	a.start()
	t.Cleanup(a.end)
	return a
}

// shortDir is a directory for an app, which lays sockets below it: their paths are to be short.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "desk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (a *app) start() {
	a.t.Helper()
	inner, err := desktop.New(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	a.App, a.stop, a.done = inner, stop, done
	go func() { done <- inner.Run(ctx) }()
	<-inner.Ready()
}

// end ends the app at once.
func (a *app) end() {
	a.t.Helper()
	if a.stop == nil {
		return
	}
	a.stop()
	a.stop = nil
	a.Hurry()
	select {
	case err := <-a.done:
		if err != nil {
			a.t.Errorf("the app ended with %v", err)
		}
	case <-time.After(house.Patience):
		a.t.Fatal("the app did not end")
	}
}

// until waits for a state.
func (a *app) until(what string, ok func(control.State) bool) control.State {
	a.t.Helper()
	deadline := time.After(house.Patience)
	for {
		s := a.State()
		if ok(s) {
			return s
		}
		select {
		case <-a.Changed(s.Rev):
		case <-deadline:
			a.t.Fatalf("waited for: %s; the state is %+v", what, s)
		}
	}
}

// connection waits until the first connection is so.
func (a *app) connection(what string, ok func(control.Connection) bool) control.Connection {
	a.t.Helper()
	return a.until(what, func(s control.State) bool { return len(s.Connections) > 0 && ok(s.Connections[0]) }).Connections[0]
}

func is(status control.Status) func(control.Connection) bool {
	return func(c control.Connection) bool { return c.Status == status }
}

func because(status control.Status, reason control.Reason) func(control.Connection) bool {
	return func(c control.Connection) bool { return c.Status == status && c.Reason == reason }
}

// browse is what the browser gets of an address.
func browse(t testing.TB, address string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// waiting begins to pair and waits for the approval; it returns the pairing's id at the coordinator.
func (a *app) waiting() (control.Pairing, string) {
	a.t.Helper()
	if _, err := a.Pair(context.Background(), control.PairRequest{Coordinator: a.url, Replace: true}); err != nil {
		a.t.Fatalf("pair: %v", err)
	}
	s := a.until("the pairing waits", func(s control.State) bool {
		return s.Pairing != nil && (s.Pairing.Status == control.PairingWaiting || s.Pairing.Status == control.PairingFailed)
	})
	if s.Pairing.Status == control.PairingFailed {
		a.t.Fatalf("the pairing has failed: %s", s.Pairing.Text)
	}
	select {
	case address := <-a.opened:
		// The id of the pairing is in no argument of the browser: it is sent on.
		if u, err := url.Parse(address); err != nil || u.Hostname() != "127.0.0.1" || u.Path != "/start" || u.RawQuery != "" {
			a.t.Fatalf("the browser was opened at %s, want the app's own port", address)
		}
		if to := a.sentOn(address); to != s.Pairing.URL {
			a.t.Fatalf("the browser is sent to %q, the app shows %s", to, s.Pairing.URL)
		}
	case <-time.After(house.Patience):
		a.t.Fatal("the browser was not opened")
	}
	return *s.Pairing, s.Pairing.URL[strings.LastIndexAny(s.Pairing.URL, "/=")+1:]
}

// sentOn is where an address of the app sends the browser.
func (a *app) sentOn(address string) string {
	a.t.Helper()
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := stay.Get(address)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.Header.Get("Location")
}

// approve is what the page of the coordinator does with a click.
func (a *app) approve(id string) *protocol.PairingApproval {
	a.t.Helper()
	approval, err := a.house.Client.ApprovePairing(context.Background(), id)
	if err != nil {
		a.t.Fatalf("approve %s: %v", id, err)
	}
	return approval
}

// pair connects the app, and waits until it is idle.
func (a *app) pair() control.Connection {
	a.t.Helper()
	_, id := a.waiting()
	if status, text := browse(a.t, a.approve(id).Callback); status != http.StatusOK {
		a.t.Fatalf("the callback answers %d: %s", status, text)
	}
	a.until("the pairing is done", func(s control.State) bool { return s.Pairing != nil && s.Pairing.Status == control.PairingDone })
	c := a.connection("it is online", func(c control.Connection) bool { return c.Online })
	// Containers are not what these tests are about.
	set := c.Settings
	set.Sandbox = control.SandboxProcess
	if _, err := a.SetConnection(context.Background(), c.ID, set); err != nil {
		a.t.Fatalf("choose the process sandbox: %v", err)
	}
	return a.connection("it is idle", func(c control.Connection) bool {
		return c.Status == control.StatusIdle && c.Settings.Sandbox == control.SandboxProcess
	})
}

func problemOf(err error) *protocol.Problem {
	var p *protocol.Problem
	errors.As(err, &p)
	return p
}

func quickHouse(t testing.TB, configure ...func(*coordinator.Config)) *house.House {
	t.Helper()
	return house.New(t, append([]func(*coordinator.Config){house.Quick}, configure...)...)
}

// steadyHouse is for tests that are not about expiry.
func steadyHouse(t testing.TB) *house.House {
	t.Helper()
	return house.New(t, house.Steady)
}

// submit is a run for the connection.
func (a *app) submit(c control.Connection, script string) string {
	a.t.Helper()
	req := house.Scripted(script)
	req.Runtime = c.Target
	return a.house.Submit(req)
}

// onBattery is a power supply: on holds what it says.
func onBattery(on chan bool, changes <-chan struct{}) func(*desktop.Config) {
	return func(c *desktop.Config) {
		c.OnBattery = func(context.Context) (bool, error) {
			v := <-on
			on <- v
			return v, nil
		}
		c.PowerChanges = func(context.Context) (<-chan struct{}, error) { return changes, nil }
	}
}

// asked clicks on a link of the dashboard and returns what the app asks.
func (a *app) asked(link string) control.Question {
	a.t.Helper()
	if o, err := a.Open(context.Background(), control.OpenRequest{Link: link}); err != nil || o.Refused != "" {
		a.t.Fatalf("the link was refused: %+v, %v", o, err)
	}
	return *a.until("the app asks", func(s control.State) bool { return s.Question != nil }).Question
}

// yes answers a question with the number of the dashboard.
func (a *app) yes(q control.Question, number string, replace bool) error {
	_, err := a.Answer(context.Background(), control.Answer{Question: q.ID, Connect: true, Number: number, Replace: replace})
	return err
}

// paired waits until the pairing is over, and returns it.
func (a *app) paired(want control.PairingStatus) control.State {
	a.t.Helper()
	s := a.until("the pairing is over", func(s control.State) bool {
		return s.Pairing != nil && (s.Pairing.Status == control.PairingDone || s.Pairing.Status == control.PairingFailed)
	})
	if s.Pairing.Status != want {
		a.t.Fatalf("the pairing is %s: %s", s.Pairing.Status, s.Pairing.Text)
	}
	return s
}

// gated begins a run that ends when open is called.
func (a *app) gated(c control.Connection) (id string, open func()) {
	a.t.Helper()
	id, open = a.begin(c)
	a.connection("it runs", is(control.StatusRunning))
	return id, open
}

// begin is gated without waiting for it to begin.
func (a *app) begin(c control.Connection) (id string, open func()) {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "go")
	id = a.submit(c, "run until [ -e "+file+" ]; do sleep 0.05; done")
	return id, func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// pairCode makes a link in the dashboard.
func (a *app) pairCode() *protocol.PairCode {
	a.t.Helper()
	code, err := a.house.Client.CreatePairCode(context.Background())
	if err != nil {
		a.t.Fatal(err)
	}
	return code
}
