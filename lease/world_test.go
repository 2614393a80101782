package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
)

var errHook = errors.New("the hook refuses")

type world struct {
	t      *rapid.T
	dir    string
	file   int
	db     *sqlite.DB
	q      *lease.Queue
	cancel context.CancelFunc
	run    chan error

	cfg    lease.Config
	limits map[string]lease.Limit
	model  *model

	mu     sync.Mutex
	events []lease.Event

	runners  map[string]lease.Runner // those of before, too
	ids      []string                // of those that are trusted
	sessions map[string]bool         // runners that have one
	pulls    map[string]*pulling     // by request id, those that wait
	refs     []holding               // every attempt that a runner was told of
	lost     []holding               // every attempt of which the answer was lost
	n        int
}

type pulling struct {
	runner string
	cancel context.CancelFunc
	answer chan pulled
}

type pulled struct {
	l   lease.Lease
	err error
}

type holding struct {
	lease.Ref
	runner, request string
}

func newWorld(t *rapid.T) *world {
	dir, err := os.MkdirTemp("", "everdict-lease-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, pulls: map[string]*pulling{}, sessions: map[string]bool{}}
	w.cfg = lease.Config{TTL: time.Minute, StartAck: 30 * time.Second, OnlineWindow: 30 * time.Second, Aging: time.Minute,
		MaxUnstarted: 4}
	w.limits = map[string]lease.Limit{
		"a/self": {MaxConcurrent: 3, MemoryMB: 1000, CPU: 2000}, "a/auto": {MaxConcurrent: 2, MemoryMB: 1000, CPU: 2000}, "shared": {},
	}
	w.runners = map[string]lease.Runner{
		"r1": {ID: "r1", Home: "a/self", Serves: []string{"a/self", "a/auto"}, Capabilities: []string{"docker"}, OS: "linux", Arch: "amd64"},
		"r2": {ID: "r2", Serves: []string{"a/auto", "shared"}, Capabilities: []string{"docker", "gpu"}, OS: "linux", Arch: "arm64"},
		"r3": {ID: "r3", Serves: []string{"shared"}, MemoryMB: 600},
		"r4": {ID: "r4", Home: "a/self", Serves: []string{"a/self"}},
	}
	w.ids = []string{"r1", "r2", "r3", "r4"}
	w.model = newModel(w.cfg, w.limits)
	w.open()
	return w
}

func (w *world) path() string { return filepath.Join(w.dir, fmt.Sprintf("%d.db", w.file)) }

func (w *world) open() {
	ctx := context.Background()
	var err error
	if w.db, err = sqlite.Open(ctx, sqlite.Config{Path: w.path(), Readers: 1}); err != nil {
		w.t.Fatal(err)
	}
	cfg := w.cfg
	cfg.Committed = func(evs []lease.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, evs...)
	}
	if w.q, err = lease.Open(ctx, w.db, cfg); err != nil {
		w.t.Fatal(err)
	}
	for name, l := range w.limits {
		if err := w.q.SetLimit(ctx, name, l); err != nil {
			w.t.Fatal(err)
		}
	}
	var run context.Context
	run, w.cancel = context.WithCancel(ctx)
	w.run = make(chan error, 1)
	go func() { w.run <- w.q.Run(run) }()
	synctest.Wait()
}

// shut ends the coordinator; what its callers were not told is lost with it.
func (w *world) shut() {
	w.cancel()
	err := <-w.run
	err = errors.Join(err, w.db.Close())
	for id, p := range w.pulls {
		if a := <-p.answer; a.err == nil {
			w.lost = append(w.lost, holding{a.l.Ref, p.runner, id})
		} else if !errors.Is(a.err, lease.ErrClosed) {
			err = errors.Join(err, a.err)
		}
		p.cancel()
	}
	clear(w.pulls)
	if err != nil {
		w.t.Fatalf("shutting down: %v", err)
	}
}

func (w *world) end() {
	w.shut()
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Error(err)
	}
}

// observe feeds the model what has been committed and takes the answers of pulls.
func (w *world) observe() {
	synctest.Wait()
	w.mu.Lock()
	events := w.events
	w.events = nil
	w.mu.Unlock()
	for _, ev := range events {
		if err := w.model.apply(ev, w.runners); err != nil {
			w.t.Fatalf("event %s of %s: %v\n%+v", ev.Kind, ev.Job, err, ev)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.pulls)) {
		p := w.pulls[id]
		select {
		case a := <-p.answer:
			w.answered(id, p, a)
		default:
		}
	}
}

func (w *world) answered(id string, p *pulling, a pulled) {
	p.cancel()
	delete(w.pulls, id)
	if a.err != nil {
		if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, lease.ErrSuperseded) && (!errors.Is(a.err, lease.ErrFenced) || !w.model.fenced[p.runner]) {
			w.t.Fatalf("pull %s: %v", id, a.err)
		}
		return
	}
	j := w.model.jobs[a.l.Job]
	if j == nil || j.grants[a.l.Attempt] != p.runner { // it may be over already
		w.t.Fatalf("pull %s of %s was answered %+v, the model has %+v", id, p.runner, a.l, j)
	}
	if string(a.l.Payload) != string(j.Payload) {
		w.t.Fatalf("payload of %s is %q, want %q", a.l.Job, a.l.Payload, j.Payload)
	}
	if was := j.requests[a.l.Attempt]; was != "" && was != id {
		w.t.Fatalf("attempt %d of %s was answered to requests %s and %s", a.l.Attempt, j.ID, was, id)
	}
	j.requests[a.l.Attempt] = id
	h := holding{a.l.Ref, p.runner, id}
	if rapid.IntRange(0, 3).Draw(w.t, "lose the answer") == 0 {
		w.lost = append(w.lost, h)
	} else {
		w.refs = append(w.refs, h)
	}
}

func (w *world) check(*rapid.T) {
	w.observe()
	var waiting []lease.Runner
	for _, p := range w.pulls {
		waiting = append(waiting, w.runners[p.runner])
	}
	if err := w.model.rest(time.Now(), waiting); err != nil {
		w.t.Fatal(err)
	}
	ctx := context.Background()
	var want lease.Count
	for _, j := range w.model.jobs {
		s, err := w.q.Get(ctx, j.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		if s.State != j.state || s.Attempt != j.attempt || s.Failures != j.failures || s.Outcome != j.outcome || s.Stop != j.stop && j.state == lease.Leased {
			w.t.Fatalf("the queue has %+v, the model %+v", s, j)
		}
		x, err := w.q.Explain(ctx, j.ID)
		if err != nil || x.State != j.state || x.Sentence == "" || (j.state == lease.Queued && !x.Deadline.Equal(j.deadline)) {
			w.t.Fatalf("explain %s: %+v, %v; the model has %+v", j.ID, x, err, j)
		}
		switch j.state {
		case lease.Queued:
			want.Queued++
		case lease.Leased:
			want.Leased++
		case lease.Parked:
			want.Parked++
		}
	}
	stats, err := w.q.Stats(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var got lease.Count
	for _, c := range stats.Counts {
		got.Queued, got.Leased, got.Parked = got.Queued+c.Queued, got.Leased+c.Leased, got.Parked+c.Parked
	}
	if got != want || stats.Waiting != len(w.pulls) {
		w.t.Fatalf("stats have %+v and %d pulls, the model %+v and %d", got, stats.Waiting, want, len(w.pulls))
	}
}
