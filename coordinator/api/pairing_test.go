package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
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

// No page of another site starts a pairing, redeems one or uses up nonces, whatever the coordinator asks
// of others; in the development mode neither does one whose name resolves here.
func TestPairingCrossSite(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{true, false} {
		e := newSessionEnv(t, required)
		m := newMachine(e.env)
		m.start(nil)
		for name, header := range map[string][]string{
			"another site":   {"Sec-Fetch-Site", "cross-site"},
			"a sister site":  {"Sec-Fetch-Site", "same-site"},
			"another origin": {"Origin", "https://evil.example"},
			"a sandbox":      {"Origin", "null"},
		} {
			for _, path := range []string{"/pairings", "/pairings/" + m.started.ID + "/redeem"} {
				if p := e.do("POST", path, m.request(nil), header...).problem(http.StatusForbidden, protocol.CodeForbidden); p.Hint == "" {
					t.Errorf("%s, required %t: %s: no hint", name, required, path)
				}
			}
			e.do("POST", link.NoncePath, "", header...).problem(http.StatusForbidden, protocol.CodeForbidden)
		}
		m.start(nil, "Sec-Fetch-Site", "same-origin")
		m.start(nil, "Origin", e.url)
	}
	// Rebinding: the page's own name, which resolves to this machine.
	e := newSessionEnv(t, false)
	for _, path := range []string{"/pairings", "/pairings/prq_x/redeem"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "evil.example"
		req.Header.Set("Origin", "http://evil.example")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("rebinding to %s: %d, want 403", path, res.StatusCode)
		}
	}
}

// Whoever may pair a machine with a token may approve one, and nobody else.
func TestPairingRights(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	admin := []string{"Authorization", "Bearer " + e.key}
	key := func(scope string) []string {
		var k protocol.IssuedKey
		e.do("POST", "/keys", `{"label":"k","scopes":["`+scope+`"]}`, admin...).wants(http.StatusCreated).into(&k)
		return []string{"Authorization", "Bearer " + k.APIKey}
	}
	read, write := key(protocol.ScopeRead), key(protocol.ScopeWrite)
	m := newMachine(e.env)
	m.start(nil)
	at := "/pairings/" + m.started.ID
	for name, header := range map[string][]string{"nobody": nil, "a key that reads": read} {
		status, code := http.StatusForbidden, protocol.CodeForbidden
		if header == nil {
			status, code = http.StatusUnauthorized, protocol.CodeUnauthenticated
		}
		for _, path := range []string{at + "/approve", at + "/deny", "/pair-codes"} {
			if p := e.do("POST", path, "", header...).problem(status, code); p.Hint == "" {
				t.Errorf("%s: %s: no hint", name, path)
			}
		}
	}
	e.do("GET", at, "", read...).wants(http.StatusOK)
	e.do("POST", at+"/approve", "", write...).wants(http.StatusOK)
	device := m.paired("").Runner.ID
	as := func() []string { return []string{"Authorization", "Bearer " + m.session(device)} }
	other := newMachine(e.env)
	other.start(nil)
	for _, path := range []string{"/pairings/" + other.started.ID + "/approve", "/pair-codes", "/runners"} {
		e.do("POST", path, "", as()...).problem(http.StatusForbidden, protocol.CodeForbidden)
	}
	// The machine ends its own pairing, and a person's key is not such a machine.
	e.do("DELETE", "/runners/self", "", admin...).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("DELETE", "/runners/self", "", as()...).wants(http.StatusNoContent)
	if p := e.do("DELETE", "/runners/self", "", as()...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated); p.Data["reason"] != "revoked" {
		t.Errorf("again: %+v, want the reason revoked", p)
	}
}

// Behind a proxy, the addresses are those that the machine and the browser know.
func TestPairingBehindAProxy(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	m := newMachine(e.env)
	m.start(nil, "X-Forwarded-Proto", "https", "X-Forwarded-For", "203.0.113.9")
	https := strings.Replace(e.url, "http://", "https://", 1)
	if m.started.EnterURL != https+"/ui/pair" || !strings.HasPrefix(m.started.URL, https) {
		t.Errorf("started %+v, want addresses below %s", m.started, https)
	}
	var seen protocol.Pairing
	e.do("GET", "/pairings/"+m.started.ID, "", "Authorization", "Bearer "+e.key).wants(http.StatusOK).into(&seen)
	if seen.From != "203.0.113.9" {
		t.Errorf("the request is shown to come from %s", seen.From)
	}
}

// What an answer of a pairing holds is kept by no cache, a code in a URL is refused, and
// the log repeats neither.
func TestPairingKeepsItsCodes(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	key := []string{"Authorization", "Bearer " + e.key}
	r := e.do("POST", "/pair-codes", "", key...).wants(http.StatusCreated)
	if got := r.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	var c protocol.PairCode
	r.into(&c)
	link, err := protocol.ParseDeepLink(c.Link)
	if err != nil {
		t.Fatal(err)
	}
	e.do("GET", "/pairings/x?code="+link.Code, "", key...).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	e.do("GET", "/pairings/"+link.Code, "", key...).problem(http.StatusNotFound, protocol.CodeNotFound)
	m := newMachine(e.env)
	session := protocol.SignSession(m.key, protocol.NewID(protocol.RunnerPrefix), strings.Repeat("n", 54))
	e.do("GET", "/pairings/"+session, "", key...).problem(http.StatusNotFound, protocol.CodeNotFound)
	if log := e.log.String(); strings.Contains(log, link.Code) || strings.Contains(log, session) || !strings.Contains(log, "prc_***") || !strings.Contains(log, "drs_***") {
		t.Errorf("the log has the code:\n%s", log)
	}
}

// Nonces are bounded by address, with the time to wait in the header that clients know.
func TestNoncesAreBounded(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	for range 1000 {
		e.do("POST", "/agent/nonce", "").wants(http.StatusOK)
	}
	r := e.do("POST", "/agent/nonce", "")
	r.problem(http.StatusTooManyRequests, protocol.CodeRateLimited)
	if r.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, want 1", r.header.Get("Retry-After"))
	}
}

// Who has shown no credential cannot send much, whatever they say of its length.
func TestStrangersSendLittle(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	big := `{"label":"` + strings.Repeat("x", 64<<10) + `"}`
	for _, path := range []string{"/pairings", "/pairings/prq_x/redeem", "/session"} {
		e.do("POST", path, big, "Sec-Fetch-Site", "same-origin").problem(http.StatusRequestEntityTooLarge, protocol.CodeBadRequest)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+path, struct{ io.Reader }{strings.NewReader(big)})
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s in chunks: %d, want 413", path, res.StatusCode)
		}
	}
}

func FuzzPairingBodies(f *testing.F) {
	f.Add([]byte(`{"label":"a","publicKey":"AAAA","challenge":"AAAA"}`), []byte(`{"verifier":"a","proof":"b","grant":"c"}`), []byte(`{"userCode":"BCDF-GHJK"}`))
	e := newSessionEnv(f, true)
	m := newMachine(e.env)
	m.start(nil)
	f.Fuzz(func(t *testing.T, ask, redeem, lookup []byte) {
		for path, body := range map[string][]byte{"/pairings": ask, "/pairings/" + m.started.ID + "/redeem": redeem, "/pairings/lookup": lookup} {
			e.now.Advance(time.Minute) // no throttle; the request is over soon, and stays so
			env := *e.env
			env.t = t
			if r := env.do("POST", path, string(body), "Authorization", "Bearer "+e.key); r.status >= 500 {
				t.Errorf("%s %q: %d %s", path, body, r.status, r.body)
			}
		}
	})
}
