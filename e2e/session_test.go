package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// browser is a client with cookies that says where its requests come from, as pages of
// the coordinator do, behind a proxy that ends TLS.
type browser struct {
	t      *testing.T
	base   string
	client *http.Client
}

// newBrowser starts a reverse proxy in front of a house and a browser that knows its
// certificate.
func newBrowser(t *testing.T, h *house.House) *browser {
	t.Helper()
	target, err := url.Parse(h.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewTLSServer(proxy)
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	client.Jar = jar
	return &browser{t, server.URL, client}
}

func (b *browser) request(method, path, body string, header ...string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// ask is a request whose answer is read whole, into v if that is not nil.
func (b *browser) ask(status int, v any, method, path, body string, header ...string) http.Header {
	b.t.Helper()
	res := b.request(method, path, body, header...)
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		b.t.Fatalf("%s %s: status %d, %v, want %d: %s", method, path, res.StatusCode, err, status, text)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			b.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return res.Header
}

// feed reads an event stream up to an event of a kind, and returns its id and data.
func feed(t *testing.T, stream *bufio.Reader, kind string) (id, data string) {
	t.Helper()
	name := ""
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended before %s: %v", kind, err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name == kind {
				return id, data
			}
			name = ""
		}
	}
}

// TestSession: somebody opens the page through a proxy, signs in, watches the
// workspace, stays signed in over a restart, and is out when their key is revoked.
func TestSession(t *testing.T) {
	t.Parallel()
	h := house.New(t, func(c *coordinator.Config) {
		c.RequireAuth, c.Proxies = true, auth.Proxies{netip.MustParsePrefix("127.0.0.0/8")}
	})
	key := h.Key()
	b := newBrowser(t, h)

	page := b.ask(200, nil, "GET", "/", "", "Accept", "text/html")
	if policy := page.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe-inline") {
		t.Errorf("the page's policy is %q", policy)
	}
	var about map[string]string
	b.ask(200, &about, "GET", "/", "", "Accept", "application/json")
	if about["openapi"] != "/openapi.json" {
		t.Errorf("a program that asks for / learns %v", about)
	}
	var s protocol.Session
	b.ask(200, &s, "GET", "/session", "")
	if !s.AuthRequired || s.SignedIn {
		t.Errorf("before signing in: %+v", s)
	}
	b.ask(401, nil, "GET", "/runs", "")
	// A key of one's own, which can be revoked.
	var own protocol.IssuedKey
	b.ask(201, &own, "POST", "/keys", `{"scopes":["write"]}`, "Authorization", "Bearer "+key)
	header := b.ask(200, &s, "POST", "/session", `{"apiKey":"`+own.APIKey+`"}`)
	if cookie := header.Get("Set-Cookie"); !strings.HasPrefix(cookie, "__Host-everdict_session=") || !strings.Contains(cookie, "Secure") || !strings.Contains(cookie, "HttpOnly") {
		t.Errorf("the cookie behind TLS: %q", cookie)
	}
	b.ask(200, nil, "GET", "/summary", "")
	b.ask(403, nil, "POST", "/runs", "{}", "Sec-Fetch-Site", "cross-site")
	b.ask(403, nil, "GET", "/events", "", "Sec-Fetch-Site", "same-site")

	watch := func(after string) *bufio.Reader {
		res := b.request("GET", "/events", "", "Last-Event-ID", after)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("events: status %d", res.StatusCode)
		}
		return bufio.NewReader(res.Body)
	}
	stream := watch("")
	feed(t, stream, protocol.FeedHello)
	const request = `{"harness":{"id":"scripted"},"case":{"id":"c1","env":{"kind":"prompt"},"task":"say done","approval":"before-start"},"runtime":"self"}`
	b.ask(201, nil, "POST", "/runtimes", `{"kind":"local","id":"lab","version":"1"}`)
	var run protocol.SubmittedRun
	b.ask(202, &run, "POST", "/runs", strings.Replace(request, `"self"`, `"lab"`, 1))
	id, data := feed(t, stream, protocol.FeedRuns)
	if !strings.Contains(data, run.RunID) || !strings.Contains(data, `"status":"suspended"`) {
		t.Errorf("the stream says %s", data)
	}
	b.ask(200, nil, "POST", "/runs/"+run.RunID+"/cancel", "")
	if _, data = feed(t, watch(id), protocol.FeedRuns); !strings.Contains(data, `"status":"failed"`) {
		t.Errorf("resumed behind the submission, the stream says %s", data)
	}
	var again protocol.SubmittedRun
	b.ask(202, &again, "POST", "/runs/"+run.RunID+"/retry", "")

	h.Stop()
	h.Start()
	b.ask(200, &s, "GET", "/session", "")
	if !s.SignedIn {
		t.Errorf("after a restart: %+v, want to be signed in", s)
	}
	restarted := watch(id)
	if _, data = feed(t, restarted, protocol.FeedReset); !strings.Contains(data, protocol.ResetRestart) {
		t.Errorf("after a restart the stream says %s", data)
	}
	var sum protocol.Summary
	b.ask(200, &sum, "GET", "/summary", "")
	if sum.Day.Cancelled != 1 || sum.Runs.Suspended != 1 || len(sum.Waiting) != 1 || sum.Waiting[0].Why != "parked" {
		t.Errorf("summary %+v", sum)
	}

	b.ask(204, nil, "DELETE", "/keys/"+own.ID, "", "Authorization", "Bearer "+key)
	b.ask(401, nil, "GET", "/runs", "")
	s = protocol.Session{}
	b.ask(200, &s, "GET", "/session", "")
	if s.SignedIn || s.Reason != protocol.SessionRevoked {
		t.Errorf("after the key was revoked: %+v", s)
	}
	feed(t, restarted, protocol.FeedEnd)
}
