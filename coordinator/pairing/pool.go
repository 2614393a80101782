package pairing

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// PoolOwnerPrefix precedes the runtime in the owner of a runner that joined its
// pool: nobody who could sign in.
const PoolOwnerPrefix = "runtime:"

// poolPrefixLength is how much of a pool token is kept to recognise it by.
const poolPrefixLength = 12

// CreatePoolToken issues a token with which machines join the pool of a runtime,
// which the caller knows to be registered. It is returned once and exists nowhere
// else.
func (r *Runners) CreatePoolToken(ctx context.Context, workspace, by string, req protocol.PoolTokenRequest) (protocol.IssuedPoolToken, error) {
	if err := req.Validate(); err != nil {
		return protocol.IssuedPoolToken{}, err
	}
	token := protocol.NewCredential(protocol.PoolTokenPrefix)
	now := r.cfg.Now()
	record := store.PoolTokenRecord{
		PoolToken: protocol.PoolToken{
			ID: protocol.NewID(protocol.PoolTokenIDPrefix), Runtime: req.Runtime, Label: req.Label, Prefix: token[:poolPrefixLength],
			CreatedBy: by, CreatedAt: protocol.At(now), ExpiresAt: protocol.At(now.Add(req.Life())),
		},
		Workspace: workspace, Hash: store.HashSecret(token),
	}
	if err := r.cfg.Store.InsertPoolToken(ctx, record); err != nil {
		return protocol.IssuedPoolToken{}, err
	}
	return protocol.IssuedPoolToken{PoolToken: record.PoolToken, Token: token}, nil
}

// PoolTokens are the tokens of a workspace that are not revoked, expired ones
// included, newest first.
func (r *Runners) PoolTokens(ctx context.Context, workspace string) ([]protocol.PoolToken, error) {
	records, err := r.cfg.Store.PoolTokens(ctx, workspace)
	tokens := make([]protocol.PoolToken, len(records))
	for i := range records {
		tokens[i] = records[i].PoolToken
	}
	return tokens, err
}

// RevokePoolToken ends a token and, with it, every runner that joined with it: their
// tokens are dead and their sessions are closed (F35). To revoke one that is not
// there is no error; revoked says whether one was.
func (r *Runners) RevokePoolToken(ctx context.Context, workspace, id string) (revoked bool, err error) {
	joined, err := r.cfg.Store.RevokePoolToken(ctx, workspace, id, protocol.At(r.cfg.Now()))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.changed(workspace)
	for _, k := range joined {
		r.revoked[k.ID] = true
		r.drop(k)
		r.tell(k.Workspace, k.ID)
	}
	r.mu.Unlock()
	if r.cfg.OnRevoked != nil && len(joined) > 0 {
		ids := make([]string, len(joined))
		for i, k := range joined {
			ids[i] = k.ID
		}
		r.cfg.OnRevoked(ids...)
	}
	return true, nil
}

// drop forgets what memory has of a runner. The caller holds mu.
func (r *Runners) drop(k store.RunnerKey) {
	delete(r.byToken, k.TokenHash)
	delete(r.present, k.ID)
	delete(r.unsaved, k.ID)
}

// ResolvePool finds what a pool token stands for; an unknown one is
// store.ErrNotFound, one that is revoked or expired comes as it is.
func (r *Runners) ResolvePool(ctx context.Context, token string) (*store.PoolTokenRecord, error) {
	hash := store.HashSecret(token)
	record, err := r.cfg.Store.PoolTokenByHash(ctx, hash)
	if err == nil && subtle.ConstantTimeCompare([]byte(record.Hash), []byte(hash)) != 1 {
		return nil, store.ErrNotFound
	}
	return record, err
}

// Join gives a machine that came with a pool token an identity of its own in that
// pool. The token's record is as ResolvePool gave it; if it has been revoked or has
// expired since, this is a 401.
func (r *Runners) Join(ctx context.Context, pool *store.PoolTokenRecord, req protocol.JoinRequest) (protocol.Joined, error) {
	if err := req.Validate(); err != nil {
		return protocol.Joined{}, err
	}
	joined, record := r.member(pool.Workspace, pool.Runtime, pool.ID, req)
	err := r.cfg.Store.JoinRunner(ctx, record)
	if errors.Is(err, store.ErrNotFound) {
		return protocol.Joined{}, protocol.Unauthenticated("this pool token is not good any more")
	}
	if err != nil {
		return protocol.Joined{}, err
	}
	return r.joined(joined, record), nil
}

// CreateJoinToken issues the token with which the runner of one launched unit joins
// the pool of a runtime, to take job, or, if that is empty, what it is bound to later. It
// is good once, for life; an earlier one of the same unit is dead. It exists nowhere else.
func (r *Runners) CreateJoinToken(ctx context.Context, workspace, runtime, unit, job string, life time.Duration) (string, error) {
	token := protocol.NewCredential(protocol.JoinTokenPrefix)
	now := r.cfg.Now()
	return token, r.cfg.Store.PutJoinToken(ctx, store.JoinTokenRecord{
		Unit: unit, Job: job, ID: protocol.NewID(protocol.JoinTokenIDPrefix), Workspace: workspace, Runtime: runtime,
		Hash: store.HashSecret(token), ExpiresAt: protocol.At(now.Add(life)),
	}, before(now, r.cfg.PoolLinger))
}

