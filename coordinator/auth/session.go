package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Names of the cookie that a session is held by. A browser takes the second one from
// https alone, for this host and no other.
const (
	SessionCookie       = "everdict_session"
	SecureSessionCookie = "__Host-" + SessionCookie
)

// sessionPrefix precedes what a cookie holds.
const sessionPrefix = "ses_"

// SessionsConfig of Sessions. Store and Keys are required.
type SessionsConfig struct {
	Store *store.Store
	Keys  *Keys
	// Idle is how long a session lasts without a request, Life how long with them.
	// Default 12 h and 7 days.
	Idle, Life time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Sessions are the browsers that signed in. One acts for the API key that it was
// begun with, and ends with that key. Each is looked up in the database, so that an
// end is an end at once.
type Sessions struct{ cfg SessionsConfig }

// NewSessions returns the sessions in cfg.Store.
func NewSessions(cfg SessionsConfig) *Sessions {
	cfg.Idle = cmp.Or(cfg.Idle, 12*time.Hour)
	cfg.Life = cmp.Or(cfg.Life, 7*24*time.Hour)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sessions{cfg}
}

// Session is one that stands.
type Session struct {
	Principal Principal
	// ExpiresAt is its end in any case, IdleExpiresAt that without a further request.
	ExpiresAt, IdleExpiresAt time.Time
}

// Why a session does not stand.
var (
	ErrSessionRevoked = errors.New("auth: the session was ended, or its API key was")
	ErrSessionExpired = errors.New("auth: the session has expired")
)

// Begin exchanges an API key for a session. The value is what the cookie holds, and
// exists nowhere else. A key that is not known is a 401.
func (s *Sessions) Begin(ctx context.Context, apiKey string) (value string, _ Session, err error) {
	key, err := s.cfg.Keys.resolve(ctx, apiKey)
	if errors.Is(err, store.ErrNotFound) {
		return "", Session{}, errUnknownKey()
	}
	if err != nil {
		return "", Session{}, fmt.Errorf("auth: resolve an API key: %w", err)
	}
	value = protocol.NewCredential(sessionPrefix)
	now := s.cfg.Now()
	record := store.SessionRecord{
		Hash: store.HashSecret(value), Key: *key,
		CreatedAt: protocol.At(now), SeenAt: protocol.At(now), ExpiresAt: protocol.At(now.Add(s.cfg.Life)),
	}
	err = s.cfg.Store.InsertSession(ctx, record)
	if errors.Is(err, store.ErrNotFound) { // deleted a moment ago
		return "", Session{}, errUnknownKey()
	}
	return value, s.session(&record), err
}

// find is the session that a cookie holds. use says that this is a request of its
// user's, which puts off the end of an idle session.
func (s *Sessions) find(ctx context.Context, value string, use bool) (Session, error) {
	record, err := s.cfg.Store.Session(ctx, store.HashSecret(value))
	if errors.Is(err, store.ErrNotFound) {
		return Session{}, ErrSessionRevoked
	}
	if err != nil {
		return Session{}, err
	}
	now := s.cfg.Now()
	if !now.Before(record.ExpiresAt.Time) || !now.Before(record.SeenAt.Add(s.cfg.Idle)) {
		return Session{}, ErrSessionExpired
	}
	// Written seldom: that it was used is worth no commit per request.
	if use && now.Sub(record.SeenAt.Time) >= min(time.Minute, s.cfg.Idle/10) {
		record.SeenAt = protocol.At(now)
		if err := s.cfg.Store.TouchSession(ctx, record.Hash, record.SeenAt); err != nil {
			return Session{}, err
		}
	}
	return s.session(record), nil
}

func (s *Sessions) session(r *store.SessionRecord) Session {
	idle := r.SeenAt.Add(s.cfg.Idle)
	if idle.After(r.ExpiresAt.Time) {
		idle = r.ExpiresAt.Time
	}
	p := principalOf(&r.Key)
	p.Via = ViaSession
	return Session{Principal: p, ExpiresAt: r.ExpiresAt.Time, IdleExpiresAt: idle}
}

// End ends the session that a cookie holds; one that is over already stays so.
func (s *Sessions) End(ctx context.Context, value string) error {
	err := s.cfg.Store.DeleteSession(ctx, store.HashSecret(value))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// SessionValue is what the session cookie of a request holds, "" without one. A
// request that came over https has its session in the cookie that only https can set.
func (a *Authenticator) SessionValue(r *http.Request) string {
	name := SessionCookie
	if a.cfg.Proxies.HTTPS(r) {
		name = SecureSessionCookie
	}
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Cookie is the session cookie for the client of r; an empty value takes it away.
func (a *Authenticator) Cookie(r *http.Request, value string, expires time.Time) *http.Cookie {
	c := &http.Cookie{Name: SessionCookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Expires: expires}
	if a.cfg.Proxies.HTTPS(r) {
		c.Name, c.Secure = SecureSessionCookie, true
	}
	if value == "" {
		c.MaxAge, c.Expires = -1, time.Time{}
	}
	return c
}

// Session is the session that a request brings; nil if it brings none or has a
// bearer, which counts more. ErrSessionRevoked and ErrSessionExpired say that it
// brings one that is over.
func (a *Authenticator) Session(r *http.Request) (*Session, error) { return a.session(r, true) }

func (a *Authenticator) session(r *http.Request, use bool) (*Session, error) {
	if _, ok := bearer(r); ok || a.cfg.Sessions == nil {
		return nil, nil
	}
	value := a.SessionValue(r)
	if value == "" {
		return nil, nil
	}
	if err := a.CheckOrigin(r, true); err != nil {
		return nil, err
	}
	session, err := a.cfg.Sessions.find(r.Context(), value, use)
	if err != nil {
		return nil, err
	}
	return &session, nil
}

// Client is the address that a request came from.
func (a *Authenticator) Client(r *http.Request) netip.Addr { return a.cfg.Proxies.Client(r) }

// Required says whether requests need a credential.
func (a *Authenticator) Required() bool { return a.cfg.Required }
