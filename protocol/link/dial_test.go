package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A credential is in the Authorization header and nowhere else; a request with a query is refused outright, whatever
// the query is called, and the answer does not repeat it.
func TestF48_TokenNeverInTheURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, query := range []string{"?token=" + string(testToken), "?access_token=x", "?x=" + string(testToken), "?", "?%zz"} {
		req, err := http.NewRequest(http.MethodGet, b.server.URL+Path, nil)
		noErr(t, "request", err)
		req.URL.RawQuery = strings.TrimPrefix(query, "?")
		req.URL.ForceQuery = query == "?"
		req.Header.Set("Authorization", "Bearer "+string(testToken))
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		req.Header.Set("Sec-WebSocket-Version", "13")
		req.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
		req.Header.Set("Sec-WebSocket-Protocol", Subprotocol)
		resp, err := http.DefaultTransport.RoundTrip(req)
		noErr(t, "round trip", err)
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "query_refused") {
			t.Errorf("query %q: got %d %s, want 400 query_refused", query, resp.StatusCode, body)
		}
		if strings.Contains(string(body), string(testToken)) {
			t.Errorf("query %q: the answer repeats the credential: %s", query, body)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	for _, u := range []string{"http://h/?token=x", "http://rnr_x@h/", "http://h/#rnr_x", "http://h/?", "ftp://h/", "http:///x", "http://h/\x7frnr_x"} {
		cfg := b.config(&runner{})
		cfg.URL = u
		_, err := Dial(t.Context(), cfg)
		var ce *ConfigError
		if !errors.As(err, &ce) {
			t.Errorf("dial %q: got %v, want a *ConfigError", u, err)
		} else if strings.Contains(err.Error(), "rnr_x") {
			t.Errorf("dial %q: the error repeats the URL: %v", u, err)
		}
	}
}

// The request line and the headers as a proxy sees them.
func TestF48_RequestAsAProxyLogsIt(t *testing.T) {
	t.Parallel()
	var line, auth atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line.Store(r.Method + " " + r.RequestURI)
		auth.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	cfg := DialConfig{URL: server.URL + "/prefix/", Credential: testToken, Handler: &runner{}, Hello: func() Hello { return Hello{} }}
	_, err := Dial(t.Context(), cfg)
	var he *HTTPError
	if !errors.As(err, &he) || he.Status != 503 || Terminal(err) {
		t.Fatalf("dial: got %v, want a retryable HTTP 503", err)
	}
	if strings.Contains(err.Error(), string(testToken)) {
		t.Errorf("the error holds the credential: %v", err)
	}
	if got := line.Load(); got != "GET /prefix"+Path {
		t.Errorf("request line: got %q", got)
	}
	if got := auth.Load(); got != "Bearer "+string(testToken) {
		t.Errorf("Authorization: got %q", got)
	}
	if s := fmt.Sprintf("%v %+v %#v %+v", cfg.Credential, cfg.Credential, cfg.Credential, AttemptRef{Token: testToken}); strings.Contains(s, "rnr_test") {
		t.Errorf("a printed secret shows its value: %s", s)
	}
}

func TestF35_TerminalAnswersAreNotRetried(t *testing.T) {
	t.Parallel()
	problem := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, &RefusedError{Status: status, Code: code, Message: "because", MinVersion: "2.0.0"})
		}
	}
	as := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	for name, row := range map[string]struct {
		answer   http.HandlerFunc
		terminal bool
		is       func(error) bool
	}{
		"401 of a coordinator": {problem(401, "unauthorized"), true, as(new(*RevokedError))},
		"403 revoked":          {problem(403, "revoked"), true, as(new(*RevokedError))},
		"409 connected":        {problem(409, "already_connected"), true, as(new(*TakenOverError))},
		"426 too old":          {problem(426, "update_required"), true, as(new(*UpdateRequiredError))},
		"503 draining":         {problem(503, CodeDraining), false, as(new(*DrainingError))},
		"429":                  {problem(429, "slow_down"), false, as(new(*HTTPError))},
		"403 of a proxy": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>blocked", 403) },
			false, as(new(*HTTPError))},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://127.0.0.1:1/", 302) },
			false, as(new(*HTTPError))},
		"200": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, false, as(new(*HTTPError))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				row.answer(w, r)
			}))
			defer server.Close()
			cfg := DialConfig{URL: server.URL, Credential: testToken, Handler: &runner{}, Hello: func() Hello { return Hello{} }}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var seen error
			r := &Redialer{Dial: cfg, Min: time.Millisecond, Max: time.Millisecond, Lost: func(err error, _ time.Duration) {
				seen = err
				if requests.Load() >= 3 {
					cancel()
				}
			}}
			err := r.Run(ctx, func(context.Context, *RunnerSession) error { return nil })
			if row.terminal {
				if !row.is(err) || requests.Load() != 1 {
					t.Fatalf("got %v after %d requests, want a terminal error after one", err, requests.Load())
				}
				return
			}
			if !errors.Is(err, context.Canceled) || requests.Load() < 3 || !row.is(seen) {
				t.Fatalf("got %v (last %v) after %d requests, want retries", err, seen, requests.Load())
			}
		})
	}
}

// An authenticator that cannot answer must not make a runner believe that it is revoked.
func TestF35_BrokenAuthenticatorIsNotARevocation(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *AcceptConfig) {
		c.Authenticate = func(context.Context, *http.Request, Secret) (Principal, error) {
			return Principal{}, errors.New("database is away")
		}
	})
	_, err := Dial(t.Context(), b.config(&runner{}))
	var he *HTTPError
	if !errors.As(err, &he) || he.Status != 503 || he.RetryAfter != time.Second || Terminal(err) {
		t.Fatalf("dial: got %v, want a retryable 503 with Retry-After", err)
	}
	if strings.Contains(err.Error(), "database") {
		t.Errorf("the answer tells internals: %v", err)
	}
}

