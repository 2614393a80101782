package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// The feed of changes is one ring for all workspaces. A follower keeps nothing but
// its place in it: one that reads too slowly for the ring finds its place gone, and
// is told to read its lists anew.
const (
	// feedSize is how many changes the ring holds.
	feedSize = 1 << 15
	// feedRows is how many runs one event carries at most, and feedBurst how many
	// changed ones are worth sending one by one; beyond, the lists are read anew.
	feedRows, feedBurst = 200, 2000
	// feedPause collects what changes meanwhile; feedSlow is the pause of what changes
	// all the time: runners and pools.
	feedPause = 250 * time.Millisecond
	feedSlow  = time.Second
)

// change is one entry of the ring: a run or a runner that is not what it was.
type change struct {
	workspace, id string
	runner        bool
}

// feed is safe for concurrent use. Its zero value is not ready: use newFeed.
type feed struct {
	// process is part of each id, so that ids of another process are known as such.
	process string

	mu   sync.Mutex
	ring []change
	next int64 // number of the change to come; the ring has those from next-len(ring) on
	// waiting are closed with the next change of a workspace.
	waiting map[string]chan struct{}
}

func newFeed() *feed {
	return &feed{process: strings.ToLower(rand.Text()[:6]), next: 1, waiting: map[string]chan struct{}{}}
}

func (f *feed) add(changes ...change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range changes {
		if len(f.ring) < feedSize {
			f.ring = append(f.ring, c)
		} else {
			f.ring[(f.next-1)%feedSize] = c
		}
		f.next++
		if wait := f.waiting[c.workspace]; wait != nil {
			close(wait)
			delete(f.waiting, c.workspace)
		}
	}
}

// at is the change with a number, which the ring has. The caller holds mu.
func (f *feed) at(n int64) change {
	return f.ring[(n-1)%feedSize]
}

// changes are the runs and runners of a workspace that changed from number from on,
// each once, and the number to go on from. lost says that the ring has not all of
// them any more. Without any, wait is closed with the next one.
func (f *feed) changes(workspace string, from int64) (runs, runners []string, next int64, lost bool, wait <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from < f.next-int64(len(f.ring)) || from > f.next {
		return nil, nil, f.next, true, nil
	}
	seen := map[change]bool{}
	for n := f.next - 1; n >= from; n-- { // from the end, so that the last change gives a run its place
		c := f.at(n)
		if c.workspace != workspace || seen[c] {
			continue
		}
		seen[c] = true
		if c.runner {
			runners = append(runners, c.id)
		} else {
			runs = append(runs, c.id)
		}
	}
	slices.Reverse(runs)
	if len(seen) == 0 {
		w := f.waiting[workspace]
		if w == nil {
			w = make(chan struct{})
			f.waiting[workspace] = w
		}
		wait = w
	}
	return runs, runners, f.next, false, wait
}

func (f *feed) id(n int64) string { return f.process + "-" + strconv.FormatInt(n, 10) }

// place reads an id back; why is not empty if there is no going on from it.
func (f *feed) place(id string) (from int64, why string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == "" {
		return f.next, "", nil
	}
	process, n, found := strings.Cut(id, "-")
	from, bad := strconv.ParseInt(n, 10, 64)
	switch {
	case !found || process == "" || bad != nil || from < 1:
		return 0, "", protocol.BadRequest("%q is not the id of an event of this stream", protocol.Clip(id, 80)).
			WithHint("leave Last-Event-ID out to begin now")
	case process != f.process:
		return f.next, protocol.ResetRestart, nil
	case from < f.next-int64(len(f.ring)) || from > f.next:
		return f.next, protocol.ResetTooOld, nil
	}
	return from, "", nil
}

// RunnerChanged says that a runner is not what it was: it came, went, or has more or
// less to do.
func (s *Service) RunnerChanged(workspace, id string) {
	s.feed.add(change{workspace: workspace, id: id, runner: true})
}

// Follow sends what changes in the principal's workspace from now on, or from after,
// the id of the last event that was seen. The channel closes when ctx ends.
func (s *Service) Follow(ctx context.Context, p auth.Principal, after string) (<-chan protocol.FeedEvent, error) {
	from, why, err := s.feed.place(after)
	if err != nil {
		return nil, err
	}
	f := &follower{s: s, p: p, from: from, out: make(chan protocol.FeedEvent), runners: map[string]bool{}}
	go func() {
		defer close(f.out)
		if err := f.run(ctx, why); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "event stream ended", "workspace", p.Workspace, "err", err)
		}
	}()
	return f.out, nil
}

