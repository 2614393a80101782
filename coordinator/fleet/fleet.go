package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// Queue is what the fleet must know of the lease queue.
type Queue interface {
	Demand(ctx context.Context, pool string, n int, ids []string) (lease.Demand, error)
	Explain(ctx context.Context, job string) (lease.Explanation, error)
}

// Runs is what the fleet asks and tells about runs.
type Runs interface {
	// Needs is what the unit of a run must have.
	Needs(ctx context.Context, run string) (Needs, error)
	Unplaced(ctx context.Context, run string, before int64, f protocol.Failure) error
	Ended(ctx context.Context, l lease.Lease, f protocol.Failure) error
	// Foretell says how an attempt may end; a failure without a reason takes it back.
	Foretell(run string, attempt int64, f protocol.Failure)
	// PayloadSize is the most bytes that the payload of a run has; a *protocol.Problem says
	// that it can have none.
	PayloadSize(ctx context.Context, run string) (int, error)
	// HandOut makes the payload of the next attempt of a queued run. From then on its unit
	// holds the lease, which is renewed without it until Handing.Life is over.
	HandOut(ctx context.Context, h Handing) ([]byte, error)
	// Adopt takes the result that the holder of a lease left in its unit's output. A
	// *protocol.Problem says that it is never taken.
	Adopt(ctx context.Context, l lease.Lease, result []byte) error
	// Recover keeps the result that a unit, which is not wanted any more, has printed as late
	// evidence of its attempt. It asks for output only if the unit's runner had that attempt
	// and no result of it has come; nil: there is none.
	Recover(ctx context.Context, workspace, run string, attempt int64, unit string, output func(context.Context) []byte) error
}

// Handing is a run that a unit is given as a payload.
type Handing struct {
	Workspace, Runtime, Unit, Run string
	// Before is the epoch of the attempt before it.
	Before int64
	// Life is how long it may be out.
	Life time.Duration
}

// Needs of a run, as its case and harness declare them; see Order.
type Needs struct {
	Image              string
	CPU, MemoryMB, GPU int
	// Network is the mode that the case declares; empty: none is declared.
	Network string
	// Deadline is what an attempt may take at most, everything but waiting for a person
	// included.
	Deadline time.Duration
}

// Runners are the runners of pools.
type Runners interface {
	// Get is a runner; a *protocol.Problem with status 404 says that it is none of the
	// workspace's, or not any more.
	Get(ctx context.Context, workspace, id string) (protocol.Runner, error)
	Roster(ctx context.Context, workspace string) ([]protocol.Runner, error)
	CreateJoinToken(ctx context.Context, workspace, runtime, unit, job string, life time.Duration) (string, error)
}

// Config of a Fleet. All but Versions, the durations, Now and Log are required.
type Config struct {
	Queue   Queue
	Runs    Runs
	Runners Runners
	// Bind makes the runner of a unit take one job and no other, now or when it is back;
	// no job: the one that its token named.
	Bind func(unit, job string)
	// Pool is the name of a runtime's pool in the queue.
	Pool func(workspace, runtime string) string
	// Versions are all versions of a runtime, the latest last: units may have been left
	// where an earlier one had them. nil: nothing is looked for there after a start.
	Versions func(ctx context.Context, workspace, runtime string) ([]protocol.RuntimeSpec, error)
	// Checker has the openers by kind of runtime. The runners of other kinds are not
	// launched.
	Checker
	// Coordinator is the name under which units carry this coordinator's label.
	Coordinator string
	// URL is where launched runners find the coordinator.
	URL string
	// Grace is how long a unit that is not wanted is left to end by itself. Default
	// 10 s.
	Grace time.Duration
	// PendingTimeout is how long a unit may be in trouble that may pass. Default
	// 10 min.
	PendingTimeout time.Duration
	// TokenLife is how long a unit may take until its runner joins. Default
	// PendingTimeout and 10 min.
	TokenLife time.Duration
	// Deliver is how long the runner of a unit that was given a payload tries to reach the
	// coordinator with its result, before it prints that and ends. Default 1 min.
	Deliver time.Duration
	// Resync is how often a pool is looked at when nothing happens. Default 30 s.
	Resync time.Duration
	// Backoff and MaxBackoff are the pauses after a failure of a cluster. Default 1 s
	// and 1 min.
	Backoff, MaxBackoff time.Duration
	Now                 func() time.Time
	Log                 *slog.Logger
}