// A live session that is revoked, or taken over, ends the redial loop with that error.
func TestF35_CodedClosesReachTheRunner(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reason CloseReason
		is     func(error) bool
	}{
		"revoked":    {CloseReason{Code: CloseRevoked, Message: "by its owner"}, func(err error) bool { return errors.As(err, new(*RevokedError)) }},
		"taken over": {CloseReason{Code: CloseTakenOver, Message: "by host b"}, func(err error) bool { return errors.As(err, new(*TakenOverError)) }},
		"update": {CloseReason{Code: CloseUpdateRequired, MinVersion: "2.1.0"}, func(err error) bool {
			var u *UpdateRequiredError
			return errors.As(err, &u) && u.MinVersion == "2.1.0"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *AcceptConfig) { c.Timing.Write = 30 * time.Second })
			sessions, result := keep(t, b.config(&runner{}))
			next(t, "a session", sessions)
			begin := time.Now()
			b.c.last().Close(row.reason)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("close took %v", took)
			}
			if err := next(t, "the loop's end", result); !row.is(err) || !Terminal(err) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// The takeover rule is the Handler's: here the newer session wins, and the older runner stops instead of fighting.
func TestF52_TakeoverByANewerSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.c.hello = func(s *CoordinatorSession, _ Hello) (Welcome, error) {
		if old := b.c.last(); old != nil {
			go old.Close(CloseReason{Code: CloseTakenOver, Message: "by " + s.Hello().Hostname})
		}
		return Welcome{}, nil
	}
	first, result := keep(t, b.config(&runner{}))
	next(t, "the first session", first)
	cfg := b.config(&runner{})
	cfg.Hello = func() Hello { return Hello{Hostname: "host-b"} }
	second := b.dial(cfg)
	var taken *TakenOverError
	if err := next(t, "the first loop's end", result); !errors.As(err, &taken) || taken.Message != "by host-b" {
		t.Fatalf("first runner: got %v", err)
	}
	if second.Err() != nil {
		t.Fatalf("second runner: %v", second.Err())
	}
}

func TestOldRunnerIsToldToUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *AcceptConfig) { c.MinProtocol, c.MinVersion = Protocol+1, "9.0.0" })
	_, err := Dial(t.Context(), b.config(&runner{}))
	var u *UpdateRequiredError
	if !errors.As(err, &u) || u.MinProtocol != Protocol+1 || u.MinVersion != "9.0.0" || !Terminal(err) {
		t.Fatalf("dial: got %v", err)
	}
	if b.c.last() != nil {
		t.Fatal("the handler saw a hello of a runner that is too old")
	}
	until(t, "the session to be gone", func() bool { return b.acceptor.Sessions() == 0 })

	req, _ := http.NewRequest(http.MethodGet, b.server.URL+Path, nil)
	req.Header.Set("Sec-WebSocket-Protocol", "everdict.link.v0")
	resp, err := b.server.Client().Do(req)
	noErr(t, "request", err)
	var p problem
	err = json.NewDecoder(resp.Body).Decode(&p)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusUpgradeRequired || p.Code != "update_required" || p.Hint == "" {
		t.Fatalf("unknown subprotocol: got %d, %+v, %v; want 426 with a hint", resp.StatusCode, p, err)
	}
}

// A private CA from a file, through an authenticating HTTP proxy that only knows CONNECT.
func TestF37_PrivateCAThroughAnHTTPProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	secure := httptest.NewTLSServer(b.acceptor)
	defer secure.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	noErr(t, "write CA", os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	proxy, tunnels := connectProxy(t, "user:pass")

	cfg := b.config(&runner{})
	cfg.URL = secure.URL
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
	if _, err := Dial(t.Context(), cfg); err == nil {
		t.Fatal("dialled a server whose CA is unknown")
	}
	cfg.CAFile = ca
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	s := b.dial(cfg)
	b.c.jobs <- job("a", 100_000)
	o, err := s.Pull(t.Context(), PullRequest{Request: "r"})
	noErr(t, "pull", err)
	if len(o.Payload) < 100_000 || tunnels.Load() < 2 {
		t.Fatalf("job of %d bytes through %d tunnels", len(o.Payload), tunnels.Load())
	}
	s.Close(CloseReason{Code: CloseNormal})
	_ = s.Wait()

	cfg.CAFile = filepath.Join(t.TempDir(), "none.pem")
	if _, err := Dial(t.Context(), cfg); !Terminal(err) {
		t.Fatalf("missing CA file: got %v, want a terminal error", err)
	}
}

// connectProxy is an HTTP proxy that tunnels for whoever authenticates.
func connectProxy(t *testing.T, user string) (*url.URL, *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, "listen", err)
	var tunnels atomic.Int32
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	serve := func(in net.Conn) {
		defer in.Close()
		br := bufio.NewReader(in)
		req, err := http.ReadRequest(br)
		if err != nil || req.Method != http.MethodConnect || req.Header.Get("Proxy-Authorization") == "" {
			_, _ = io.WriteString(in, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
			return
		}
		out, err := net.Dial("tcp", req.Host)
		if err != nil {
			return
		}
		defer out.Close()
		mu.Lock()
		conns = append(conns, out)
		mu.Unlock()
		tunnels.Add(1)
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(out, br); _ = out.Close() })
		both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
		both.Wait()
	}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	u, err := url.Parse("http://" + user + "@" + ln.Addr().String())
	noErr(t, "proxy URL", err)
	return u, &tunnels
}
