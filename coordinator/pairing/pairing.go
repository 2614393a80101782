// Package pairing keeps the runners that people have paired with the
// coordinator, and those that came by themselves with a token for a pool: who owns
// them, by which token or device key they are known, and what was last seen of them.
// Presence lives in memory and reaches the database late and in batches, so that a beat
// of every runner costs nothing; a session tells it through Attach, Seen and Detach.
//
// Pairings is how a machine becomes one of them without a token: machines that ask, and
// pair codes of the dashboard. They live in memory for five minutes.
package pairing

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// WorkspaceOwnerPrefix precedes the workspace in the owner of a runner that
// belongs to all of it.
const WorkspaceOwnerPrefix = "ws:"

// WorkspaceOwner is the owner of the runners that belong to a whole workspace.
func WorkspaceOwner(workspace string) string { return WorkspaceOwnerPrefix + workspace }

// Config of Runners. Only Store is required.
type Config struct {
	Store *store.Store
	// OnRevoked is called after a revocation is durable, and again if a session
	// begins after it with what was still a good token, outside all locks; the
	// gateway closes the runner's session there (F35).
	OnRevoked func(runnerIDs ...string)
	// OnChanged is called when a runner is shown differently: paired, come, gone, busier,
	// revoked. It is called under a lock and must return at once, without calling back;
	// nil: nobody is told.
	OnChanged func(workspace, runnerID string)
	// FlushEvery is how often what was seen is written. Default 30 s: what a
	// crash can lose is how fresh lastSeenAt is.
	FlushEvery time.Duration
	// OnForgotten is called with the runners of pools whose rows are gone, outside
	// all locks; nil: nobody is told.
	OnForgotten func(runnerID string)
	// PoolLinger is how long a pool's runner that is away is still shown. Default
	// 15 min.
	PoolLinger time.Duration
	// PoolMemory is how long after that its credential stays good, for a runner that
	// is back with evidence. Default 7 days, as long as the queue remembers what has
	// settled.
	PoolMemory time.Duration
	// MinProtocol is the lowest link protocol that gets work; a runner below it
	// is shown with updateRequired. Default 1.
	MinProtocol int
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Runners are the paired runners of all workspaces. Its methods are safe for
// concurrent use.
type Runners struct {
	cfg Config

	mu sync.Mutex
	// byToken caches what tokens resolve to; a revocation drops its entry.
	byToken map[string]*store.RunnerRecord
	// rows caches the runners of a workspace, newest first, as they were when
	// they were read; present has what is newer.
	rows map[string][]store.RunnerRecord
	// changes counts pairings and revocations, so that what was read before one
	// is not cached after it.
	changes uint64
	present map[string]*presence
	// unsaved are runners whose presence is newer than their row.
	unsaved map[string]bool
	// nonces are what device sessions sign.
	nonces *nonces
	// revoked are the runners that this process has revoked: a session may have
	// begun with a token that was good a moment before.
	revoked     map[string]bool
	lastSession uint64
	// since is when this process began to see runners.
	since time.Time
	// rosters are what Roster made; any change of who is there clears them.
	rosters map[string][]protocol.Runner
}

// presence is what is known of a runner beyond its row, from its first session
// on until it is revoked.
type presence struct {
	runner protocol.Runner
	// session numbers the live session, 0 if there is none. The newest is the
	// runner's: one that it took over from no longer counts.
	session uint64
	// workspace is the runner's own.
	workspace string
}

// Bounds of the caches: beyond them, the database is asked.
const (
	maxCachedTokens     = 100_000
	maxCachedWorkspaces = 10_000
)

// New returns the runners in cfg.Store. Run has to run for lastSeenAt to be
// written.
func New(cfg Config) *Runners {
	cfg.FlushEvery = cmp.Or(cfg.FlushEvery, 30*time.Second)
	cfg.MinProtocol = cmp.Or(cfg.MinProtocol, 1)
	cfg.PoolLinger = cmp.Or(cfg.PoolLinger, 15*time.Minute)
	cfg.PoolMemory = cmp.Or(cfg.PoolMemory, 7*24*time.Hour)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Runners{
		cfg:     cfg,
		since:   cfg.Now(),
		nonces:  newNonces(cfg.Now),
		byToken: make(map[string]*store.RunnerRecord),
		rows:    make(map[string][]store.RunnerRecord),
		present: make(map[string]*presence),
		unsaved: make(map[string]bool),
		revoked: make(map[string]bool),
		rosters: make(map[string][]protocol.Runner),
	}
}

var (
	_ auth.RunnerTokens = (*Runners)(nil)
	_ auth.PoolTokens   = (*Runners)(nil)
)

// Pair adds a runner that belongs to owner, a subject or WorkspaceOwner, and
// returns it with its token, which exists nowhere else.
func (r *Runners) Pair(ctx context.Context, workspace, owner string, req protocol.PairRequest) (protocol.Paired, error) {
	if err := req.Validate(); err != nil {
		return protocol.Paired{}, err
	}
	token := protocol.NewCredential(protocol.RunnerTokenPrefix)
	record := store.RunnerRecord{
		Runner: protocol.Runner{
			ID:           protocol.NewID(protocol.RunnerPrefix),
			Label:        req.Label,
			Owner:        owner,
			OS:           req.OS,
			Capabilities: distinct(req.Capabilities),
			PairedAt:     protocol.At(r.cfg.Now()),
		},
		Workspace: workspace,
		TokenHash: store.HashSecret(token),
	}
	if err := r.cfg.Store.InsertRunner(ctx, record); err != nil {
		return protocol.Paired{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(workspace)
	r.tell(workspace, record.ID)
	return protocol.Paired{Runner: r.view(&record), Token: token}, nil
}

// distinct is a sorted copy without duplicates, never nil.
func distinct(names []string) []string {
	all := append([]string{}, names...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Resolve finds the runner that a token or a device session belongs to; an unknown one
// is store.ErrNotFound, and a revoked runner comes with RevokedAt set. A device session
// is good once (auth.ErrNonce). The runner is as it was last written, without presence.
func (r *Runners) Resolve(ctx context.Context, token string) (*store.RunnerRecord, error) {
	if strings.HasPrefix(token, protocol.DeviceSessionPrefix) {
		return r.resolveDevice(ctx, token)
	}
	hash := store.HashSecret(token)
	r.mu.Lock()
	record, found := r.byToken[hash]
	changes := r.changes
	r.mu.Unlock()
	if found {
		return record, nil
	}
	record, err := r.cfg.Store.RunnerByToken(ctx, hash)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(record.TokenHash), []byte(hash)) != 1 {
		return nil, store.ErrNotFound
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == changes && len(r.byToken) < maxCachedTokens {
		r.byToken[hash] = record
	}
	return record, nil
}

// Get is one runner of a workspace that is not revoked, with its presence.
func (r *Runners) Get(ctx context.Context, workspace, id string) (protocol.Runner, error) {
	record, err := r.cfg.Store.Runner(ctx, id)
	if err == nil && (record.Workspace != workspace || record.RevokedAt != nil) {
		err = store.ErrNotFound
	}
	if errors.Is(err, store.ErrNotFound) {
		return protocol.Runner{}, protocol.NotFound("no runner %q in this workspace", protocol.Clip(id, 80)).
			WithHint("GET /workspace/runners lists them, POST /runners pairs one")
	}
	if err != nil {
		return protocol.Runner{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view(record), nil
}

// List are the runners of a workspace, newest first, with their presence. owner
// narrows it to one owner's; empty: everybody's.
func (r *Runners) List(ctx context.Context, workspace, owner string) ([]protocol.Runner, error) {
	rows, err := r.read(ctx, workspace)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	runners := []protocol.Runner{}
	for i := range rows {
		if v := r.view(&rows[i]); (owner == "" || v.Owner == owner) && shown(&v) {
			runners = append(runners, v)
		}
	}
	return runners, nil
}

// shown says whether a runner is in lists: one that is there for a unit or a run will not be
// back, and does not linger.
func shown(r *protocol.Runner) bool { return r.Unit == "" && r.Job == "" || r.Online }

// Roster is List without an owner for those who ask at every submit: the slice
// is made anew only when a runner was paired, came, went or was revoked, so that
// Busy, Status and LastSeenAt may be old. It is shared: callers must not change
// it.
func (r *Runners) Roster(ctx context.Context, workspace string) ([]protocol.Runner, error) {
	r.mu.Lock()
	roster, found := r.rosters[workspace]
	r.mu.Unlock()
	if found {
		return roster, nil
	}
	rows, err := r.read(ctx, workspace)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	roster = make([]protocol.Runner, 0, len(rows))
	for i := range rows {
		if v := r.view(&rows[i]); shown(&v) {
			roster = append(roster, v)
		}
	}
	if _, current := r.rows[workspace]; current {
		r.rosters[workspace] = roster
	}
	return roster, nil
}

// read is the rows of a workspace. They are shared and never changed.
func (r *Runners) read(ctx context.Context, workspace string) ([]store.RunnerRecord, error) {
	r.mu.Lock()
	rows, found := r.rows[workspace]
	changes := r.changes
	r.mu.Unlock()
	if found {
		return rows, nil
	}
	rows, err := r.cfg.Store.Runners(ctx, workspace)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == changes {
		if len(r.rows) >= maxCachedWorkspaces {
			clear(r.rows)
			clear(r.rosters)
		}
		r.rows[workspace] = rows
	}
	return rows, nil
}

// changed forgets what was read of a workspace. The caller holds mu.
func (r *Runners) changed(workspace string) {
	r.changes++
	delete(r.rows, workspace)
	delete(r.rosters, workspace)
}

// Revoke ends a pairing that belongs to owner (empty: to anybody in the
// workspace): its token is dead, its session is closed. To revoke one that is not there is no error; revoked says whether one
// was.
func (r *Runners) Revoke(ctx context.Context, workspace, owner, id string) (revoked bool, err error) {
	record, err := r.cfg.Store.Runner(ctx, id)
	if err == nil && (record.Workspace != workspace || owner != "" && record.Owner != owner) {
		return false, nil
	}
	if err == nil {
		err = r.cfg.Store.RevokeRunner(ctx, workspace, id, protocol.At(r.cfg.Now()))
	}
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.changed(workspace)
	r.tell(workspace, id)
	r.revoked[id] = true
	delete(r.byToken, record.TokenHash)
	delete(r.present, id)
	delete(r.unsaved, id)
	r.mu.Unlock()
	r.nonces.forget(id)
	if r.cfg.OnRevoked != nil {
		r.cfg.OnRevoked(id)
	}
	return true, nil
}

// view joins a row with what memory knows and derives the rest. The caller holds
// mu.
func (r *Runners) view(record *store.RunnerRecord) protocol.Runner {
	runner := record.Runner
	runner.Online = false
	if p := r.present[runner.ID]; p != nil {
		runner = p.runner
		runner.Online = p.session != 0
	}
	if !runner.Online {
		// Nobody is there to be busy or to have a status.
		runner.Busy, runner.Status, runner.Paused = 0, nil, ""
	}
	runner.UpdateRequired = runner.Protocol < r.cfg.MinProtocol
	runner.Target = protocol.TargetSelfPrefix + runner.ID
	if runner.Runtime != "" {
		runner.Target = runner.Runtime
	}
	if runner.Capabilities == nil {
		runner.Capabilities = []string{}
	}
	return runner
}

// save writes what was seen since the last time.
func (r *Runners) save(ctx context.Context) error {
	r.mu.Lock()
	seen := make([]protocol.Runner, 0, len(r.unsaved))
	for id := range r.unsaved {
		row := r.present[id].runner
		row.Online, row.Busy, row.Status, row.Paused = false, 0, nil, ""
		seen = append(seen, row)
	}
	clear(r.unsaved)
	r.mu.Unlock()
	if len(seen) == 0 {
		return nil
	}
	back, err := r.cfg.Store.TouchRunners(ctx, seen)
	if err != nil {
		r.mu.Lock()
		for _, runner := range seen {
			if r.present[runner.ID] != nil {
				r.unsaved[runner.ID] = true
			}
		}
		r.mu.Unlock()
		return fmt.Errorf("pairing: save what was seen: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, workspace := range back {
		r.changed(workspace)
	}
	return nil
}
