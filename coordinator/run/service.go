package run

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// Config of a Service. All but Runtimes, Local, Now and Log are required.
type Config struct {
	Store    *store.Store
	Registry *registry.Registry
	Runners  *pairing.Runners
	Evidence *evidence.Store
	Secrets  *secret.Vault
	// Runtimes may be nil: none are registered.
	Runtimes *registry.Runtimes
	// Local says that runners inside this process serve the runtime "local" of
	// every workspace.
	Local bool
	Now   func() time.Time
	Log   *slog.Logger
}

// Service is the runs of all workspaces. Its queue is set by Bind, because the
// queue's hook is a method of the Service.
type Service struct {
	cfg   Config
	log   *slog.Logger
	queue *lease.Queue

	watch    watchers
	feed     *feed
	audience audience

	foretold foretold
	payloads payloads
	spreads  atomic.Uint64 // runs that were spread over a list of runtimes

	mu       sync.Mutex
	stopping func(lease.Event)
	launcher Launcher
}

// New returns a service that works once Bind was called.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, log: cfg.Log, watch: watchers{waiting: map[string]*watched{}}, feed: newFeed(),
		audience: audience{known: map[string]map[string]bool{}, runtimes: map[string]map[string]bool{}},
		payloads: payloads{out: map[string]payload{}, kicked: make(chan struct{}, 1)}}
}

// Bind gives the service its queue, and learns from what is queued whom the runners of
// a workspace must serve, and from what is leased which payloads are out.
func (s *Service) Bind(ctx context.Context, q *lease.Queue) error {
	s.queue = q
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	for _, c := range stats.Counts {
		switch p, _ := parsePool(c.Pool); p.kind {
		case poolAuto:
			s.audience.add(p.workspace, p.of)
		case poolRuntime:
			s.audience.meet(p.workspace)
		}
	}
	return s.readPayloads(ctx)
}

// OnStopping sets who is told that a holder is to end its attempt. It is called
// on the writer's goroutine and must return at once.
func (s *Service) OnStopping(f func(lease.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = f
}

// Committed is the queue's Committed hook: whoever watches a run looks again.
func (s *Service) Committed(events []lease.Event) {
	changes := make([]change, len(events))
	for i := range events {
		changes[i] = change{workspace: events[i].Workspace, id: events[i].Job}
	}
	s.feed.add(changes...)
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	for i := range events {
		if events[i].Kind == lease.JobStopping && stopping != nil {
			stopping(events[i])
		}
		s.foretold.over(&events[i])
		s.watch.wake(events[i].Job)
	}
}

func (s *Service) now() protocol.Time { return protocol.At(s.cfg.Now()) }

// watchers wakes those who wait for a run to change.
type watchers struct {
	mu      sync.Mutex
	waiting map[string]*watched
}

// watched is a run that somebody waits for.
type watched struct {
	changed chan struct{}
	by      int
}

// changed is closed with the next change of a run. Who does not wait for it any
// more, changed or not, calls leave: a run that has settled never changes again.
func (w *watchers) changed(id string) (changed <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.waiting[id]
	if r == nil {
		r = &watched{changed: make(chan struct{})}
		w.waiting[id] = r
	}
	r.by++
	return r.changed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if r.by--; r.by == 0 && w.waiting[id] == r {
			delete(w.waiting, id)
		}
	}
}

func (w *watchers) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.waiting[id]; r != nil {
		close(r.changed)
		delete(w.waiting, id)
	}
}
