package api_test

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// browser is what a page of the coordinator's own sends with each request.
func browser(cookie string) []string {
	return []string{"Sec-Fetch-Site", "same-origin", "Cookie", cookie}
}

// sessionEnv is an environment that needs sign-in, with a clock of its own.
type sessionEnv struct {
	*env
	key string
	now *atomicTime
}

func newSessionEnv(t testing.TB, required bool) *sessionEnv {
	t.Helper()
	e := &sessionEnv{now: newAtomicTime(time.UnixMilli(1_800_000_000_000))}
	e.env = newEnv(t, options{
		auth:   auth.Config{Required: required, Proxies: auth.Proxies{netip.MustParsePrefix("127.0.0.0/8")}},
		config: func(c *api.Config) { c.Now = e.now.Now; c.Version = "v9" },
		now:    e.now.Now,
	})
	var err error
	if e.key, err = e.keys.Bootstrap(t.Context(), "team"); err != nil {
		t.Fatal(err)
	}
	return e
}

// signIn begins a session and returns the cookie as a browser sends it back.
func (e *sessionEnv) signIn(key string, header ...string) (cookie string, raw string) {
	e.t.Helper()
	r := e.do("POST", "/session", `{"apiKey":"`+key+`"}`, append(header, "Sec-Fetch-Site", "same-origin")...).wants(http.StatusOK)
	raw = r.header.Get("Set-Cookie")
	cookie, _, _ = strings.Cut(raw, ";")
	return cookie, raw
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	cookie, raw := e.signIn(e.key)
	for _, want := range []string{"everdict_session=ses_", "; Path=/", "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(raw, want) {
			t.Errorf("cookie %q lacks %q", raw, want)
		}
	}
	if strings.Contains(raw, "Secure") || strings.Contains(raw, e.key) || strings.Contains(raw, "Domain") {
		t.Errorf("cookie over http: %q", raw)
	}
	secure, raw := e.signIn(e.key, "X-Forwarded-Proto", "https")
	if !strings.HasPrefix(raw, "__Host-everdict_session=ses_") || !strings.Contains(raw, "; Secure") {
		t.Errorf("cookie over https behind a proxy: %q, want one that only https sets", raw)
	}
	e.do("GET", "/runs", "", append(browser(secure), "X-Forwarded-Proto", "https")...).wants(http.StatusOK)
	// Over https, what a neighbour host could have set over http is no session.
	e.do("GET", "/runs", "", append(browser(cookie), "X-Forwarded-Proto", "https")...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)

	var s protocol.Session
	e.do("GET", "/session", "", browser(cookie)...).wants(http.StatusOK).into(&s)
	if !s.AuthRequired || !s.SignedIn || s.Principal == nil || s.Principal.Subject != "admin" || s.Principal.Via != "session" || s.Version != "v9" ||
		len(s.Workspaces) != 1 || s.Workspaces[0].ID != "team" || s.ExpiresAt == nil || s.IdleExpiresAt == nil {
		t.Errorf("session: %+v", s)
	}
	var me protocol.Me
	e.do("GET", "/me", "", browser(cookie)...).wants(http.StatusOK).into(&me)
	if me.Workspace != "team" || me.Via != "session" {
		t.Errorf("me: %+v", me)
	}
	if strings.Contains(e.log.String(), "ses_") && !strings.Contains(e.log.String(), "ses_***") {
		t.Error("the log has the value of a session")
	}
	r := e.do("DELETE", "/session", "", browser(cookie)...).wants(http.StatusNoContent)
	if got := r.header.Get("Set-Cookie"); !strings.HasPrefix(got, "everdict_session=;") || !strings.Contains(got, "Max-Age=0") {
		t.Errorf("signing out sets %q, want the cookie gone", got)
	}
	p := e.do("GET", "/me", "", browser(cookie)...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if p.Data["reason"] != "session" {
		t.Errorf("after signing out: %+v, want data.reason session", p)
	}
	e.do("GET", "/session", "", browser(cookie)...).wants(http.StatusOK).into(&s)
	if s.Reason != protocol.SessionRevoked {
		t.Errorf("session after signing out: %+v, want it revoked", s)
	}
	e.do("DELETE", "/session", "").wants(http.StatusNoContent)
}

// Nobody is a 200: the page asks before it knows anything.
func TestSessionOfNobody(t *testing.T) {
	t.Parallel()
	var s protocol.Session
	e := newSessionEnv(t, true)
	body := e.do("GET", "/session", "").wants(http.StatusOK)
	body.into(&s)
	if !s.AuthRequired || s.SignedIn || s.Principal != nil || s.Version == "" {
		t.Errorf("nobody: %s", body.body)
	}
	e.do("GET", "/session", "", "Authorization", "Bearer "+e.key).wants(http.StatusOK).into(&s)
	if !s.SignedIn || s.Principal.Via != "api-key" || s.ExpiresAt != nil {
		t.Errorf("with a key: %+v", s)
	}
	dev := newSessionEnv(t, false)
	s = protocol.Session{}
	dev.do("GET", "/session", "").wants(http.StatusOK).into(&s)
	if s.AuthRequired || !s.SignedIn || s.Principal.Subject != "dev" {
		t.Errorf("development mode: %+v", s)
	}
	// A cookie from before does no harm there.
	dev.do("GET", "/runs", "", browser("everdict_session=ses_gone")...).wants(http.StatusOK)
	cookie, _ := dev.signIn(dev.key)
	dev.do("GET", "/session", "", browser(cookie)...).wants(http.StatusOK).into(&s)
	if s.Principal.Subject != "admin" || s.Principal.Workspace != "team" {
		t.Errorf("a session in development mode: %+v, want the key's", s.Principal)
	}
}