// delay is the pause after so many failures in a row before another one.
func (c *Config) delay(failures int) time.Duration {
	if failures >= 16 {
		return c.MaxBackoff
	}
	return min(c.MaxBackoff, c.Backoff<<failures)
}

// Fleet launches for every runtime whose kind has an Opener.
type Fleet struct {
	cfg Config

	mu    sync.Mutex
	pools map[key]*pool
	names map[string]*pool // by the pool's name in the queue
	start func(*pool)      // nil: not running

	looks counted
}

// counted is how often pools were looked at, and how long that took.
type counted struct {
	n, nanos atomic.Int64
}

// look looks once and counts it.
func (c *counted) look(ctx context.Context, pass func(context.Context) time.Duration) time.Duration {
	began := time.Now()
	defer func() {
		c.n.Add(1)
		c.nanos.Add(int64(time.Since(began)))
	}()
	var next time.Duration
	labelled(ctx, "look", func(ctx context.Context) { next = pass(ctx) })
	return next
}

// labelled does something that a CPU profile shows under the label "fleet": "look" is
// comparing what is wanted with what is seen, "watch" hearing from a cluster, "call"
// launching and removing.
func labelled(ctx context.Context, what string, do func(context.Context)) {
	pprof.Do(ctx, pprof.Labels("fleet", what), do)
}

// Looks is how often pools were looked at, and how long that took with waiting for their
// clusters.
func (f *Fleet) Looks() (n int64, took time.Duration) {
	return f.looks.n.Load(), time.Duration(f.looks.nanos.Load())
}

type key struct{ workspace, runtime string }

// New returns a fleet that does nothing until Run.
func New(cfg Config) *Fleet {
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	cfg.PendingTimeout = cmp.Or(cfg.PendingTimeout, 10*time.Minute)
	cfg.TokenLife = cmp.Or(cfg.TokenLife, cfg.PendingTimeout+10*time.Minute)
	cfg.Deliver = cmp.Or(cfg.Deliver, time.Minute)
	cfg.Resync = cmp.Or(cfg.Resync, 30*time.Second)
	cfg.Backoff = cmp.Or(cfg.Backoff, time.Second)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Fleet{cfg: cfg, pools: map[key]*pool{}, names: map[string]*pool{}}
}

// RuntimeChanged makes a version of a runtime the one that is launched for. Units of
// an earlier one go on.
func (f *Fleet) RuntimeChanged(workspace string, latest *protocol.RuntimeSpec) {
	k := key{workspace, latest.ID}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[k]
	if p == nil { // whatever its kind: an earlier version may have had another
		p = newPool(&f.cfg, &f.looks, workspace, latest)
		f.pools[k], f.names[p.name] = p, p
		if f.start != nil {
			f.start(p)
		}
		return
	}
	p.change(latest)
}

// SecretChanged says that a secret of a workspace has another value, or none any more. What
// was launched with the value before goes on where it is.
func (f *Fleet) SecretChanged(workspace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, p := range f.pools {
		if k.workspace == workspace {
			p.secretChanged(name)
		}
	}
}

// Committed is told of the queue's changes, on the writer's goroutine.
func (f *Fleet) Committed(events []lease.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		if p := f.names[events[i].Pool]; p != nil {
			p.kick()
		}
	}
}

// Run launches until ctx ends. Units are left as they are: a coordinator that is back
// goes on with them.
func (f *Fleet) Run(ctx context.Context) error {
	var running sync.WaitGroup
	f.mu.Lock()
	f.start = func(p *pool) { running.Go(func() { p.run(ctx) }) }
	for _, p := range f.pools {
		f.start(p)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.start = nil
	f.mu.Unlock()
	running.Wait()
	return nil
}

// Launches implements run.Launcher.
func (f *Fleet) Launches(workspace, runtime string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[key{workspace, runtime}]
	return p != nil && f.cfg.Openers[p.newest().Kind] != nil
}

// Refuses implements run.Launcher.
func (f *Fleet) Refuses(workspace string, spec *protocol.RuntimeSpec, network string) error {
	if !f.Launches(workspace, spec.ID) {
		return nil
	}
	if err := f.cfg.Spec(workspace, spec); err != nil {
		return err
	}
	return f.cfg.Network(spec, network)
}

// Why implements run.Launcher.
func (f *Fleet) Why(workspace, runtime, run string) (string, bool) {
	f.mu.Lock()
	p := f.pools[key{workspace, runtime}]
	f.mu.Unlock()
	if p == nil {
		return "", false
	}
	return p.why(run)
}
