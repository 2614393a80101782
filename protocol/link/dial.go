package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// DialConfig says how a runner reaches its coordinator. URL, Credential, Hello and Handler are required.
type DialConfig struct {
	// URL is the coordinator's address, http(s) or ws(s), with or without a path prefix. Path is appended. User
	// information, a query or a fragment in it is refused.
	URL string
	// Credential is asked for each connection. What it gives goes into the Authorization header and nowhere else.
	Credential Credential
	// Hello is called for each connection, so that it lists the leases held at that moment.
	Hello func() Hello
	// Handler gets what the coordinator says.
	Handler RunnerHandler
	// Streams are the handlers of streams that the coordinator opens, by kind. A kind without one is answered with
	// CodeUnsupported.
	Streams map[string]StreamHandler

	// TLS is used as it is, if set; CAFile (PEM) is added to its, or the system's, roots.
	TLS    *tls.Config
	CAFile string
	// Proxy defaults to http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// DialContext makes the TCP connection, by default a net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// UserAgent is sent with the upgrade.
	UserAgent string

	Timing Timing
	// Logger defaults to none.
	Logger *slog.Logger

	// now is time.Now, or a test's clock for noticing that the machine slept.
	now func() time.Time
}

// Dial connects, exchanges hello and welcome, and starts the session's goroutines. ctx bounds dialling only. The caller
// ends the session with Close and waits with Wait.
//
// Errors for which Terminal is true need a person; all others may be tried again (see Keep).
func Dial(ctx context.Context, cfg DialConfig) (*RunnerSession, error) {
	u, err := connectURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Hello == nil || cfg.Handler == nil {
		return nil, &ConfigError{"Hello and Handler are required"}
	}
	if err := cfg.Timing.Check(); err != nil {
		return nil, &ConfigError{err.Error()}
	}
	timing := cfg.Timing.withDefaults()
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	hello := cfg.Hello()
	hello.Protocol = Protocol
	if err := hello.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Handshake)
	defer cancel()

	secret, err := cfg.bearer(ctx, u)
	if err != nil {
		return nil, err
	}
	ws, raw, err := upgrade(ctx, u, cfg, secret)
	if err != nil {
		return nil, err
	}
	r := &RunnerSession{
		session: newSession(newWSConn(ws, raw), timing, log, runnerWrite),
		handler: cfg.Handler, serve: cfg.Streams, hello: hello,
		beatNow: make(chan struct{}, 1), pulls: map[string]*waitingPull{},
	}
	r.pacer = newPacer()
	if r.now = cfg.now; r.now == nil {
		r.now = time.Now
	}
	if err := r.start(true); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.mux.Close() })
	deadline, _ := ctx.Deadline()
	err = r.greet(deadline)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("link: hello: %w", ctx.Err())
		}
		r.cancel(err)
		r.drop()
		return nil, err
	}
	r.run()
	return r, nil
}

// connectURL returns the URL of the upgrade.
func connectURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", &ConfigError{"coordinator URL cannot be parsed"} // the error would repeat the URL
	}
	switch u.Scheme {
	case "http", "https", "ws", "wss":
	default:
		return "", &ConfigError{fmt.Sprintf("coordinator URL has scheme %q, want http or https", u.Scheme)}
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", &ConfigError{"coordinator URL must not have user information, query or fragment; credentials go into the Authorization header"}
	}
	if u.Host == "" {
		return "", &ConfigError{"coordinator URL has no host"}
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), Path) + Path
	return u.String(), nil
}

// upgrade makes the websocket and hands out the TCP connection below it, for its deadlines.
func upgrade(ctx context.Context, u string, cfg DialConfig, secret Secret) (*websocket.Conn, *timedConn, error) {
	tlsConfig, err := tlsConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	dial := cfg.DialContext
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	var mu sync.Mutex
	var raw *timedConn
	transport := &http.Transport{
		Proxy:           proxy,
		TLSClientConfig: tlsConfig,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			raw = &timedConn{Conn: c}
			return raw, nil
		},
		DisableKeepAlives: true,
	}
	header := http.Header{"Authorization": {"Bearer " + string(secret)}}
	if cfg.UserAgent != "" {
		header.Set("User-Agent", cfg.UserAgent)
	}
	ws, resp, err := websocket.Dial(ctx, u, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport, CheckRedirect: noRedirect},
		HTTPHeader:   header,
		Subprotocols: []string{Subprotocol},
	})
	if err != nil {
		transport.CloseIdleConnections()
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, nil, httpError(resp)
		}
		return nil, nil, fmt.Errorf("link: connect: %w", err)
	}
	if ws.Subprotocol() != Subprotocol {
		_ = ws.CloseNow()
		return nil, nil, &HTTPError{Status: http.StatusSwitchingProtocols, Message: "the other end does not speak " + Subprotocol}
	}
	mu.Lock()
	defer mu.Unlock()
	return ws, raw, nil
}

func tlsConfig(cfg DialConfig) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		c = cfg.TLS.Clone()
	}
	// Websockets need HTTP/1.1.
	c.NextProtos = []string{"http/1.1"}
	if cfg.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, &ConfigError{fmt.Sprintf("CA file: %v", err)}
	}
	if c.RootCAs != nil {
		c.RootCAs = c.RootCAs.Clone()
	} else if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		c.RootCAs = x509.NewCertPool()
	}
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, &ConfigError{fmt.Sprintf("CA file %s holds no certificate", cfg.CAFile)}
	}
	return c, nil
}

// problem is the body that a coordinator answers a refused upgrade with, the shape of every error of its API.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Data    struct {
		MinProtocol int    `json:"minProtocol,omitempty"`
		MinVersion  string `json:"minVersion,omitempty"`
	} `json:"data,omitzero"`
}

// httpError sorts an answer that is no upgrade. 401, 403 and 426 are terminal only with a coordinator's problem body:
// a proxy or a captive portal that says 403 must not make a machine give up its pairing. Nor is a nonce that is over:
// the coordinator may have been restarted since it gave it.
func httpError(resp *http.Response) error {
	var p problem
	if resp.Body != nil {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		if json.Unmarshal(b, &p) != nil {
			p = problem{}
		}
	}
	e := &HTTPError{Status: resp.StatusCode, Code: p.Code, Message: orElse(p.Message, http.StatusText(resp.StatusCode)),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	if p.Code == "" {
		return e
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if p.Code == CodeNonce {
			return e
		}
		return &RevokedError{Code: p.Code, Message: p.Message}
	case http.StatusUpgradeRequired:
		return &UpdateRequiredError{MinProtocol: p.Data.MinProtocol, MinVersion: p.Data.MinVersion, Message: p.Message}
	case http.StatusConflict:
		return &TakenOverError{Message: p.Message}
	case http.StatusServiceUnavailable:
		if p.Code == CodeDraining {
			return &DrainingError{RetryAfter: e.RetryAfter, Message: p.Message}
		}
	}
	return e
}

// retryAfter reads the header's form in seconds. A date is ignored: it would compare two machines' clocks.
func retryAfter(h string) time.Duration {
	n, err := strconv.ParseInt(h, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxDuration)
}
