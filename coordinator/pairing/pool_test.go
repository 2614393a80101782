package pairing_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

func poolToken(t testing.TB, r *pairing.Runners, life time.Duration) protocol.IssuedPoolToken {
	t.Helper()
	s := int64(life / time.Second)
	issued, err := r.CreatePoolToken(t.Context(), "default", "ann", protocol.PoolTokenRequest{Runtime: "prod", ExpiresInSec: &s})
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

func join(t testing.TB, r *pairing.Runners, token string) (protocol.Joined, error) {
	t.Helper()
	pool, err := r.ResolvePool(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return r.Join(t.Context(), pool, protocol.JoinRequest{Label: "pod"})
}

func labels(t testing.TB, r *pairing.Runners) (ids []string) {
	t.Helper()
	list, err := r.List(t.Context(), "default", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, runner := range list {
		ids = append(ids, runner.ID)
	}
	return ids
}

// TestF35_ARevokedPoolTokenEndsItsRunners: all that joined with it, and no other.
func TestF35_ARevokedPoolTokenEndsItsRunners(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ended []string
	r := pairing.New(pairing.Config{Store: open(t), OnRevoked: func(ids ...string) {
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, ids...)
	}})
	paired := pair(t, r, "dev", "mac")
	one, other := poolToken(t, r, time.Hour), poolToken(t, r, time.Hour)
	var joined []protocol.Joined
	for _, token := range []string{one.Token, one.Token, other.Token} {
		j, err := join(t, r, token)
		if err != nil {
			t.Fatal(err)
		}
		joined = append(joined, j)
		record, err := r.Resolve(t.Context(), j.Token)
		if err != nil || record.Runtime != "prod" || record.Workspace != "default" {
			t.Fatalf("the identity resolves to %+v, %v", record, err)
		}
		defer r.Attach(record.Runner, hello)()
	}
	if ok, err := r.RevokePoolToken(t.Context(), "other", one.PoolToken.ID); ok || err != nil {
		t.Errorf("from another workspace: %v, %v", ok, err)
	}
	if ok, err := r.RevokePoolToken(t.Context(), "default", one.PoolToken.ID); !ok || err != nil {
		t.Fatalf("revoke: %v, %v", ok, err)
	}
	want := []string{joined[0].Runner.ID, joined[1].Runner.ID}
	slices.Sort(ended)
	slices.Sort(want)
	if !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
	for i, j := range joined {
		record, err := r.Resolve(t.Context(), j.Token)
		if gone := i < 2; err != nil || (record.RevokedAt != nil) != gone || r.Revoked(j.Runner.ID) != gone {
			t.Errorf("runner %d: %+v, %v; revoked: want %v", i, record, err, gone)
		}
	}
	if got := labels(t, r); !slices.Equal(got, []string{joined[2].Runner.ID, paired.Runner.ID}) {
		t.Errorf("the list has %q", got)
	}
	if _, err := join(t, r, one.Token); err == nil {
		t.Error("a machine joined with a revoked token")
	}
	// A record that was resolved a moment before does not help.
	pool, err := r.ResolvePool(t.Context(), other.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.RevokePoolToken(t.Context(), "default", other.PoolToken.ID); err != nil {
		t.Fatal(err)
	}
	var problem *protocol.Problem
	if _, err := r.Join(t.Context(), pool, protocol.JoinRequest{}); !errors.As(err, &problem) || problem.Status != 401 {
		t.Errorf("joined with a token that was revoked meanwhile: %v, want a 401", err)
	}
}

// TestAPoolTokenExpires: nobody joins with it any more; who is there stays.
func TestAPoolTokenExpires(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := pairing.New(pairing.Config{Store: open(t), Now: func() time.Time { return now }})
	issued := poolToken(t, r, time.Hour)
	joined, err := join(t, r, issued.Token)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if _, err := join(t, r, issued.Token); err == nil {
		t.Error("a machine joined with an expired token")
	}
	if record, err := r.Resolve(t.Context(), joined.Token); err != nil || record.RevokedAt != nil {
		t.Errorf("who joined before: %+v, %v; want it to stay", record, err)
	}
	if tokens, err := r.PoolTokens(t.Context(), "default"); err != nil || len(tokens) != 1 {
		t.Errorf("listed: %+v, %v; want the expired one too", tokens, err)
	}
}

// TestAPoolsRunnersComeAndGo: one that is away leaves the list after a while, is
// back with its identity, and is forgotten when it stays away; paired ones stay.
func TestAPoolsRunnersComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := open(t)
		var forgotten []string
		r := pairing.New(pairing.Config{Store: st, FlushEvery: 5 * time.Minute, OnForgotten: func(id string) { forgotten = append(forgotten, id) }})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		paired := pair(t, r, "dev", "mac")
		issued := poolToken(t, r, 300*24*time.Hour)
		stays, err := join(t, r, issued.Token)
		if err != nil {
			t.Fatal(err)
		}
		leaves, err := join(t, r, issued.Token)
		if err != nil {
			t.Fatal(err)
		}
		resolve := func(j protocol.Joined) protocol.Runner {
			t.Helper()
			record, err := r.Resolve(t.Context(), j.Token)
			if err != nil {
				t.Fatalf("resolve %s: %v", j.Runner.ID, err)
			}
			return record.Runner
		}
		defer r.Attach(resolve(stays), hello)()
		beats := time.NewTicker(4 * time.Minute)
		defer beats.Stop()
		go func() {
			for {
				select {
				case <-beats.C:
					r.Seen(stays.Runner.ID, pairing.Beat{})
				case <-ctx.Done():
					return
				}
			}
		}()
		shown := func(what string, want ...string) {
			t.Helper()
			got := labels(t, r)
			want = append(want, paired.Runner.ID)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s the list has %q, want %q", what, got, want)
			}
		}
		detach := r.Attach(resolve(leaves), hello)
		pass(time.Hour)
		r.Seen(leaves.Runner.ID, pairing.Beat{})
		detach()
		pass(10 * time.Minute)
		shown("after a short while", stays.Runner.ID, leaves.Runner.ID)
		pass(15 * time.Minute)
		shown("after a long one", stays.Runner.ID)
		detach = r.Attach(resolve(leaves), hello)
		pass(6 * time.Minute)
		shown("when it is back", stays.Runner.ID, leaves.Runner.ID)
		detach()
		pass(24 * time.Hour)
		shown("a day later", stays.Runner.ID)
		resolve(leaves) // it may still bring evidence
		pass(8 * 24 * time.Hour)
		if _, err := r.Resolve(t.Context(), leaves.Token); !errors.Is(err, store.ErrNotFound) || !slices.Equal(forgotten, []string{leaves.Runner.ID}) {
			t.Errorf("a week later it resolves to %v, forgotten %q", err, forgotten)
		}
		shown("a week later", stays.Runner.ID)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestP4_ARestartForgetsNobody: a coordinator that was away for long does not know
// who else was.
func TestP4_ARestartForgetsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := open(t)
		before := pairing.New(pairing.Config{Store: st})
		joined, err := join(t, before, poolToken(t, before, time.Hour).Token)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * 24 * time.Hour)
		r := pairing.New(pairing.Config{Store: st})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := labels(t, r); !slices.Equal(got, []string{joined.Runner.ID}) {
			t.Errorf("ten minutes after a start the list has %q, want %q", got, joined.Runner.ID)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A join token is good once, for the unit that it was made for last; its runner is
// bound to one run.
func TestJoinTokenIsUsedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := pairing.New(pairing.Config{Store: open(t), Now: func() time.Time { return now }})
	create := func(unit string) string {
		t.Helper()
		token, err := r.CreateJoinToken(t.Context(), "default", "prod", unit, "run_1", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	resolve := func(token string) *store.JoinTokenRecord {
		t.Helper()
		record, err := r.ResolveJoin(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	refused := func(what string, join *store.JoinTokenRecord) {
		t.Helper()
		var problem *protocol.Problem
		if _, err := r.JoinOnce(t.Context(), join, protocol.JoinRequest{}); !errors.As(err, &problem) || problem.Status != 401 {
			t.Errorf("%s: %v, want a 401", what, err)
		}
	}
	first := resolve(create("unit-1"))
	second := create("unit-1")
	refused("a token that was replaced", first)
	join := resolve(second)
	joined, err := r.JoinOnce(t.Context(), join, protocol.JoinRequest{})
	if err != nil || joined.Runner.Job != "run_1" || joined.Runner.Unit != "unit-1" || joined.Runner.Runtime != "prod" {
		t.Fatalf("join: %+v, %v", joined, err)
	}
	record, err := r.Resolve(t.Context(), joined.Token)
	if err != nil || record.ID != joined.Runner.ID || record.Job != "run_1" {
		t.Errorf("its own token resolves to %+v, %v", record, err)
	}
	refused("the same token again", join)
	if used := resolve(second); used.UsedAt == nil {
		t.Error("the token is not marked as used")
	}
	late := resolve(create("unit-2"))
	now = now.Add(time.Hour)
	refused("an expired token", late)
	if _, err := r.ResolveJoin(t.Context(), "jnt_none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown token: %v", err)
	}
}
