package desktop

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/everdict/everdict/desktop/peer"
	"github.com/everdict/everdict/protocol"
)

// callback is where the browser brings the grant of an approval (RFC 8252): a port of this machine alone, open while one
// pairing waits, for one request. The browser also begins there, and is sent on to the page of the approval: whoever reads
// the address of that page could approve first, and the arguments of a browser are everybody's to read.
type callback struct {
	port    int
	state   string
	request func() string // the id of the pairing at the coordinator, once it is known
	page    func() string // the page of the approval, once it is known
	granted chan<- string
	server  *http.Server
	done    chan struct{}
	turn    chan struct{}
	used    bool // guarded by turn
}

// listenForGrant opens the port. The grant comes through granted, which has room for one. However many come with something
// wrong, the port stays open: the state cannot be guessed, and any page could close the port otherwise.
func listenForGrant(state string, request, page func() string, granted chan<- string) (*callback, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the browser's answer: %w", err)
	}
	c := &callback{port: l.Addr().(*net.TCPAddr).Port, state: state, request: request, page: page, granted: granted, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10}
	c.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(c.done)
		_ = c.server.Serve(peer.Listener(l)) // it ends with close, and the deep link is there besides
	}()
	return c, nil
}

// start is the address at which the browser begins.
func (c *callback) start() string { return fmt.Sprintf("http://127.0.0.1:%d/start", c.port) }

// close closes the port when what it answers now is answered.
func (c *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := c.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = c.server.Close()
	}
	<-c.done
}

// ServeHTTP implements http.Handler.
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	status, text := c.take(r)
	h := w.Header()
	if status == http.StatusSeeOther {
		h.Set("Location", text)
		text = "The page of the coordinator is opened."
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// An error means that the browser is gone.
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Everdict</title>`+
		`<body style="font:16px system-ui,sans-serif;max-width:32rem;margin:20vh auto;padding:0 1rem;text-align:center"><h1 style="font-size:1.25rem">%s</h1>`+
		`<p>You can close this page.</p>`, html.EscapeString(text))
}

// take looks at a request; text is where the browser goes, for a StatusSeeOther. The browser comes by a redirect of the coordinator's page: an image, a frame or a script of
// another page does not count, and neither does one who has not been told the state.
func (c *callback) take(r *http.Request) (status int, text string) {
	const no = "This address is not for you."
	q := r.URL.Query()
	dest := r.Header.Get("Sec-Fetch-Dest")
	switch {
	case r.Host != fmt.Sprintf("127.0.0.1:%d", c.port):
		return http.StatusForbidden, no
	case r.Method != http.MethodGet:
		return http.StatusForbidden, no
	case r.URL.Path != "/callback" && r.URL.Path != "/start":
		return http.StatusNotFound, no
	case r.Header.Get("Origin") != "", dest != "" && dest != "document":
		return http.StatusForbidden, no
	case r.URL.Path == "/start" && c.page() == "":
		return http.StatusNotFound, "Nothing waits for an approval."
	case r.URL.Path == "/start":
		return http.StatusSeeOther, c.page()
	case len(q["state"]) != 1 || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(c.state)) != 1:
		return http.StatusForbidden, "This is not the answer that the app waits for."
	case c.used:
		return http.StatusGone, "This answer was brought already."
	case q.Get("pairing") != c.request() || len(q["grant"]) != 1 || !grantLike(q.Get("grant")):
		return http.StatusBadRequest, "The coordinator's answer cannot be understood."
	}
	c.used = true
	select {
	case c.granted <- q.Get("grant"):
	default: // it came by a deep link already
	}
	return http.StatusOK, "This computer is being connected. The app shows how it goes on."
}

// grantLike says whether s looks like a grant: what is none is not kept and not sent.
func grantLike(s string) bool {
	rest, ok := strings.CutPrefix(s, protocol.PairGrantPrefix)
	return ok && len(rest) <= 64 && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
