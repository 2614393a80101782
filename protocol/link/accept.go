package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Principal is who a credential belongs to.
type Principal struct {
	// Runner is the runner's id.
	Runner string
	// Value is the authenticator's own, for the Handler.
	Value any
}

// RefusedError is how Authenticate refuses a connection before the upgrade: an HTTP answer with a problem body.
type RefusedError struct {
	// Status is 401 or 403 for a credential that is not good (the runner stops), 409 for a runner that is connected
	// already and stays so (stops), 426 for one that is too old (stops), 429 or 503 for later (retries).
	Status        int
	Code, Message string
	Hint          string
	RetryAfter    time.Duration
	MinVersion    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("link: refused: %d %s: %s", e.Status, e.Code, e.Message)
}

// AcceptConfig says how a coordinator takes runners in. Handler and Authenticate are required.
type AcceptConfig struct {
	Handler Handler
	// Authenticate says whose credential token is. A *RefusedError is sent as it is; any other error is answered with
	// 503, so that a database that is away does not tell a runner that it is revoked.
	Authenticate func(ctx context.Context, r *http.Request, token Secret) (Principal, error)
	// MinProtocol is the smallest protocol that is still served; smaller ones get update_required with MinVersion.
	MinProtocol int
	MinVersion  string
	// Version is this coordinator's version.
	Version string
	Timing  Timing
	// Logger defaults to none.
	Logger *slog.Logger
}

// Acceptor is the http.Handler of Path. It must see the request itself: a middleware that replaces the ResponseWriter
// has to support http.Hijacker or Unwrap.
type Acceptor struct {
	cfg    AcceptConfig
	timing Timing
	log    *slog.Logger

	mu       sync.Mutex
	sessions map[*CoordinatorSession]struct{}
	draining *CloseReason
	wg       sync.WaitGroup
}

// NewAcceptor checks the configuration.
func NewAcceptor(cfg AcceptConfig) (*Acceptor, error) {
	if cfg.Handler == nil || cfg.Authenticate == nil {
		return nil, errors.New("link: AcceptConfig needs Handler and Authenticate")
	}
	if err := cfg.Timing.Check(); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Acceptor{cfg: cfg, timing: cfg.Timing.withDefaults(), log: log, sessions: map[*CoordinatorSession]struct{}{}}, nil
}

// ServeHTTP upgrades the request and starts a session, or answers why not. It returns as soon as the session runs, which
// frees net/http's goroutine and buffers.
func (a *Acceptor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := a.Accept(w, r); err != nil {
		a.log.Info("runner not connected", "remote", r.RemoteAddr, "error", err)
	}
}

// Accept is ServeHTTP that returns the session. After an error the request has been answered.
func (a *Acceptor) Accept(w http.ResponseWriter, r *http.Request) (*CoordinatorSession, error) {
	who, err := a.admit(r)
	if err != nil {
		refuse(w, err)
		return nil, err
	}
	light := &lightHijacker{ResponseWriter: w}
	ws, err := websocket.Accept(light, r, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}})
	if err != nil {
		return nil, err
	}
	c := &CoordinatorSession{
		session: newSession(newWSConn(ws, light.conn), a.timing, a.log.With("runner", who.Runner), coordinatorWrite),
		handler: a.cfg.Handler, who: who, redial: a.redial, pulls: map[string]*servedPull{},
	}
	if err := c.start(false); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	if err := a.register(c); err != nil {
		close(c.finished)
		return nil, err
	}
	if err := c.greet(a.cfg); err != nil {
		close(c.finished)
		a.forget(c)
		return nil, err
	}
	c.run(func() { a.forget(c) })
	return c, nil
}

