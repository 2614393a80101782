package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Headers of the development mode.
const (
	TenantHeader     = "X-Everdict-Tenant"
	DefaultWorkspace = "default"
	// DevSubject is who acts in the development mode.
	DevSubject = "dev"
)

// RunnerTokens finds the runner that a token belongs to. An unknown token is
// store.ErrNotFound; a revoked runner is returned with RevokedAt set. A device session
// (protocol.SignSession) is good once: ErrNonce says that it was not.
type RunnerTokens interface {
	Resolve(ctx context.Context, token string) (*store.RunnerRecord, error)
}

// ErrNonce says that the nonce of a device session is over, was used, or was given by
// another process. With a new one, the same device is let in.
var ErrNonce = errors.New("auth: the nonce of a device session is not, or no longer, good")

// PoolTokens finds what a pool token stands for. An unknown token is
// store.ErrNotFound; one that is revoked or expired is returned as it is.
type PoolTokens interface {
	ResolvePool(ctx context.Context, token string) (*store.PoolTokenRecord, error)
	// ResolveJoin is the same for the token of one launched unit.
	ResolveJoin(ctx context.Context, token string) (*store.JoinTokenRecord, error)
}

// Config of an Authenticator. Keys, Sessions, Runners and Pools may be nil: then no
// such credential is known.
type Config struct {
	Keys     *Keys
	Sessions *Sessions
	// Proxies are believed what they say of a request's origin.
	Proxies Proxies
	Runners RunnerTokens
	Pools   PoolTokens
	// InternalToken is the operator's; empty: there is no operator.
	InternalToken string
	// Now is the clock by which tokens expire; nil: time.Now.
	Now func() time.Time
	// Required refuses requests without a credential. Otherwise they are the
	// development mode's admin of the workspace in TenantHeader.
	Required bool
	// AnyHost lets the development mode answer under any host name. Otherwise
	// only under localhost and IP addresses, so that a web page cannot reach it
	// through a name of its own that resolves to this machine.
	AnyHost bool
}

// Authenticator resolves requests to principals.
type Authenticator struct{ cfg Config }

// New makes an Authenticator.
func New(cfg Config) *Authenticator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Authenticator{cfg}
}

var devRoles = []string{protocol.RoleAdmin}

// Authenticate says who makes a request. A credential in the query string is
// refused, whatever else the request carries; a bearer that is not known is a
// 401 and never falls back to the development mode. A bearer counts more than a
// session.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	return a.authenticate(r, true)
}

// Stands says whether the credential of a request that is still going on is good. It
// does not count as a use of a session.
func (a *Authenticator) Stands(r *http.Request) error {
	_, err := a.authenticate(r, false)
	return err
}

func (a *Authenticator) authenticate(r *http.Request, use bool) (Principal, error) {
	if err := RefuseQueryCredentials(r.URL); err != nil {
		return Principal{}, err
	}
	if credential, ok := bearer(r); ok {
		return a.resolve(r.Context(), credential)
	}
	switch session, err := a.session(r, use); {
	case session != nil:
		return session.Principal, nil
	case errors.Is(err, ErrSessionExpired), errors.Is(err, ErrSessionRevoked):
		// The development mode takes everybody, so that a cookie from before does no harm.
		if a.cfg.Required {
			return Principal{}, protocol.Unauthenticated("your session is over").
				WithData("reason", "session").WithHint("sign in again")
		}
	case err != nil:
		return Principal{}, err
	}
	if a.cfg.Required {
		return Principal{}, protocol.Unauthenticated("this needs a credential").
			WithHint("send an API key as the header Authorization: Bearer ak_...")
	}
	return a.development(r)
}

