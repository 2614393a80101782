// Package coordinator composes the server: queue, records, evidence, gateway and
// API over one data directory. It owns nothing but their order of coming and
// going.
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/dashboard"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/local"
	"github.com/everdict/everdict/coordinator/gateway"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Config of a Coordinator. Only DataDir is required.
type Config struct {
	// DataDir holds the database and the evidence. One coordinator uses it at a
	// time.
	DataDir string
	// RequireAuth refuses requests without a credential.
	RequireAuth bool
	// InternalToken lets whoever has it make keys of any workspace; empty: nobody.
	InternalToken string
	// SecretsKey seals the secrets, in the form that secret.ParseKey reads; empty: the
	// key file in DataDir. SecretsOldKeys are keys that sealed some of them before.
	SecretsKey     string
	SecretsOldKeys []string
	// SecretsKeyService seals them in place of SecretsKey and of the key file, such as a
	// client of a key management service; nil: there is none.
	SecretsKeyService secret.KeyService
	// AnyHost lets the development mode answer under any host name.
	AnyHost bool
	// SessionIdle and SessionLife are how long somebody who signed in with a browser
	// stays so; 0: the defaults of auth.Sessions.
	SessionIdle, SessionLife time.Duration
	// Proxies are the reverse proxies whose X-Forwarded headers are believed.
	Proxies auth.Proxies
	// NoDeviceCode refuses to pair machines by a code that somebody types in.
	NoDeviceCode bool
	// Local says that a runner inside this process will serve the runtime
	// "local"; see LocalRunner.
	Local bool
	// Launch says how runners are launched on clusters; see Launch.
	Launch Launch
	// Lease and Timing are the clocks of the queue and of the sessions; OnChange,
	// Committed and Log are set here.
	Lease  lease.Config
	Timing link.Timing
	// PoolMaxConcurrent bounds the runs at a time of the runtime "local". Default
	// lease.DefaultMaxConcurrent.
	PoolMaxConcurrent int
	// RetryAfter is what runners are told to wait when the coordinator leaves.
	// Default 1 s.
	RetryAfter time.Duration
	Version    string
	Log        *slog.Logger
}

// Coordinator is a server that has its data directory. Use Open, then Serve.
type Coordinator struct {
	cfg      Config
	log      *slog.Logger
	db       *sqlite.DB
	queue    *lease.Queue
	runs     *run.Service
	runners  *pairing.Runners
	pairings *pairing.Pairings
	keys     *auth.Keys
	evidence *evidence.Store
	gateway  *gateway.Gateway
	fleet    *fleet.Fleet  // nil: none are launched
	own      *local.Opener // nil: none are launched on this machine
	// endFleet ends the fleet before the rest; fleetCtx is done then.
	fleetCtx context.Context
	endFleet context.CancelFunc
	api      *api.Server
}

