package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

// machine is one that asks over HTTP to become a runner.
type machine struct {
	*env
	key      ed25519.PrivateKey
	verifier string
	started  protocol.PairingStarted
}

func newMachine(e *env) *machine {
	return &machine{env: e, key: protocol.NewDeviceKey(), verifier: protocol.NewVerifier()}
}

// request is the body with which the machine asks.
func (m *machine) request(change func(*protocol.PairingRequest)) string {
	req := protocol.PairingRequest{Label: "laptop", OS: "linux", Arch: "amd64", Hostname: "box", Version: "1.2.3", Capabilities: []string{"git"},
		PublicKey: protocol.PublicKey(m.key), Challenge: protocol.PairingChallenge(m.verifier)}
	if change != nil {
		change(&req)
	}
	b, err := json.Marshal(req)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func withCallback(r *protocol.PairingRequest) {
	r.Callback = &protocol.PairingCallback{Port: 4711, State: strings.Repeat("s", 20)}
}

func (m *machine) start(change func(*protocol.PairingRequest), header ...string) {
	m.t.Helper()
	m.do("POST", "/pairings", m.request(change), header...).wants(http.StatusCreated).into(&m.started)
}

func (m *machine) redeem(grant string) reply {
	m.t.Helper()
	return m.do("POST", "/pairings/"+m.started.ID+"/redeem", fmt.Sprintf(`{"verifier":%q,"grant":%q,"proof":%q}`,
		m.verifier, grant, protocol.SignPairing(m.key, m.started.ID, grant)))
}

// paired redeems and checks that the device can show who it is.
func (m *machine) paired(grant string) protocol.PairedDevice {
	m.t.Helper()
	var d protocol.PairedDevice
	m.redeem(grant).wants(http.StatusOK).into(&d)
	if d.Status != protocol.PairingDone || d.Runner == nil || d.Account == nil {
		m.t.Fatalf("redeemed: %+v, want a runner and an account", d)
	}
	session := m.session(d.Runner.ID)
	var me protocol.Me
	m.do("GET", "/me", "", "Authorization", "Bearer "+session).wants(http.StatusOK).into(&me)
	if me.RunnerID != d.Runner.ID || me.Workspace != d.Account.Workspace {
		m.t.Errorf("the device is %+v, want runner %s", me, d.Runner.ID)
	}
	p := m.do("GET", "/me", "", "Authorization", "Bearer "+session).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if p.Data["reason"] != "nonce" {
		m.t.Errorf("the same session again: %+v, want the reason nonce", p)
	}
	return d
}

func (m *machine) session(runner string) string {
	m.t.Helper()
	var n protocol.Nonce
	m.do("POST", "/agent/nonce", "").wants(http.StatusOK).into(&n)
	return protocol.SignSession(m.key, runner, n.Nonce)
}

// The whole way of a machine with a browser: it asks, somebody who is signed in
// approves, the grant comes back, the machine is a runner and proves it.
func TestPairByBrowser(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	m := newMachine(e.env)
	m.start(withCallback)
	if want := e.url + "/ui/pair/" + m.started.ID; m.started.URL != want || m.started.UserCode != "" || len(m.started.Number) != 2 || m.started.ExpiresInSec != protocol.PairingLifeSec {
		t.Errorf("started %+v, want the page %s, a number, and no user code", m.started, want)
	}
	m.redeem("").wants(http.StatusAccepted)
	m.do("GET", "/pairings/"+m.started.ID, "").problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	cookie, _ := e.signIn(e.key)
	var seen protocol.Pairing
	e.do("GET", "/pairings/"+m.started.ID, "", browser(cookie)...).wants(http.StatusOK).into(&seen)
	if seen.Number != m.started.Number || seen.Hostname != "box" || seen.From != "127.0.0.1" || seen.Status != protocol.PairingPending || seen.Headless {
		t.Errorf("the page shows %+v", seen)
	}
	// No page but the coordinator's own approves with a session.
	approve := "/pairings/" + m.started.ID + "/approve"
	e.do("POST", approve, "", "Cookie", cookie).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("POST", approve, "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site").problem(http.StatusForbidden, protocol.CodeForbidden)
	var approval protocol.PairingApproval
	e.do("POST", approve, "", browser(cookie)...).wants(http.StatusOK).into(&approval)
	link, err := protocol.ParseDeepLink(approval.Link)
	if err != nil {
		t.Fatalf("the approval's link: %v", err)
	}
	want := fmt.Sprintf("http://127.0.0.1:4711/callback?pairing=%s&grant=%s&state=%s", m.started.ID, link.Code, strings.Repeat("s", 20))
	if approval.Callback != want {
		t.Errorf("callback %s, want %s", approval.Callback, want)
	}
	d := m.paired(link.Code)
	if diff := cmp.Diff(protocol.Account{Subject: "admin", Workspace: "team"}, *d.Account); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	again := m.redeem(link.Code).problem(http.StatusConflict, protocol.CodeConflict)
	if again.Data["reason"] != protocol.ReasonUsed || again.Data["runner"] != d.Runner.ID {
		t.Errorf("redeemed twice: %+v, want to be told which runner it is", again)
	}
}

// A machine without a browser asks again and again; the person types its code in.
func TestPairByUserCode(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	m := newMachine(e.env)
	m.start(nil)
	if m.started.EnterURL != e.url+"/ui/pair" || m.started.IntervalSec == 0 || len(m.started.UserCode) != 9 {
		t.Fatalf("started %+v, want a code and where to type it in", m.started)
	}
	key := []string{"Authorization", "Bearer " + e.key}
	m.redeem("").wants(http.StatusAccepted)
	var found protocol.Pairing
	typed := strings.ToLower(strings.ReplaceAll(m.started.UserCode, "-", " "))
	e.do("POST", "/pairings/lookup", `{"userCode":"`+typed+`"}`, key...).wants(http.StatusOK).into(&found)
	if found.ID != m.started.ID || !found.Headless {
		t.Errorf("found %+v, want %s", found, m.started.ID)
	}
	var approval protocol.PairingApproval
	e.do("POST", "/pairings/"+found.ID+"/approve", "", key...).wants(http.StatusOK).into(&approval)
	if approval.Callback != "" || approval.Link != "" {
		t.Errorf("approval %+v, want neither callback nor link", approval)
	}
	m.paired("")
}

// The other way round: a click in the dashboard, a number that is typed into the app.
func TestPairByCode(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	key := []string{"Authorization", "Bearer " + e.key}
	var made protocol.PairCode
	e.do("POST", "/pair-codes", "", key...).wants(http.StatusCreated).into(&made)
	link, err := protocol.ParseDeepLink(made.Link)
	if err != nil || link.Coordinator != e.url || link.Account != (protocol.Account{Subject: "admin", Workspace: "team"}) {
		t.Fatalf("link %+v, %v", link, err)
	}
	status := func(want protocol.PairCodeStatus) (c protocol.PairCode) {
		t.Helper()
		e.do("GET", "/pair-codes/"+made.ID, "", key...).wants(http.StatusOK).into(&c)
		if c.Status != want || c.Link != "" {
			t.Errorf("code %+v, want status %s and no link", c, want)
		}
		return c
	}
	status(protocol.PairCodeWaiting)
	m := newMachine(e.env)
	m.start(func(r *protocol.PairingRequest) { r.Code, r.Number = link.Code, made.Number })
	if m.started.URL != "" || m.started.Account == nil || m.started.Account.Workspace != "team" {
		t.Errorf("started %+v, want an account and no page", m.started)
	}
	status(protocol.PairCodeUsed)
	d := m.paired("")
	if c := status(protocol.PairCodeUsed); c.Runner == nil || c.Runner.ID != d.Runner.ID {
		t.Errorf("code %+v, want runner %s", c, d.Runner.ID)
	}
}
