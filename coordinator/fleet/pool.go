package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// pool launches for one runtime. All but what mu guards belongs to run's goroutine.
type pool struct {
	cfg                      *Config
	looks                    *counted
	log                      *slog.Logger
	name, workspace, runtime string
	kicked                   chan struct{}

	mu    sync.Mutex
	spec  *protocol.RuntimeSpec
	word  string            // why a run without a word of its own has no unit
	words map[string]string // by run
	// failing says that word is what the cluster does not do, which concerns every run.
	failing bool
	ends    []callEnd // those that have not been taken in
	// changed are the secrets that have other values than when clients were made.
	changed map[string]bool
	// handed are the payloads of units whose launch is not seen to be complete.
	handed map[string][]byte

	// calls go on beside run; see call.
	calls                    sync.WaitGroup
	launchWidth, removeWidth chan struct{}

	// latest is the cluster that is launched on; nil: its client is to be made. earlier are
	// the other places that units may be at; sought says that those of stored versions are
	// among them, and seek is when these are read again.
	latest  *cluster
	earlier []*earlier
	sought  bool
	seek    time.Time
	// launching and removing are units of which this goes on, and launched those that a
	// list need not show yet, by name.
	launching map[string]launching
	removing  map[string]removing
	launched  map[string]launched
	marks     map[string]*marks
	// revoked are the units whose attempts end when they are gone.
	revoked map[string]*revocation
	// unseen are the units that held leases at the last look and were not there.
	unseen map[string]bool
	// holders are the units of the runners that hold leases, by runner; "" is one that
	// nobody launched.
	holders map[string]string
	// assigned are the jobs that standing units were given, by unit, and cold is until
	// when none is launched to be kept ready.
	assigned map[string]assignment
	cold     time.Time
	// quotas are the units that a quota had no room for, by name, and listed those that the
	// cluster showed then.
	quotas map[string]overQuota
	listed map[string]bool
	// failures of the cluster in a row, when it failed last, and when it is asked again.
	failures            int
	failedAt, notBefore time.Time
}

// cluster is a provider, and its watch.
type cluster struct {
	Provider
	spec *protocol.RuntimeSpec
	at   place
	stop context.CancelFunc // nil: it is not watched
	over chan struct{}      // closed when Watch has returned
	err  error              // why, once over is closed
}

// lost says that the watch has ended by itself.
func (c *cluster) lost() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// end ends the watch.
func (c *cluster) end() {
	if c.stop != nil {
		c.stop()
		<-c.over
	}
}

type launched struct {
	Unit
	on *cluster
	at time.Time
}

// marks are when something was first seen of a unit, and what was.
type marks struct {
	awaited, trouble, unwanted time.Time
	// completed is when the launch of a unit with a payload was complete.
	completed time.Time
	// retry is when its run is handed out, or its payload forgotten, again: it could not be
	// before.
	retry time.Time
	// unread is since when its result could not be read or taken, reads how often in a row,
	// readErr why, and readAgain when that is tried again.
	unread, readAgain time.Time
	reads             int
	readErr           error
	// had is the attempt that its runner held last.
	had lease.Ref
	// used: its runner has had a job. going: a standing unit that gets no other.
	// foretold: the run was told how its lease may end. removed: it was terminated.
	// forgetting: the cluster was told to forget its payload, or is being told.
	used, going, foretold, removed, forgetting bool
	clock                                      clock
}

func newPool(cfg *Config, looks *counted, workspace string, spec *protocol.RuntimeSpec) *pool {
	return &pool{
		cfg: cfg, looks: looks, log: cfg.Log.With("workspace", workspace, "runtime", spec.ID), spec: spec,
		name: cfg.Pool(workspace, spec.ID), workspace: workspace, runtime: spec.ID,
		kicked: make(chan struct{}, 1), words: map[string]string{}, launched: map[string]launched{}, launching: map[string]launching{}, removing: map[string]removing{}, marks: map[string]*marks{},
		changed: map[string]bool{}, assigned: map[string]assignment{}, handed: map[string][]byte{}, revoked: map[string]*revocation{}, quotas: map[string]overQuota{}, launchWidth: make(chan struct{}, callWidth), removeWidth: make(chan struct{}, callWidth),
	}
}