// follower is one reader of the feed.
type follower struct {
	s    *Service
	p    auth.Principal
	from int64
	out  chan protocol.FeedEvent

	// runners that changed since they were last sent.
	runners map[string]bool
	// dirty says that something changed since pools were looked at; pools are as sent.
	dirty  bool
	pools  []protocol.PoolUse
	slowAt time.Time
}

func (f *follower) send(ctx context.Context, e protocol.FeedEvent) error {
	e.ID = f.s.feed.id(f.from)
	select {
	case f.out <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *follower) reset(ctx context.Context, why string) error {
	clear(f.runners)
	return f.send(ctx, protocol.FeedEvent{Kind: protocol.FeedReset, Reason: why})
}

func (f *follower) run(ctx context.Context, why string) (err error) {
	if err := f.send(ctx, protocol.FeedEvent{Kind: protocol.FeedHello, At: f.s.now()}); err != nil {
		return err
	}
	if why != "" {
		if err := f.reset(ctx, why); err != nil {
			return err
		}
	}
	if f.pools, err = f.s.poolUse(ctx, f.p); err != nil {
		return err
	}
	f.slowAt = time.Now()
	for {
		runs, runners, next, lost, wait := f.s.feed.changes(f.p.Workspace, f.from)
		f.from = next
		for _, id := range runners {
			f.runners[id] = true
		}
		f.dirty = f.dirty || lost || len(runs)+len(runners) > 0
		switch {
		case lost:
			err = f.reset(ctx, protocol.ResetSlow)
		case len(runs) > feedBurst:
			err = f.reset(ctx, protocol.ResetSlow)
		default:
			err = f.sendRuns(ctx, runs)
		}
		if err == nil && f.dirty && time.Since(f.slowAt) >= feedSlow {
			err = f.sendSlow(ctx)
		}
		if err == nil {
			err = f.pause(ctx, wait)
		}
		if err != nil {
			return err
		}
	}
}

// pause waits for a change, or until what is held back is due.
func (f *follower) pause(ctx context.Context, wait <-chan struct{}) error {
	var due <-chan time.Time
	if f.dirty {
		due = time.After(time.Until(f.slowAt.Add(feedSlow)))
	}
	if wait != nil {
		select {
		case <-wait:
		case <-due:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-time.After(feedPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *follower) sendRuns(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, feedRows) {
		rows := make([]protocol.Run, 0, len(chunk))
		for _, id := range chunk {
			r, err := f.s.cfg.Store.Run(ctx, f.p.Workspace, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			rows = append(rows, *r)
		}
		if len(rows) == 0 {
			continue
		}
		if err := f.send(ctx, protocol.FeedEvent{Kind: protocol.FeedRuns, Runs: rows}); err != nil {
			return err
		}
	}
	return nil
}

// sendSlow sends the runners and pools that are not as they were sent.
func (f *follower) sendSlow(ctx context.Context) error {
	f.slowAt, f.dirty = time.Now(), false
	if len(f.runners) > 0 {
		all, err := f.s.cfg.Runners.List(ctx, f.p.Workspace, "")
		if err != nil {
			return err
		}
		e := protocol.FeedEvent{Kind: protocol.FeedRunners, Runners: []protocol.Runner{}, Removed: []string{}}
		for i := range all {
			if f.runners[all[i].ID] {
				e.Runners = append(e.Runners, all[i])
				delete(f.runners, all[i].ID)
			}
		}
		for id := range f.runners {
			e.Removed = append(e.Removed, id)
		}
		slices.Sort(e.Removed)
		clear(f.runners)
		if err := f.send(ctx, e); err != nil {
			return err
		}
	}
	pools, err := f.s.poolUse(ctx, f.p)
	if err != nil || slices.Equal(pools, f.pools) {
		return err
	}
	f.pools = pools
	return f.send(ctx, protocol.FeedEvent{Kind: protocol.FeedPools, Pools: pools})
}

// poolUse are the pools of a workspace without their runners, by runtime.
func (s *Service) poolUse(ctx context.Context, p auth.Principal) ([]protocol.PoolUse, error) {
	pools, err := s.Pools(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("run: read the pools: %w", err)
	}
	use := make([]protocol.PoolUse, len(pools))
	for i, pool := range pools {
		use[i] = pool.PoolUse
	}
	slices.SortFunc(use, func(a, b protocol.PoolUse) int { return cmp.Compare(a.Runtime, b.Runtime) })
	return use, nil
}