// ResolveJoin finds what the token of a launched unit stands for; an unknown one is
// store.ErrNotFound, one that is used or expired comes as it is.
func (r *Runners) ResolveJoin(ctx context.Context, token string) (*store.JoinTokenRecord, error) {
	hash := store.HashSecret(token)
	record, err := r.cfg.Store.JoinTokenByHash(ctx, hash)
	if err == nil && subtle.ConstantTimeCompare([]byte(record.Hash), []byte(hash)) != 1 {
		return nil, store.ErrNotFound
	}
	return record, err
}

// JoinOnce gives the runner of a launched unit its identity. The token's record is as
// ResolveJoin gave it; if it has been used, replaced or has expired since, this is a
// 401.
func (r *Runners) JoinOnce(ctx context.Context, join *store.JoinTokenRecord, req protocol.JoinRequest) (protocol.Joined, error) {
	if err := req.Validate(); err != nil {
		return protocol.Joined{}, err
	}
	joined, record := r.member(join.Workspace, join.Runtime, join.ID, req)
	record.Label, record.Unit, record.Job = join.Unit, join.Unit, join.Job
	err := r.cfg.Store.JoinOnce(ctx, record)
	if errors.Is(err, store.ErrNotFound) {
		return protocol.Joined{}, protocol.Unauthenticated("this join token is not good any more").WithData("reason", "used")
	}
	if err != nil {
		return protocol.Joined{}, err
	}
	return r.joined(joined, record), nil
}

// Holder adds the runner that holds a payload of a run until a moment at most. It takes
// that run and no other, and is not shown while it is away.
func (r *Runners) Holder(ctx context.Context, workspace, owner, run string, until time.Time) (protocol.Paired, error) {
	return r.holder(ctx, workspace, protocol.Runner{Label: "payload", Owner: owner, Job: run}, until)
}

// UnitHolder is Holder for a launched unit, whose runner is one of the runtime's pool.
func (r *Runners) UnitHolder(ctx context.Context, workspace, runtime, unit, run string, until time.Time) (protocol.Paired, error) {
	return r.holder(ctx, workspace, protocol.Runner{Label: unit, Owner: PoolOwnerPrefix + runtime, Runtime: runtime, Unit: unit, Job: run}, until)
}

func (r *Runners) holder(ctx context.Context, workspace string, of protocol.Runner, until time.Time) (protocol.Paired, error) {
	token := protocol.NewCredential(protocol.RunnerTokenPrefix)
	of.ID, of.Capabilities, of.PairedAt = protocol.NewID(protocol.RunnerPrefix), []string{}, protocol.At(r.cfg.Now())
	record := store.RunnerRecord{Runner: of, Workspace: workspace, TokenHash: store.HashSecret(token)}
	if err := r.cfg.Store.InsertHolder(ctx, record, protocol.At(until)); err != nil {
		return protocol.Paired{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(workspace)
	return protocol.Paired{Runner: r.view(&record), Token: token}, nil
}

// member is a new runner of a pool.
func (r *Runners) member(workspace, runtime, token string, req protocol.JoinRequest) (protocol.Joined, store.RunnerRecord) {
	joined := protocol.Joined{Token: protocol.NewCredential(protocol.RunnerTokenPrefix)}
	now := protocol.At(r.cfg.Now())
	return joined, store.RunnerRecord{
		Runner: protocol.Runner{
			ID: protocol.NewID(protocol.RunnerPrefix), Label: cmp.Or(req.Label, runtime), Owner: PoolOwnerPrefix + runtime, Runtime: runtime,
			OS: req.OS, Capabilities: []string{}, PairedAt: now, LastSeenAt: &now,
		},
		Workspace: workspace, TokenHash: store.HashSecret(joined.Token), PoolToken: token,
	}
}

// joined makes a new runner known, and the answer that it gets.
func (r *Runners) joined(joined protocol.Joined, record store.RunnerRecord) protocol.Joined {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(record.Workspace)
	r.tell(record.Workspace, record.ID)
	joined.Runner = r.view(&record)
	return joined
}

// tidy takes the runners of pools that have been away for PoolLinger out of the
// lists, and forgets those that were not back in PoolMemory. A process that has
// just begun does neither: it cannot know yet who is away.
func (r *Runners) tidy(ctx context.Context) error {
	now := r.cfg.Now()
	if now.Sub(r.since) < r.cfg.PoolLinger {
		return nil
	}
	gone, forgotten, err := r.cfg.Store.TidyRunners(ctx, protocol.At(now), before(now, r.cfg.PoolLinger), before(now, r.cfg.PoolMemory))
	if err != nil || len(gone)+len(forgotten) == 0 {
		return err
	}
	r.mu.Lock()
	for _, k := range gone {
		r.tell(k.Workspace, k.ID)
		if p := r.present[k.ID]; p != nil && p.session == 0 {
			r.drop(k)
		}
	}
	for _, k := range forgotten {
		r.drop(k)
		delete(r.revoked, k.ID)
	}
	if len(gone) > 0 {
		// Whose workspaces these are is not worth knowing: it happens rarely.
		r.changes++
		clear(r.rows)
		clear(r.rosters)
	}
	if len(forgotten) > 0 {
		r.changes++
	}
	r.mu.Unlock()
	if r.cfg.OnForgotten != nil {
		for _, k := range forgotten {
			r.cfg.OnForgotten(k.ID)
		}
	}
	return nil
}

func before(now time.Time, d time.Duration) protocol.Time { return protocol.At(now.Add(-d)) }
