package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
	ends  []callEnd         // those that have not been taken in
	// handed are the payloads of units whose launch is not seen to be complete.
	handed map[string][]byte

	// calls go on beside run; see call.
	calls                    sync.WaitGroup
	launchWidth, removeWidth chan struct{}

	// clusters that units may be on; the last is launched on. The others had earlier
	// versions of the runtime, and go when they have no unit.
	clusters []*cluster
	// launching and removing are units of which this goes on, and launched those that a
	// list need not show yet, by name.
	launching map[string]launching
	removing  map[string]removing
	launched  map[string]launched
	marks     map[string]*marks
	// revoked are the units whose attempts end when they are gone.
	revoked map[string]*revocation
	// holders are the units of the runners that hold leases, by runner; "" is one that
	// nobody launched.
	holders map[string]string
	// assigned are the jobs that standing units were given, by unit, and cold is until
	// when none is launched to be kept ready.
	assigned map[string]assignment
	cold     time.Time
	// failures of the cluster in a row, when it failed last, and when it is asked again.
	failures            int
	failedAt, notBefore time.Time
}

// cluster is a provider that is being watched.
type cluster struct {
	Provider
	spec *protocol.RuntimeSpec
	stop context.CancelFunc
	over chan struct{} // closed when Watch has returned
	err  error         // why, once over is closed
}

type launched struct {
	Unit
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
	// used: its runner has had a job. going: a standing unit that gets no other.
	// foretold: the run was told how its lease may end. removed: it was terminated.
	// forgetting: the cluster was told to forget its payload, or is being told.
	used, going, foretold, removed, forgetting bool
}

func newPool(cfg *Config, looks *counted, workspace string, spec *protocol.RuntimeSpec) *pool {
	return &pool{
		cfg: cfg, looks: looks, log: cfg.Log.With("workspace", workspace, "runtime", spec.ID), spec: spec,
		name: cfg.Pool(workspace, spec.ID), workspace: workspace, runtime: spec.ID,
		kicked: make(chan struct{}, 1), words: map[string]string{}, launched: map[string]launched{}, launching: map[string]launching{}, removing: map[string]removing{}, marks: map[string]*marks{},
		assigned: map[string]assignment{}, handed: map[string][]byte{}, revoked: map[string]*revocation{}, launchWidth: make(chan struct{}, callWidth), removeWidth: make(chan struct{}, callWidth),
	}
}

func (p *pool) change(spec *protocol.RuntimeSpec) {
	p.mu.Lock()
	p.spec = spec
	p.mu.Unlock()
	p.kick()
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
	if w := p.words[run]; w != "" {
		return w, true
	}
	return p.word, p.word != ""
}

// settle is the least time between two looks, so that a burst of changes is one look.
const settle = 20 * time.Millisecond

func (p *pool) run(ctx context.Context) {
	defer func() {
		p.calls.Wait()
		for _, c := range p.clusters {
			c.stop()
			<-c.over
		}
		p.clusters = nil
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
func (p *pool) current(ctx context.Context) (*cluster, error) {
	p.mu.Lock()
	spec := p.spec
	p.mu.Unlock()
	if n := len(p.clusters); n > 0 {
		c := p.clusters[n-1]
		select {
		case <-c.over:
			p.drop(c)
			if c.err != nil {
				return nil, c.err
			}
		default:
			if c.spec == spec || sameCluster(c.spec, spec) {
				c.spec = spec
				return c, nil
			}
		}
	}
	opener := p.cfg.Openers[spec.Kind]
	if opener == nil {
		return nil, fmt.Errorf("runners of kind %s are not launched", spec.Kind)
	}
	provider, err := opener.Open(ctx, Target{Coordinator: p.cfg.Coordinator, Workspace: p.workspace, Spec: spec})
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	c := &cluster{Provider: provider, spec: spec, stop: stop, over: make(chan struct{})}
	go func() {
		defer close(c.over)
		labelled(watching, "watch", func(ctx context.Context) { c.err = provider.Watch(ctx, p.kick) })
		p.kick()
	}()
	p.clusters = append(p.clusters, c)
	return c, nil
}

// drop gives up a cluster's client.
func (p *pool) drop(c *cluster) {
	c.stop()
	<-c.over
	for i := range p.clusters {
		if p.clusters[i] == c {
			p.clusters = append(p.clusters[:i], p.clusters[i+1:]...)
			return
		}
	}
}

// failed notes that the cluster did not do what it was asked to, and when it is asked
// again.
func (p *pool) failed(action string, err error) {
	delay := p.cfg.MaxBackoff
	if p.failures < 16 {
		delay = min(delay, p.cfg.Backoff<<p.failures)
	}
	p.failures++
	p.failedAt = p.cfg.Now()
	p.notBefore = p.failedAt.Add(delay)
	p.log.Warn("cluster failed", "action", action, "err", err, "again in", delay)
	p.say(fmt.Sprintf("cannot %s: %s; trying again every %v or sooner", action, protocol.Clip(err.Error(), 400), p.cfg.MaxBackoff))
	var auth *AuthError
	if n := len(p.clusters); errors.As(err, &auth) && n > 0 {
		// The next client is made with what the secret is by then.
		p.drop(p.clusters[n-1])
	}
}

func (p *pool) say(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = word
}
