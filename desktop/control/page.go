package control

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/everdict/everdict/desktop/peer"
)

const (
	// tokenLife is how long a window has to come with its token.
	tokenLife = time.Minute
	// linger is how long the port stays open after the last event stream has ended: a page that is loaded again comes back.
	linger = 15 * time.Second
	// cookieName of the page's session.
	cookieName = "everdict_desktop"
	// maxTokens bounds the tokens that wait: whoever can ask for one can also reach the socket.
	maxTokens = 16
)

// PagePolicy is the Content-Security-Policy of the page: its own scripts and styles, and nothing else. What is shown is
// written by jobs.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Page is the door for windows. The zero value cannot be used: see NewPage.
type Page struct {
	app    App
	assets http.Handler
	log    *slog.Logger
	linger time.Duration
	now    func() time.Time

	mu     sync.Mutex
	open   *door // nil: closed
	closed bool
}

// door is the port while it is open.
type door struct {
	page   *Page
	server *http.Server
	host   string // 127.0.0.1:PORT
	base   string // /w/SECRET
	cookie string
	done   chan struct{} // the server has ended

	// Guarded by Page.mu.
	tokens  map[string]time.Time // until when each is good
	streams int
	until   time.Time // without a stream it stays open until then
	timer   *time.Timer
}

// NewPage returns a closed door. assets is served below the page's path, without it: GET / and GET /assets/... .
func NewPage(app App, assets http.Handler, log *slog.Logger) *Page {
	return &Page{app: app, assets: assets, log: log, linger: linger, now: time.Now}
}

// URL opens the door, if it is closed, and returns where one window comes in: once, within a minute.
func (p *Page) URL() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", errors.New("control: the app is ending")
	}
	if p.open == nil {
		d, err := p.listen()
		if err != nil {
			return "", err
		}
		p.open = d
	}
	d, now := p.open, p.now()
	for token, until := range d.tokens {
		if now.After(until) {
			delete(d.tokens, token)
		}
	}
	if len(d.tokens) >= maxTokens {
		return "", errors.New("control: too many windows were asked for at once: wait a minute")
	}
	token := random(24)
	d.tokens[token] = now.Add(tokenLife)
	d.stay(tokenLife + p.linger)
	return "http://" + d.host + "/open?token=" + token, nil
}

// Windows is how many event streams of windows there are.
func (p *Page) Windows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return 0
	}
	return p.open.streams
}

// Close closes the door for good.
func (p *Page) Close() error {
	p.mu.Lock()
	p.closed = true
	d := p.open
	p.open = nil
	p.mu.Unlock()
	if d == nil {
		return nil
	}
	d.timer.Stop()
	return d.end()
}

func (p *Page) listen() (*door, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("control: open a port for the window: %w", err)
	}
	d := &door{page: p, host: l.Addr().String(), base: "/w/" + random(16), cookie: random(32), done: make(chan struct{}), tokens: map[string]time.Time{}}
	d.timer = time.AfterFunc(time.Hour, d.expire)
	d.timer.Stop()
	d.server = &http.Server{Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() {
		defer close(d.done)
		if err := d.server.Serve(peer.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("the window's port has ended", "err", err)
		}
	}()
	return d, nil
}

func (d *door) end() error {
	err := d.server.Close()
	<-d.done
	return err
}

// stay keeps the door open for so long, at the least. Page.mu is held.
func (d *door) stay(long time.Duration) {
	if until := d.page.now().Add(long); until.After(d.until) {
		d.until = until
	}
	d.timer.Reset(d.until.Sub(d.page.now()))
}

// watched counts an event stream that begins (1) or ends (-1).
func (d *door) watched(n int) {
	d.page.mu.Lock()
	defer d.page.mu.Unlock()
	d.streams += n
	d.stay(d.page.linger)
}

// expire closes the door when nobody is there and nobody is expected.
func (d *door) expire() {
	p := d.page
	p.mu.Lock()
	if p.open != d || d.streams > 0 {
		p.mu.Unlock()
		return
	}
	if wait := d.until.Sub(p.now()); wait > 0 {
		d.timer.Reset(wait)
		p.mu.Unlock()
		return
	}
	p.open = nil
	p.mu.Unlock()
	_ = d.end()
}

func (d *door) handler() http.Handler {
	mux := http.NewServeMux()
	inside := http.NewServeMux()
	inside.Handle("/api/", api(d.page.app, d.watched, false))
	inside.Handle("/", getOnly(d.page.assets))
	mux.Handle(d.base+"/", http.StripPrefix(d.base, d.guard(inside)))
	mux.HandleFunc("GET /open", d.enter)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", PagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		// A name that resolves to this machine is not this machine's name: DNS rebinding ends here.
		if r.Host != d.host || !d.sameOrigin(r) {
			refuse(w)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// sameOrigin says whether a request is not of another site, as far as the browser tells. "none" is a person who typed or
// opened the address; that changes nothing.
func (d *door) sameOrigin(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+d.host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
		return true
	case "none":
		return r.Method == http.MethodGet
	}
	return false
}

// enter trades a token for the cookie.
func (d *door) enter(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	d.page.mu.Lock()
	until, ok := d.tokens[token]
	delete(d.tokens, token)
	d.page.mu.Unlock()
	if !ok || d.page.now().After(until) {
		refuse(w)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: d.cookie, Path: d.base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, d.base+"/", http.StatusSeeOther)
}

// guard lets those in who have the cookie.
func (d *door) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie(cookieName)
		if err != nil || subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.cookie)) != 1 {
			refuse(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func getOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuse(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse says nothing about why.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "This page is opened from the Everdict app.", http.StatusForbidden)
}

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}