func (a *Authenticator) resolve(ctx context.Context, credential string) (Principal, error) {
	switch {
	case strings.HasPrefix(credential, protocol.APIKeyPrefix) && a.cfg.Keys != nil:
		key, err := a.cfg.Keys.resolve(ctx, credential)
		if err == nil {
			return principalOf(key), nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return Principal{}, fmt.Errorf("auth: resolve an API key: %w", err)
		}
		return Principal{}, errUnknownKey()
	case runnerCredential(credential) && a.cfg.Runners != nil:
		runner, err := a.cfg.Runners.Resolve(ctx, credential)
		if err == nil && runner.RevokedAt == nil {
			return Principal{Subject: runner.Owner, Workspace: runner.Workspace, Roles: []string{RoleRunner}, Via: ViaRunner, RunnerID: runner.ID}, nil
		}
		if err == nil {
			return Principal{}, protocol.Unauthenticated("runner %s was revoked", runner.ID).
				WithData("reason", "revoked").WithHint("pair the machine again: POST /runners")
		}
		if errors.Is(err, ErrNonce) {
			return Principal{}, protocol.Unauthenticated("this device session is not, or no longer, good").
				WithData("reason", "nonce").WithHint("each connection signs a nonce of its own, within a minute")
		}
		if !errors.Is(err, store.ErrNotFound) {
			return Principal{}, fmt.Errorf("auth: resolve a runner: %w", err)
		}
		return Principal{}, protocol.Unauthenticated("this runner's credential is not known").
			WithData("reason", "unknown").WithHint("pair the machine again: POST /runners")
	case strings.HasPrefix(credential, protocol.PoolTokenPrefix) && a.cfg.Pools != nil:
		return a.resolvePool(ctx, credential)
	case strings.HasPrefix(credential, protocol.JoinTokenPrefix) && a.cfg.Pools != nil:
		return a.resolveJoin(ctx, credential)
	}
	return Principal{}, protocol.Unauthenticated("this credential is of no known kind").
		WithHint("an API key begins with ak_, a runner token with rnr_, a pool token with plt_")
}

// Operator says that the operator of the coordinator makes a request: it brings the
// internal token. Without one of its own the coordinator has no such routes, a 404.
func (a *Authenticator) Operator(r *http.Request) (Principal, error) {
	if err := RefuseQueryCredentials(r.URL); err != nil {
		return Principal{}, err
	}
	if a.cfg.InternalToken == "" {
		return Principal{}, protocol.NotFound("this coordinator has no internal token, and without one nobody is its operator").
			WithHint("start it with EVERDICT_INTERNAL_TOKEN")
	}
	// The hashes have one length, so that the time tells nothing of the token's.
	given, own := sha256.Sum256([]byte(r.Header.Get(protocol.InternalTokenHeader))), sha256.Sum256([]byte(a.cfg.InternalToken))
	if subtle.ConstantTimeCompare(given[:], own[:]) != 1 {
		return Principal{}, protocol.Forbidden("this is not the internal token of the coordinator").
			WithHint("send what the coordinator was started with in EVERDICT_INTERNAL_TOKEN as the header %s", strings.ToLower(protocol.InternalTokenHeader))
	}
	return Principal{Subject: Operator, Via: ViaOperator}, nil
}

// runnerCredential says whether a credential is a runner's: its token, or a session that
// its device key made.
func runnerCredential(s string) bool {
	return strings.HasPrefix(s, protocol.RunnerTokenPrefix) || strings.HasPrefix(s, protocol.DeviceSessionPrefix)
}

// principalOf is who acts with an API key.
func principalOf(key *store.KeyRecord) Principal {
	return Principal{Subject: key.Subject, Workspace: key.Workspace, Roles: []string{key.Role}, Via: ViaAPIKey, Scopes: key.Scopes}
}

func errUnknownKey() error {
	return protocol.Unauthenticated("this API key is not known").WithHint("it may have been revoked: POST /keys makes a new one")
}