// admit decides what can be decided before the upgrade.
func (a *Acceptor) admit(r *http.Request) (Principal, error) {
	// The route has no parameters. Whoever sends one has most likely put a credential where every proxy logs it.
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return Principal{}, &RefusedError{Status: http.StatusBadRequest, Code: "query_refused",
			Message: "this route takes no query",
			Hint:    "send the credential in the Authorization header; one that was sent in a URL must be replaced, it is in logs now"}
	}
	if !offers(r, Subprotocol) {
		return Principal{}, &RefusedError{Status: http.StatusUpgradeRequired, Code: "update_required",
			Message: "this coordinator speaks " + Subprotocol + " only", MinVersion: a.cfg.MinVersion,
			Hint: "install a newer everdict on this machine; what is no runner has nothing to do at this route"}
	}
	a.mu.Lock()
	draining := a.draining
	a.mu.Unlock()
	if draining != nil {
		return Principal{}, &RefusedError{Status: http.StatusServiceUnavailable, Code: CodeDraining,
			Message: orElse(draining.Message, "coordinator is going away"), RetryAfter: draining.RetryAfter,
			Hint: "connect again when it is back"}
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return Principal{}, &RefusedError{Status: http.StatusUnauthorized, Code: "unauthorized",
			Message: "no bearer credential", Hint: "send Authorization: Bearer rnr_..."}
	}
	who, err := a.cfg.Authenticate(r.Context(), r, Secret(token))
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		a.log.Error("authenticate runner", "error", err)
		err = &RefusedError{Status: http.StatusServiceUnavailable, Code: "unavailable",
			Message: "the credential cannot be checked now", RetryAfter: time.Second, Hint: "try again"}
	}
	return who, err
}

func offers(r *http.Request, subprotocol string) bool {
	for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(h, ",") {
			if strings.EqualFold(strings.TrimSpace(p), subprotocol) {
				return true
			}
		}
	}
	return false
}

// refuse answers with the problem shape of the API.
func refuse(w http.ResponseWriter, err error) {
	e := &RefusedError{Status: http.StatusInternalServerError, Code: CodeInternal}
	errors.As(err, &e)
	p := problem{Code: e.Code, Message: e.Message, Hint: e.Hint}
	p.Data.MinVersion = e.MinVersion
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// register counts the session in, unless a shutdown has begun.
func (a *Acceptor) register(c *CoordinatorSession) error {
	a.mu.Lock()
	draining := a.draining
	if draining == nil {
		a.sessions[c] = struct{}{}
		a.wg.Add(1)
	}
	a.mu.Unlock()
	if draining != nil {
		c.Close(*draining)
		return c.Err()
	}
	return nil
}

func (a *Acceptor) forget(c *CoordinatorSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, c)
	a.wg.Done()
}

// Sessions is the number of sessions that live.
func (a *Acceptor) Sessions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

// redial is the window that the runners that are connected now need to come back.
func (a *Acceptor) redial() Duration {
	return Duration(min(time.Duration(a.Sessions())*time.Second/redialsPerSecond, maxRedial))
}

// Drain refuses new connections from now on and tells every runner that this coordinator will close soon. Sessions go
// on; waiting pulls end. It takes at most Timing.Write. Shutdown is to follow.
func (a *Acceptor) Drain(d Drain) {
	var telling sync.WaitGroup
	for _, c := range a.stop(CloseReason{Code: CloseDraining, Message: d.Reason, RetryAfter: d.RetryAfter.Std()}) {
		// A runner whose connection stands still must not hold up the others; it learns it from the close.
		telling.Go(func() {
			_ = c.Drain(d)
			c.endPulls(&RemoteError{Code: CodeDraining, Message: d.Reason, RetryAfter: d.RetryAfter})
		})
	}
	telling.Wait()
}

// stop begins to refuse and returns the sessions that live.
func (a *Acceptor) stop(reason CloseReason) []*CoordinatorSession {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = &reason
	all := make([]*CoordinatorSession, 0, len(a.sessions))
	for c := range a.sessions {
		all = append(all, c)
	}
	return all
}

// Shutdown closes every session with CloseDraining and waits until the last handler has returned, or ctx ends.
func (a *Acceptor) Shutdown(ctx context.Context, retryAfter time.Duration) error {
	reason := CloseReason{Code: CloseDraining, Message: "coordinator is going away", RetryAfter: retryAfter}
	var closing sync.WaitGroup
	for _, c := range a.stop(reason) {
		closing.Go(func() { c.Close(reason) })
	}
	done := make(chan struct{})
	go func() {
		closing.Wait()
		a.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("link: shutdown: %w", ctx.Err())
	}
}