// A session ends when it is idle, when its time is up, and with its key.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	reason := func(cookie string) string {
		var s protocol.Session
		e.do("GET", "/session", "", browser(cookie)...).wants(http.StatusOK).into(&s)
		return s.Reason
	}
	idle, _ := e.signIn(e.key)
	e.now.Advance(12 * time.Hour)
	if got := reason(idle); got != protocol.SessionExpired {
		t.Errorf("after 12 idle hours: %q, want it expired", got)
	}
	busy, _ := e.signIn(e.key)
	for range 15 { // of 11 hours: within the idle time each, 165 hours in all
		e.now.Advance(11 * time.Hour)
		e.do("GET", "/me", "", browser(busy)...).wants(http.StatusOK)
	}
	e.now.Advance(3 * time.Hour)
	if got := reason(busy); got != protocol.SessionExpired {
		t.Errorf("after 7 busy days: %q, want it expired", got)
	}
	var issued protocol.IssuedKey
	e.do("POST", "/keys", `{"scopes":["read"]}`, "Authorization", "Bearer "+e.key).wants(http.StatusCreated).into(&issued)
	reader, _ := e.signIn(issued.APIKey)
	e.do("GET", "/runs", "", browser(reader)...).wants(http.StatusOK)
	e.do("POST", "/runs", goodRun, browser(reader)...).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("DELETE", "/keys/"+issued.ID, "", "Authorization", "Bearer "+e.key).wants(http.StatusNoContent)
	e.do("GET", "/runs", "", browser(reader)...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	if got := reason(reader); got != protocol.SessionRevoked {
		t.Errorf("after its key was revoked: %q", got)
	}
}

// With a cookie, a request that another site's page makes is refused, whatever it asks;
// the header Authorization is nobody's but the program's that sets it.
func TestSessionCrossSite(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	cookie, _ := e.signIn(e.key)
	host := strings.TrimPrefix(e.url, "http://")
	for name, header := range map[string][]string{
		"cross-site":             {"Sec-Fetch-Site", "cross-site"},
		"another port or host":   {"Sec-Fetch-Site", "same-site"},
		"another origin":         {"Origin", "https://evil.example"},
		"an origin that is null": {"Origin", "null"},
	} {
		header = append(header, "Cookie", cookie)
		for _, request := range []string{"GET /runs", "POST /runs", "DELETE /session", "GET /events", "GET /me"} {
			method, path, _ := strings.Cut(request, " ")
			if r := e.do(method, path, "", header...); r.status != http.StatusForbidden {
				t.Errorf("%s, %s: status %d, want it refused", request, name, r.status)
			}
		}
		e.do("POST", "/session", `{"apiKey":"`+e.key+`"}`, header...).problem(http.StatusForbidden, protocol.CodeForbidden)
		e.do("GET", "/runs", "", append(header, "Authorization", "Bearer "+e.key)...).wants(http.StatusOK)
	}
	e.do("POST", "/runs", goodRun, "Cookie", cookie).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("GET", "/runs", "", "Cookie", cookie, "Connection", "Upgrade", "Upgrade", "websocket").problem(http.StatusForbidden, protocol.CodeForbidden)
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://" + host}} {
		e.do("POST", "/runs", goodRun, append(header, "Cookie", cookie)...).wants(http.StatusAccepted)
	}
	e.do("GET", "/runs", "", "Cookie", cookie).wants(http.StatusOK)
	e.do("POST", "/runs", goodRun, "Cookie", cookie, "Origin", "https://everdict.example", "X-Forwarded-Host", "everdict.example").wants(http.StatusAccepted)
}

func TestAuthorizationWinsOverSession(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	cookie, _ := e.signIn(e.key)
	e.do("GET", "/me", "", append(browser(cookie), "Authorization", "Bearer ak_"+strings.Repeat("x", 32))...).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	// A proxy's own login is none of ours.
	e.do("GET", "/me", "", append(browser(cookie), "Authorization", "Basic YTpi")...).wants(http.StatusOK)
}

func TestWrongKeysAreSlowedDown(t *testing.T) {
	t.Parallel()
	e := newSessionEnv(t, true)
	wrong := `{"apiKey":"ak_` + strings.Repeat("w", 32) + `"}`
	for range 10 {
		e.do("POST", "/session", wrong).problem(http.StatusUnauthorized, protocol.CodeUnauthenticated)
	}
	r := e.do("POST", "/session", `{"apiKey":"`+e.key+`"}`)
	r.problem(http.StatusTooManyRequests, protocol.CodeRateLimited)
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 6 {
		t.Errorf("Retry-After %q, want 1 to 6 seconds", r.header.Get("Retry-After"))
	}
	// Others, whom the proxy on this machine names, are not held up.
	e.do("POST", "/session", `{"apiKey":"`+e.key+`"}`, "X-Forwarded-For", "192.0.2.7").wants(http.StatusOK)
	e.now.Advance(time.Duration(wait) * time.Second)
	e.signIn(e.key)
	e.do("POST", "/session", `{}`).problem(http.StatusBadRequest, protocol.CodeBadRequest)
}
