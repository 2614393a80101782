// Package nomad launches units on Nomad: one batch job for each, whose only allocation
// runs the runner, in a container or as a process. It reads what the cluster says of
// them through blocking queries. Only coordinators link it, and of Nomad it knows the
// client of its HTTP API alone.
package nomad

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// Config of the units on every cluster, set by the operator. The zero value is what
// a shared cluster wants.
type Config struct {
	// Secrets that runtimes name; nil: there are none.
	Secrets fleet.Secrets
	// HostNetwork puts containers into their client's network, for a coordinator that
	// listens on the client's loopback.
	HostNetwork bool
	// User that containers run as. Default 20250; negative: the image's own.
	User int64
	Log  *slog.Logger
}

const (
	defaultUser = 20250
	// idleTimeout ends the connections of clients that asked once.
	idleTimeout = 30 * time.Second
)

// Opener makes providers for runtimes of kind nomad.
type Opener struct{ cfg Config }

var _ fleet.Featured = (*Opener)(nil)

// New returns an opener.
func New(cfg Config) *Opener {
	cfg.User = cmp.Or(cfg.User, defaultUser)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Opener{cfg}
}

// Lacks implements fleet.Featured.
func (o *Opener) Lacks(f fleet.Feature) string { return lacks(f) }

// lacks is why allocations do not hold a feature: they hold none.
func lacks(f fleet.Feature) string {
	switch f {
	case fleet.FeatureReuse:
		return "what a job leaves in the directories of its allocation cannot be removed for certain"
	case fleet.FeatureNoNetwork:
		return "an allocation without a network could not reach the coordinator, and Nomad has no rule that leaves it that"
	}
	return fmt.Sprintf("allocations do not hold %q", f)
}

// Open implements fleet.Opener. What authenticates is the ACL token in authSecret, which
// travels in a header; without one the cluster is asked as anybody may. Nothing comes
// from the coordinator's own NOMAD_* variables: a workspace chooses where addr points.
func (o *Opener) Open(ctx context.Context, t fleet.Target) (fleet.Provider, error) {
	if t.Spec.Kind != protocol.RuntimeNomad {
		return nil, fmt.Errorf("nomad: runtime %s is of kind %s", t.Spec.ID, t.Spec.Kind)
	}
	p := &provider{cfg: o.cfg, t: t, credential: "no credential", namespace: cmp.Or(t.Spec.Namespace, api.DefaultNamespace),
		began: map[string]time.Time{}, late: map[string]bool{}, removed: map[string]bool{}}
	cfg := &api.Config{Address: t.Spec.Addr, Namespace: p.namespace, HttpClient: httpClient(), Headers: http.Header{"User-Agent": {"everdict"}}}
	if name := t.Spec.AuthSecret; name != "" {
		p.credential = "authSecret " + name
		token, err := o.secret(ctx, t, name)
		if err != nil {
			return nil, fmt.Errorf("nomad: use %s: %w", p.credential, err)
		}
		cfg.SecretID = token
	}
	var err error
	if p.client, err = api.NewClient(cfg); err != nil {
		return nil, fmt.Errorf("nomad: use %s: %w", t.Spec.Addr, err)
	}
	return p, nil
}

func (o *Opener) secret(ctx context.Context, t fleet.Target, name string) (string, error) {
	if o.cfg.Secrets == nil {
		return "", fleet.ErrNoSecret
	}
	return o.cfg.Secrets.Secret(ctx, t.Workspace, name)
}

// httpClient follows no redirection: the header with the token would go along.
func httpClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = idleConns, idleTimeout
	return &http.Client{
		Transport:     fleet.Answers{Base: transport, Engine: new(acquaintance).says},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ownWords are what Nomad says before it can be known by a header.
var ownWords = regexp.MustCompile(`^(rpc error: )*(` +
	`Permission denied|ACL token (not found|expired)|ACL support disabled|(ACL token lookup failed: )?index error: UUID must be 36 characters|` +
	`No cluster leader|No path to region|Not ready to serve consistent reads|` +
	`Enforcing job modify index \d+: job [a-z ]+(: \d+)?|job "[^"]+" is in nonexistent namespace "[^"]+")$`)

// acquaintance knows a Nomad server again: its answers to reads have an index, those that
// say no often nothing but words.
type acquaintance struct{ at atomic.Pointer[string] }

func (a *acquaintance) says(r *http.Response, body []byte, from string) bool {
	if r.Header.Get("X-Nomad-Index") != "" {
		a.at.Store(&from)
		return true
	}
	at := a.at.Load()
	return at != nil && *at == from || ownWords.Match(bytes.TrimSpace(body))
}