// Open takes the data directory and brings everything up to the point where it
// can serve. A *sqlite.HeldError says that another coordinator has it, a
// *secret.WrongKeyError that its secrets need another key.
func Open(ctx context.Context, cfg Config) (_ *Coordinator, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = time.Second
	}
	if err := cfg.Launch.check(&cfg); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("coordinator: make the data directory: %w", err)
	}
	c := &Coordinator{cfg: cfg, log: cfg.Log, own: cfg.Launch.own(&cfg)}
	c.fleetCtx, c.endFleet = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.db, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(cfg.DataDir, databaseFile)}); err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, c.db)
	if err != nil {
		return nil, err
	}
	if c.evidence, err = evidence.Open(evidence.Config{Dir: filepath.Join(cfg.DataDir, "evidence")}); err != nil {
		return nil, err
	}
	name, err := identity(ctx, st)
	if err != nil {
		return nil, err
	}
	harnesses := registry.New(st, nil)
	var secrets *secret.Vault
	openers := clusters(&cfg, c.own, func() *secret.Vault { return secrets })
	checker := fleet.Checker{Openers: openers, Isolation: cfg.Launch.Isolation, NotLaunched: cfg.Launch.notLaunched()}
	runtimes := registry.NewRuntimes(registry.RuntimesConfig{Store: st, Probers: probers(openers, name), Check: checker.Spec, NoMachine: cfg.Launch.NoMachine,
		MissingSecrets: func(ctx context.Context, workspace string, names []string) ([]string, error) {
			return secrets.MissingNames(ctx, workspace, names)
		},
		Changed: func(ctx context.Context, workspace string, latest *protocol.RuntimeSpec) error {
			// The runner inside this process serves the runtime that has its name.
			if c.fleet != nil && (!cfg.Local || latest.ID != run.LocalRuntime) {
				c.fleet.RuntimeChanged(workspace, latest)
			}
			return c.runs.RuntimeChanged(ctx, workspace, latest)
		}})
	secrets, err = secret.OpenWith(ctx, secretKeys(&cfg),
		secret.Config{Store: st, Referrers: []secret.Referrer{harnesses, runtimes}, Log: cfg.Log, Changed: func(workspace, name string) {
			if c.fleet != nil {
				c.fleet.SecretChanged(workspace, name)
			}
		}})
	if err != nil {
		return nil, err
	}
	c.keys = auth.NewKeys(st, nil)
	c.runners = pairing.New(pairing.Config{Store: st, OnRevoked: func(ids ...string) { c.gateway.Revoked(ids...) }, OnForgotten: func(id string) { c.gateway.Forgotten(id) },
		OnChanged: func(workspace, id string) { c.runs.RunnerChanged(workspace, id) }})
	c.pairings = pairing.NewPairings(pairing.PairingsConfig{Runners: c.runners, NoDeviceCode: cfg.NoDeviceCode, Log: cfg.Log})
	c.runs = run.New(run.Config{Store: st, Registry: harnesses, Runtimes: runtimes, Runners: c.runners, Evidence: c.evidence,
		Secrets: secrets, Local: cfg.Local, Log: cfg.Log})

	q := cfg.Lease
	q.OnChange, q.Log = c.runs.OnChange, cfg.Log
	q.Committed = func(events []lease.Event) {
		c.runs.Committed(events)
		if c.gateway != nil {
			c.gateway.Committed(events)
		}
		if c.fleet != nil {
			c.fleet.Committed(events)
		}
	}
	if q.Limit == nil {
		q.Limit = &lease.Limit{} // a paired machine's slots are its own limit
	}
	if c.queue, err = lease.Open(ctx, c.db, q); err != nil {
		return nil, err
	}
	limit := lease.Limit{MaxConcurrent: cmp.Or(cfg.PoolMaxConcurrent, lease.DefaultMaxConcurrent)}
	if err := c.queue.SetLimit(ctx, run.RuntimeHome(run.LocalRuntime).String(), limit); err != nil {
		return nil, err
	}
	if err := c.runs.Bind(ctx, c.queue); err != nil {
		return nil, err
	}
	if c.fleet = c.launch(checker, runtimes, name); c.fleet != nil {
		c.runs.OnLaunch(c.fleet)
	}
	// Before the first runner is back: the queue does not keep the limits of pools.
	if err := runtimes.Announce(ctx); err != nil {
		return nil, err
	}
	c.gateway, err = gateway.New(gateway.Config{Queue: c.queue, Runs: c.runs, Runners: c.runners, Evidence: c.evidence,
		Version: cfg.Version, Timing: cfg.Timing, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	if err := c.gateway.Recover(ctx); err != nil {
		return nil, err
	}
	page, err := dashboard.Embedded(cfg.Version)
	if err != nil {
		return nil, err
	}
	mount := map[string]http.Handler{"GET " + link.Path: c.gateway}
	for _, pattern := range dashboard.Patterns() {
		mount[pattern] = page
	}
	sessions := auth.NewSessions(auth.SessionsConfig{Store: st, Keys: c.keys, Idle: cfg.SessionIdle, Life: cfg.SessionLife})
	c.api, err = api.New(api.Config{
		Auth: auth.New(auth.Config{Keys: c.keys, Sessions: sessions, Runners: c.runners, Pools: c.runners,
			InternalToken: cfg.InternalToken, Proxies: cfg.Proxies, Required: cfg.RequireAuth, AnyHost: cfg.AnyHost}),
		Keys: c.keys, Sessions: sessions, Runs: c.runs, Harnesses: harnesses, Runtimes: runtimes, Runners: c.runners, Pairings: c.pairings, Secrets: secrets,
		Ready:   st.Ping,
		Gauges:  []api.Gauges{gauges{c}},
		Mount:   mount,
		Version: cfg.Version, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Bootstrap issues the first admin key of a coordinator that requires
// credentials and has none; "" when there is one already. It is shown once.
func (c *Coordinator) Bootstrap(ctx context.Context) (string, error) {
	return c.keys.Bootstrap(ctx, auth.DefaultWorkspace)
}

// LocalRunner is the credential of the runner inside this process: the one that
// it had before, as long as that is good, else a new one.
func (c *Coordinator) LocalRunner(ctx context.Context, label string, before link.Secret) (link.Secret, error) {
	if before != "" {
		r, err := c.runners.Resolve(ctx, string(before))
		if err == nil && r.RevokedAt == nil && r.Owner == localOwner {
			c.gateway.Local(r.ID)
			return before, nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
	}
	paired, err := c.runners.Pair(ctx, auth.DefaultWorkspace, localOwner, protocol.PairRequest{Label: label})
	if err != nil {
		return "", err
	}
	c.gateway.Local(paired.Runner.ID)
	return link.Secret(paired.Token), nil
}

// localOwner owns the runner inside the process: nobody who could sign in.
const localOwner = "local:"

// Serve answers on listener until ctx ends, then lets requests and sessions come
// to an end for at most grace, and closes everything. Jobs on runners go on: they
// do not notice a restart.
func (c *Coordinator) Serve(ctx context.Context, listener net.Listener, grace time.Duration) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler: c.api, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return c.queue.Run(background) })
	group.Go(func() error { return c.runners.Run(background) })
	group.Go(func() error { return c.runs.KeepPayloads(background) })
	if c.fleet != nil {
		group.Go(func() error {
			ctx, stop := context.WithCancel(background)
			defer stop()
			defer context.AfterFunc(c.fleetCtx, stop)()
			return c.fleet.Run(ctx)
		})
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("coordinator: serve: %w", err)
		}
		return nil
	})
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	// Streams that watch a run end at once; their clients resume elsewhere.
	stop()
	err = errors.Join(c.gateway.Shutdown(leave, c.cfg.RetryAfter), server.Shutdown(leave))
	if errors.Is(err, context.DeadlineExceeded) {
		c.log.Warn("some requests were cut off", "grace", grace)
		err = server.Close()
	}
	end()
	return errors.Join(err, group.Wait())
}

// Close gives up the data directory of a coordinator that is not served.
func (c *Coordinator) Close() error {
	c.endFleet()
	var errs []error
	if c.db != nil {
		errs = append(errs, c.db.Close())
	}
	if c.evidence != nil {
		errs = append(errs, c.evidence.Close())
	}
	return errors.Join(errs...)
}
