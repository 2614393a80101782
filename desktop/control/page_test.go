package control

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeApp has a state and counts the pauses.
type fakeApp struct {
	App // what is not here is not called
	mu  sync.Mutex
	n   int
	rev int64
	ch  chan struct{}
}

func newFakeApp() *fakeApp { return &fakeApp{rev: 1, ch: make(chan struct{})} }

func (f *fakeApp) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return State{Rev: f.rev, Connections: []Connection{}}
}

func (f *fakeApp) Changed(rev int64) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rev > rev {
		c := make(chan struct{})
		close(c)
		return c
	}
	return f.ch
}

func (f *fakeApp) Pause(context.Context, PauseRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.rev++
	close(f.ch)
	f.ch = make(chan struct{})
	return nil
}

func (f *fakeApp) pauses() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// win is a window: a browser with cookies that has come in.
type win struct {
	t      *testing.T
	client *http.Client
	base   string // http://127.0.0.1:PORT/w/SECRET
	origin string
}

func openWindow(t *testing.T, p *Page) *win {
	t.Helper()
	address, err := p.URL()
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &win{t: t, client: &http.Client{Jar: jar}}
	t.Cleanup(w.client.CloseIdleConnections)
	res, err := w.client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the window came in with %d", res.StatusCode)
	}
	w.base = strings.TrimSuffix(res.Request.URL.String(), "/")
	w.origin = "http://" + res.Request.URL.Host
	return w
}

// ask sends a request with headers; "Host" and "Cookie" included.
func (w *win) ask(method, address, body string, header ...string) int {
	w.t.Helper()
	r, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	res, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.Header.Get("Access-Control-Allow-Origin") != "" {
		w.t.Errorf("%s %s: another origin is allowed to read", method, address)
	}
	return res.StatusCode
}

func newPage(t *testing.T, a App) *Page {
	t.Helper()
	p := NewPage(a, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) }), slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Each way of another page, or of another program without the token, to reach the app by its port (F39).
func TestF39_OnlyThePageIsLetIn(t *testing.T) {
	t.Parallel()
	a := newFakeApp()
	w := openWindow(t, newPage(t, a))
	pause := w.base + "/api/pause"
	json := []string{"Content-Type", "application/json"}
	with := func(h ...string) []string { return append(append([]string{}, json...), h...) }
	for _, c := range []struct {
		name         string
		method, url  string
		header       []string
		want         int
		withoutToken bool
	}{
		{"another host name", "POST", pause, with("Host", "evil.example"), 403, false},
		{"a name that resolves to this machine", "POST", pause, with("Host", "rebound.example:80"), 403, false},
		{"localhost", "GET", w.base + "/api/state", []string{"Host", "localhost"}, 403, false},
		{"another port", "GET", w.base + "/api/state", []string{"Host", "127.0.0.1:1"}, 403, false},
		{"another origin", "POST", pause, with("Origin", "https://evil.example"), 403, false},
		{"an opaque origin", "POST", pause, with("Origin", "null"), 403, false},
		{"another server of this machine", "POST", pause, with("Origin", "http://127.0.0.1:1"), 403, false},
		{"another site", "GET", w.base + "/api/state", []string{"Sec-Fetch-Site", "cross-site"}, 403, false},
		{"the same site, which is each port", "POST", pause, with("Sec-Fetch-Site", "same-site"), 403, false},
		{"an address that somebody typed", "POST", pause, with("Sec-Fetch-Site", "none"), 403, false},
		{"a form", "POST", pause, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, false},
		{"plain text", "POST", pause, []string{"Content-Type", "text/plain"}, 415, false},
		{"no type", "POST", pause, nil, 415, false},
		{"no cookie", "POST", pause, json, 403, true},
		{"no cookie, the page itself", "GET", w.base + "/", nil, 403, true},
		{"a guessed path", "GET", w.origin + "/w/x/api/state", nil, 403, false},
		{"no path", "GET", w.origin + "/api/state", nil, 403, false},
		{"a preflight", "OPTIONS", pause, with("Origin", "https://evil.example", "Access-Control-Request-Method", "POST"), 403, false},
		{"a change by GET", "GET", pause, nil, 404, false},
		{"what only the socket has", "POST", w.base + "/api/open", json, 404, false},
		{"a key that is not there", "POST", pause, json, 400, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := *w
			if c.withoutToken {
				who.client = &http.Client{}
			}
			body := "{}"
			if c.want == 400 {
				body = `{"connexion":"x"}`
			}
			if c.method == "GET" {
				body = ""
			}
			if got := who.ask(c.method, c.url, body, c.header...); got != c.want && !(c.want == 404 && got == 405) {
				t.Errorf("%s %s %v: %d, want %d", c.method, c.url, c.header, got, c.want)
			}
		})
	}
	if n := a.pauses(); n != 0 {
		t.Fatalf("%d of them have paused the app", n)
	}
	if got := w.ask("POST", pause, "{}", with("Origin", w.origin, "Sec-Fetch-Site", "same-origin")...); got != 200 || a.pauses() != 1 {
		t.Errorf("the page itself: %d, %d pauses; want 200 and 1", got, a.pauses())
	}
}