// resolvePool is who a pool token speaks for: a machine that wants to join.
func (a *Authenticator) resolvePool(ctx context.Context, credential string) (Principal, error) {
	pool, err := a.cfg.Pools.ResolvePool(ctx, credential)
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, protocol.Unauthenticated("this pool token is not known").
			WithData("reason", "unknown").WithHint("make one: everdict pools token create --runtime ID")
	}
	if err != nil {
		return Principal{}, fmt.Errorf("auth: resolve a pool token: %w", err)
	}
	again := "make a new one: everdict pools token create --runtime " + pool.Runtime
	switch {
	case pool.RevokedAt != nil:
		return Principal{}, protocol.Unauthenticated("pool token %s of runtime %s was revoked", pool.ID, pool.Runtime).
			WithData("reason", "revoked").WithHint("%s", again)
	case !a.cfg.Now().Before(pool.ExpiresAt.Time):
		return Principal{}, protocol.Unauthenticated("pool token %s of runtime %s expired at %s", pool.ID, pool.Runtime, pool.ExpiresAt).
			WithData("reason", "expired").WithHint("%s", again)
	}
	return Principal{Subject: "runtime:" + pool.Runtime, Workspace: pool.Workspace, Roles: []string{RoleRunner}, Via: ViaPool, Pool: pool}, nil
}

// resolveJoin is who the token of a launched unit speaks for: its runner, once.
func (a *Authenticator) resolveJoin(ctx context.Context, credential string) (Principal, error) {
	join, err := a.cfg.Pools.ResolveJoin(ctx, credential)
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, protocol.Unauthenticated("this join token is not known").WithData("reason", "unknown").WithHint("%s", joinHint)
	}
	if err != nil {
		return Principal{}, fmt.Errorf("auth: resolve a join token: %w", err)
	}
	switch {
	case join.UsedAt != nil:
		return Principal{}, protocol.Unauthenticated("the join token of %s was used at %s", join.Unit, *join.UsedAt).
			WithData("reason", "used").WithHint("%s", joinHint)
	case !a.cfg.Now().Before(join.ExpiresAt.Time):
		return Principal{}, protocol.Unauthenticated("the join token of %s expired at %s", join.Unit, join.ExpiresAt).
			WithData("reason", "expired").WithHint("%s", joinHint)
	}
	return Principal{Subject: "runtime:" + join.Runtime, Workspace: join.Workspace, Roles: []string{RoleRunner}, Via: ViaPool, Join: join}, nil
}

const joinHint = "the coordinator makes one for each unit that it launches; it is good once"

func (a *Authenticator) development(r *http.Request) (Principal, error) {
	if err := a.sameOrigin(r); err != nil {
		return Principal{}, err
	}
	workspace := r.Header.Get(TenantHeader)
	if workspace == "" {
		workspace = DefaultWorkspace
	}
	if !protocol.ValidName(workspace, protocol.MaxNameBytes) {
		return Principal{}, protocol.BadRequest("header %s: want 1 to %d printable characters without / or \\", strings.ToLower(TenantHeader), protocol.MaxNameBytes)
	}
	return Principal{Subject: DevSubject, Workspace: workspace, Roles: devRoles, Via: ViaAPIKey}, nil
}

// sameOrigin keeps web pages out of the development mode, where no credential
// would: a page of another origin, and a page whose own name resolves here.
func (a *Authenticator) sameOrigin(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !a.isHost(r, u.Host) {
			return protocol.Forbidden("a page of another origin may not use the development mode").
				WithHint("use the coordinator's own page, or a program such as curl")
		}
	}
	if a.cfg.AnyHost || localName(r.Host) {
		return nil
	}
	return protocol.Forbidden("the development mode answers under localhost and IP addresses only, not under %q", protocol.Clip(r.Host, 80)).
		WithHint("start the coordinator with --require-auth (EVERDICT_REQUIRE_AUTH=1) to serve under a name")
}

func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// bearer is the credential of the Authorization header, if it has one.
func bearer(r *http.Request) (string, bool) {
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	return strings.TrimSpace(credential), true
}