func (p *pool) change(spec *protocol.RuntimeSpec) {
	p.mu.Lock()
	p.spec = spec
	p.mu.Unlock()
	p.kick()
}

func (p *pool) secretChanged(name string) {
	p.mu.Lock()
	p.changed[name] = true
	p.mu.Unlock()
	p.kick()
}

// takeChanged says whether a secret of a version has another value than when this was asked
// before.
func (p *pool) takeChanged(spec *protocol.RuntimeSpec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.changed[spec.AuthSecret] || p.changed[spec.KubeconfigSecret]
	clear(p.changed)
	return changed
}

// newest is the latest version.
func (p *pool) newest() *protocol.RuntimeSpec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

// kick makes the pool look again, soon.
func (p *pool) kick() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

func (p *pool) why(run string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch own := p.words[run]; {
	case own == "":
		return p.word, p.word != ""
	case p.failing:
		return own + "; " + p.word, true
	default:
		return own, true
	}
}

// settle is the least time between two looks, so that a burst of changes is one look.
const settle = 20 * time.Millisecond

func (p *pool) run(ctx context.Context) {
	defer func() {
		p.calls.Wait()
		if p.latest != nil {
			p.latest.end()
		}
		for _, e := range p.earlier {
			if e.on != nil {
				e.on.end()
			}
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kicked:
		case <-timer.C:
		}
		next := p.looks.look(ctx, p.pass)
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(settle, next)):
		}
	}
}

// current is the cluster to launch on: that of the latest version.
func (p *pool) current(ctx context.Context, spec *protocol.RuntimeSpec) (*cluster, error) {
	if c := p.latest; c != nil {
		switch {
		case c.lost():
			p.retire(true)
			if c.err != nil {
				return nil, c.err
			}
		case c.spec == spec || sameCluster(c.spec, spec):
			c.spec = spec
			return c, nil
		default:
			p.retire(false)
		}
	}
	c, err := p.open(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.watch(ctx, c)
	p.latest = c
	return c, nil
}

// open makes the client of a version.
func (p *pool) open(ctx context.Context, spec *protocol.RuntimeSpec) (*cluster, error) {
	opener := p.cfg.Openers[spec.Kind]
	if opener == nil {
		return nil, fmt.Errorf("runners of kind %s are not launched", spec.Kind)
	}
	provider, err := opener.Open(ctx, Target{Coordinator: p.cfg.Coordinator, Workspace: p.workspace, Spec: spec})
	if err != nil {
		return nil, err
	}
	c := &cluster{Provider: provider, spec: spec, at: p.placeOf(spec)}
	if l, ok := provider.(Located); ok {
		c.at.inside = l.Location()
	}
	return c, nil
}

// watch begins to watch a cluster, unless it was begun before.
func (p *pool) watch(ctx context.Context, c *cluster) {
	if c.stop != nil {
		return
	}
	watching, stop := context.WithCancel(ctx)
	c.stop, c.over = stop, make(chan struct{})
	go func() {
		defer close(c.over)
		labelled(watching, "watch", func(ctx context.Context) { c.err = c.Watch(ctx, p.kick) })
		p.kick()
	}()
}

// failed notes that the cluster did not do what it was asked to, and when it is asked
// again.
func (p *pool) failed(action string, err error) {
	delay := p.cfg.delay(p.failures)
	p.failures++
	p.failedAt = p.cfg.Now()
	p.notBefore = p.failedAt.Add(delay)
	p.log.Warn("cluster failed", "action", action, "err", err, "again in", delay)
	p.mu.Lock()
	p.word, p.failing = fmt.Sprintf("cannot %s: %s; trying again every %v or sooner", action, protocol.Clip(err.Error(), 400), p.cfg.MaxBackoff), true
	p.mu.Unlock()
	var auth *AuthError
	if errors.As(err, &auth) && p.latest != nil {
		// The next client is made with what the secret is by then.
		p.retire(true)
	}
}

// say says why runs have no unit, of a cluster that does what it is asked to.
func (p *pool) say(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word, p.failing = word, false
}

// unsay takes back what was said of a run whose unit may not be there.
func (p *pool) unsay(run string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.words, run)
}