// A token is good once and for a minute.
func TestF39_TokenIsGoodOnce(t *testing.T) {
	t.Parallel()
	p := newPage(t, newFakeApp())
	var mu sync.Mutex
	now := time.Now()
	p.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	address, err := p.URL()
	if err != nil {
		t.Fatal(err)
	}
	noRedirect := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer noRedirect.CloseIdleConnections()
	get := func(address string) *http.Response {
		t.Helper()
		res, err := noRedirect.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	res := get(address)
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		t.Fatalf("the first time: %d, %d cookies", res.StatusCode, len(res.Cookies()))
	}
	c := res.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(c.Path, "/w/") || len(c.Path) < 20 {
		t.Errorf("the cookie is %+v", c)
	}
	if strings.Contains(res.Header.Get("Location"), "token") {
		t.Errorf("the token goes on to %s", res.Header.Get("Location"))
	}
	if res := get(address); res.StatusCode != http.StatusForbidden {
		t.Errorf("the second time: %d", res.StatusCode)
	}
	if address, err = p.URL(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	now = now.Add(tokenLife + time.Nanosecond)
	mu.Unlock()
	if res := get(address); res.StatusCode != http.StatusForbidden {
		t.Errorf("after a minute: %d", res.StatusCode)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if res := get("http://" + u.Host + "/open?token="); res.StatusCode != http.StatusForbidden {
		t.Errorf("an empty token: %d", res.StatusCode)
	}
}

// The port is open while a window is, and a moment longer.
func TestPortIsOpenWhileAWindowIs(t *testing.T) {
	t.Parallel()
	a := newFakeApp()
	p := newPage(t, a)
	p.linger = 20 * time.Millisecond
	w := openWindow(t, p)
	res, err := w.client.Get(w.base + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(res.Body)
	next := func() string {
		t.Helper()
		for {
			line, err := events.ReadString('\n')
			if err != nil {
				t.Fatalf("the events have ended: %v", err)
			}
			if strings.HasPrefix(line, "data: ") {
				return line
			}
		}
	}
	next()
	if p.Windows() != 1 {
		t.Errorf("%d windows, want 1", p.Windows())
	}
	// The token's minute is over: only the window holds the port.
	p.mu.Lock()
	p.open.until = time.Now()
	p.mu.Unlock()
	p.open.expire()
	if got := w.ask("POST", w.base+"/api/pause", "{}", "Content-Type", "application/json"); got != 200 {
		t.Fatalf("with a window open: %d", got)
	}
	if line := next(); !strings.Contains(line, `"rev":2`) {
		t.Errorf("after a change the event is %s", line)
	}
	res.Body.Close()
	deadline := time.After(30 * time.Second)
	for closed := false; !closed; {
		p.mu.Lock()
		closed = p.open == nil
		p.mu.Unlock()
		select {
		case <-deadline:
			t.Fatal("the port is open without a window")
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := w.client.Get(w.base + "/"); err == nil {
		t.Error("somebody answers at the port")
	}
	w2 := openWindow(t, p)
	if w2.base == w.base {
		t.Error("the next window has the same address")
	}
}

// slowTail is a log in pieces.
type slowTail struct{ pieces [][]byte }

func (s *slowTail) Read(_ context.Context, from int64) ([]byte, int64, error) {
	if len(s.pieces) == 0 {
		return nil, from, io.EOF
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return p, from, nil
}

type logApp struct {
	*fakeApp
	tail LogTail
}

func (l *logApp) Log(string, int64) (LogTail, error) { return l.tail, nil }

// A character that came in two pieces is one, and bytes that are none are shown as such.
func TestLogIsText(t *testing.T) {
	t.Parallel()
	a := &logApp{newFakeApp(), &slowTail{[][]byte{[]byte("a\xe2\x82"), []byte("\xacb"), []byte("\xff\n"), []byte("\xf0\x9f")}}}
	w := openWindow(t, newPage(t, a))
	res, err := w.client.Get(w.base + "/api/jobs/run_1/1/log")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := "event: log\ndata: {\"text\":\"a\"}\n\nevent: log\ndata: {\"text\":\"€b\"}\n\nevent: log\ndata: {\"text\":\"\\ufffd\\n\"}\n\nevent: end\ndata: {}\n\n"
	if got := strings.ReplaceAll(string(b), "\ufffd", `\ufffd`); got != want {
		t.Errorf("the events are\n%q\nwant\n%q", got, want)
	}
}
