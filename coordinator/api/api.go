// Package api serves the coordinator's HTTP API: one file per noun, each with
// its routes, from which both the handlers and the OpenAPI document are made.
//
// Every answer is flat JSON; every error, from a route that does not exist to a
// panic, is a protocol.Problem. What a run is and does lies behind Runs; what is
// mounted beside the API, such as the runners' websocket, comes in through
// Config.Mount.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/protocol"
)

// Config of a Server. Auth, Runs, Harnesses, Runtimes, Runners, Pairings, Secrets and
// Keys are required.
type Config struct {
	Auth *auth.Authenticator
	Keys *auth.Keys
	// Sessions may be nil: then nobody can sign in with a browser.
	Sessions  *auth.Sessions
	Runs      Runs
	Harnesses *registry.Registry
	Runtimes  *registry.Runtimes
	Runners   *pairing.Runners
	Pairings  *pairing.Pairings
	Secrets   *secret.Vault

	// Ready is asked by /readyz whether work can be accepted; nil: always.
	Ready func(context.Context) error
	// Gauges are numbers beside the API's own at /metrics.
	Gauges []Gauges
	// Mount serves further patterns of http.ServeMux. Such a handler
	// authenticates by itself; panics, metrics, request ids and the log are
	// taken care of.
	Mount map[string]http.Handler

	// Version of the coordinator, shown in the OpenAPI document.
	Version string
	// BeatEvery is how long an event stream stays silent before it sends a
	// comment that keeps proxies from closing it. Default 15 s.
	BeatEvery time.Duration
	// SlowAfter is how long a request that is not a stream may take before it
	// is logged as slow. Default 1 s.
	SlowAfter time.Duration
	// Log; nil: slog.Default.
	Log *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Server is the HTTP API. It has no goroutines of its own.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	unrouted http.Handler
	metrics  *metrics
	ids      *requestIDs
	// throttle is for wrong API keys, nonces for those that ask for nonces.
	throttle, nonces *auth.Throttle[netip.Prefix]
	// documents are made when somebody first reads them: it takes as long as
	// the rest of a coordinator's start.
	documents func() (*documents, error)
}

// New makes a Server. An error means that the configuration is not whole.
func New(cfg Config) (*Server, error) {
	if cfg.Auth == nil || cfg.Keys == nil || cfg.Runs == nil || cfg.Harnesses == nil || cfg.Runtimes == nil || cfg.Runners == nil || cfg.Pairings == nil || cfg.Secrets == nil {
		return nil, errors.New("api: Auth, Keys, Runs, Harnesses, Runtimes, Runners, Pairings and Secrets are required")
	}
	cfg.BeatEvery = cmp.Or(cfg.BeatEvery, 15*time.Second)
	cfg.SlowAfter = cmp.Or(cfg.SlowAfter, time.Second)
	cfg.Version = cmp.Or(cfg.Version, "dev")
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), ids: newRequestIDs(), throttle: auth.NewThrottle[netip.Prefix](auth.WrongKeys(cfg.Now)),
		nonces: auth.NewThrottle[netip.Prefix](manyNonces(cfg.Now))}
	var err error
	if s.metrics, err = newMetrics(cfg.Gauges); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	routes := s.routes()
	s.documents = sync.OnceValues(func() (*documents, error) { return newDocuments(routes, cfg.Version) })
	for _, rt := range routes {
		s.mux.Handle(rt.method+" "+rt.path, s.serve(rt))
	}
	for pattern, handler := range cfg.Mount {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "", pattern
		}
		s.mux.Handle(pattern, s.serve(route{method: method, path: path, public: true, handle: func(_ *Server, c *call) error {
			handler.ServeHTTP(&c.w, c.r)
			return nil
		}}))
	}
	s.unrouted = s.serve(route{path: "other", public: true, media: mediaJSON, handle: (*Server).notFound})
	s.mux.Handle("/", s.unrouted)
	return s, nil
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// ServeMux would answer an unclean path with a redirect in HTML, and a
	// client would repeat a POST as a GET.
	if unclean(r.URL.Path) {
		s.unrouted.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func unclean(p string) bool {
	return !strings.HasPrefix(p, "/") || strings.Contains(p, "//") || strings.Contains(p, "/.") && path.Clean(p) != strings.TrimSuffix(p, "/")
}

// serve wraps a route with what all have in common.
func (s *Server) serve(rt route) http.Handler {
	observe := s.metrics.route(rt)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		c := &call{s: s, w: response{ResponseWriter: w}, r: r, requestID: s.ids.of(r)}
		header := w.Header()
		header["X-Request-Id"] = []string{c.requestID}
		header["X-Content-Type-Options"] = noSniff
		err := s.run(rt, c)
		took := time.Since(start)
		observe(c.w.status, took)
		s.log(rt, c, took, err)
		if errors.Is(err, http.ErrAbortHandler) {
			// The client must see that the answer is not whole.
			panic(http.ErrAbortHandler)
		}
	})
}

// run answers a request, whatever happens, and returns what to log.
func (s *Server) run(rt route, c *call) (logged error) {
	defer func() {
		recovered := recover()
		if recovered == nil {
			return
		}
		if recovered == http.ErrAbortHandler {
			logged = http.ErrAbortHandler
			return
		}
		err := &panicError{value: recovered, stack: debug.Stack()}
		logged = c.fail(err)
		if c.w.status != http.StatusInternalServerError {
			logged = errors.Join(logged, http.ErrAbortHandler)
		}
	}()
	err := s.authorize(rt, c)
	if err == nil {
		err = rt.handle(s, c)
	}
	if err == nil {
		return nil
	}
	begun := c.w.status != 0
	logged = c.fail(err)
	if begun {
		logged = errors.Join(err, http.ErrAbortHandler)
	}
	return logged
}

func (s *Server) authorize(rt route, c *call) (err error) {
	if rt.public {
		return auth.RefuseQueryCredentials(c.r.URL)
	}
	if rt.operator {
		c.principal, err = s.cfg.Auth.Operator(c.r)
		return err
	}
	if c.principal, err = s.cfg.Auth.Authenticate(c.r); err != nil {
		return err
	}
	if rt.permit == "" {
		return nil
	}
	return c.principal.Permits(rt.permit)
}

// panicError is a panic of a handler, with where it came from.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// log writes one line per request: failures of ours and slow requests as
// warnings, all else for debugging. Of the URL it says the route and the path,
// never the query, and credentials in a path are masked (F48).
func (s *Server) log(rt route, c *call, took time.Duration, err error) {
	level := slog.LevelDebug
	slow := took > s.cfg.SlowAfter && rt.media == mediaJSON
	if c.w.status >= http.StatusInternalServerError || slow || err != nil {
		level = slog.LevelWarn
	}
	if !s.cfg.Log.Enabled(c.r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request", c.requestID), slog.String("method", c.r.Method), slog.String("route", rt.path),
		slog.String("path", auth.Redact(protocol.Clip(c.r.URL.Path, 200))), slog.Int("status", c.w.status), slog.Duration("took", took),
	}
	if c.principal.Workspace != "" {
		attrs = append(attrs, slog.String("workspace", c.principal.Workspace), slog.String("subject", c.principal.Subject))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", auth.Redact(err.Error())))
	}
	s.cfg.Log.LogAttrs(c.r.Context(), level, "request", attrs...)
}
