package pairing_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

func open(t testing.TB) *store.Store {
	t.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(t.TempDir(), "everdict.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := store.Open(context.Background(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pair(t testing.TB, r *pairing.Runners, owner, label string) protocol.Paired {
	t.Helper()
	p, err := r.Pair(t.Context(), "default", owner, protocol.PairRequest{Label: label, Capabilities: []string{"git", "docker", "git"}})
	if err != nil {
		t.Fatalf("pair %s: %v", label, err)
	}
	return p
}

var hello = pairing.Hello{Version: "1.0.0", Protocol: 1, OS: "linux", Arch: "amd64", Hostname: "box", Capabilities: []string{"git"}, Slots: 2}

func get(t testing.TB, r *pairing.Runners, id string) protocol.Runner {
	t.Helper()
	runner, err := r.Get(t.Context(), "default", id)
	if err != nil {
		t.Fatalf("get %s: %v", id, err)
	}
	return runner
}

func TestPairResolveRevoke(t *testing.T) {
	t.Parallel()
	st := open(t)
	var revoked []string
	r := pairing.New(pairing.Config{Store: st, OnRevoked: func(ids ...string) { revoked = append(revoked, ids...) }})
	p := pair(t, r, "dev", "mac")
	if diff := cmp.Diff([]string{"docker", "git"}, p.Runner.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	for range 2 { // from the database, then from memory
		record, err := r.Resolve(t.Context(), p.Token)
		if err != nil || record.ID != p.Runner.ID || record.Workspace != "default" || record.Owner != "dev" {
			t.Fatalf("resolve the token: %+v, %v", record, err)
		}
	}
	for _, token := range []string{"", p.Runner.ID, p.Token + "x", p.Token[:len(p.Token)-1]} {
		if _, err := r.Resolve(t.Context(), token); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("resolve %q: %v, want ErrNotFound", token, err)
		}
	}
	for _, no := range [][2]string{{"other", ""}, {"default", "somebody"}} {
		if ok, err := r.Revoke(t.Context(), no[0], no[1], p.Runner.ID); ok || err != nil {
			t.Errorf("revoke by %v: %v, %v; want nothing to happen", no, ok, err)
		}
	}
	if ok, err := r.Revoke(t.Context(), "default", "dev", p.Runner.ID); !ok || err != nil {
		t.Fatalf("revoke: %v, %v", ok, err)
	}
	if ok, err := r.Revoke(t.Context(), "default", "dev", p.Runner.ID); ok || err != nil {
		t.Errorf("revoke twice: %v, %v; want nothing to happen", ok, err)
	}
	if diff := cmp.Diff([]string{p.Runner.ID}, revoked); diff != "" {
		t.Errorf("callbacks (-want +got):\n%s", diff)
	}
	record, err := r.Resolve(t.Context(), p.Token)
	if err != nil || record.RevokedAt == nil {
		t.Errorf("a revoked token resolves to %+v, %v; want the runner with RevokedAt", record, err)
	}
	var problem *protocol.Problem
	if _, err := r.Get(t.Context(), "default", p.Runner.ID); !errors.As(err, &problem) || problem.Status != 404 {
		t.Errorf("get a revoked runner: %v, want a 404", err)
	}
	if list, err := r.List(t.Context(), "default", ""); err != nil || len(list) != 0 {
		t.Errorf("list after the revocation = %v, %v", list, err)
	}
}

// A session that began with a token that was revoked a moment later is not
// present, and whoever holds it is told.
func TestF35_RevokedWhileConnecting(t *testing.T) {
	t.Parallel()
	calls := 0
	r := pairing.New(pairing.Config{Store: open(t), OnRevoked: func(...string) { calls++ }})
	p := pair(t, r, "dev", "mac")
	record, err := r.Resolve(t.Context(), p.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Revoke(t.Context(), "default", "", p.Runner.ID); err != nil {
		t.Fatal(err)
	}
	detach := r.Attach(record.Runner, hello)
	if calls != 2 || r.Online() != 0 {
		t.Errorf("callbacks %d, online %d; want one for the revocation, one for the session, and nobody online", calls, r.Online())
	}
	detach()
}

func TestPresence(t *testing.T) {
	t.Parallel()
	st := open(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := pairing.New(pairing.Config{Store: st, Now: func() time.Time { return now }})
	p := pair(t, r, "dev", "mac")
	if got := get(t, r, p.Runner.ID); got.Online || got.LastSeenAt != nil || !got.UpdateRequired {
		t.Errorf("a runner that never came: %+v", got)
	}
	r.Seen(p.Runner.ID, pairing.Beat{Busy: 1}) // no session: nothing

	roster := func() protocol.Runner {
		t.Helper()
		list, err := r.Roster(t.Context(), "default")
		if err != nil || len(list) != 1 {
			t.Fatalf("roster: %v, %v", list, err)
		}
		return list[0]
	}
	if roster().Online {
		t.Error("the roster has a runner online that never came")
	}
	first := r.Attach(p.Runner, hello)
	now = now.Add(time.Minute)
	r.Seen(p.Runner.ID, pairing.Beat{Busy: 2, Slots: 4, Status: &protocol.RunnerStatus{Text: "warm", Level: "info"}})
	got := get(t, r, p.Runner.ID)
	if !got.Online || got.Busy != 2 || got.Slots != 4 || got.OS != "linux" || got.Hostname != "box" || got.Status.Text != "warm" || got.UpdateRequired ||
		!got.LastSeenAt.Equal(now) || !cmp.Equal(got.Capabilities, []string{"git"}) {
		t.Errorf("a connected runner: %+v", got)
	}
	if got := roster(); !got.Online || !cmp.Equal(got.Capabilities, []string{"git"}) {
		t.Errorf("the roster after the runner came: %+v", got)
	}
	r.SetStatus(p.Runner.ID, &protocol.RunnerStatus{Text: "takes leases and does not start them", Level: "warn"})
	if got := get(t, r, p.Runner.ID); got.Status.Level != "warn" {
		t.Errorf("status %+v, want the coordinator's", got.Status)
	}

	// A newer session takes over; the end of the older one changes nothing.
	second := r.Attach(p.Runner, hello)
	first()
	first()
	if got := get(t, r, p.Runner.ID); !got.Online || got.Status != nil {
		t.Errorf("after a newer session took over: %+v, want it online and without the old status", got)
	}
	now = now.Add(time.Hour)
	second()
	if got := get(t, r, p.Runner.ID); got.Online || got.Busy != 0 || !got.LastSeenAt.Equal(now) || r.Online() != 0 {
		t.Errorf("after the last session: %+v", got)
	}
	if roster().Online {
		t.Error("the roster has a runner online that left")
	}
}

// What was seen reaches the database in batches: a process that follows finds it.
func TestLastSeenIsSavedLate(t *testing.T) {
	t.Parallel()
	st := open(t)
	first := pairing.New(pairing.Config{Store: st, FlushEvery: time.Hour})
	p := pair(t, first, "dev", "mac")
	first.Attach(p.Runner, hello)
	row, err := st.Runner(t.Context(), p.Runner.ID)
	if err != nil || row.LastSeenAt != nil {
		t.Fatalf("the row right after the runner came: %+v, %v; want it untouched", row, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the end of Run saves
	if err := first.Run(ctx); err != nil {
		t.Fatal(err)
	}
	second := pairing.New(pairing.Config{Store: st})
	got := get(t, second, p.Runner.ID)
	if got.Online || got.LastSeenAt == nil || got.Version != "1.0.0" || got.Slots != 2 {
		t.Errorf("after a restart: %+v, want it offline with what was last seen", got)
	}
	// A runner that is revoked between two saves is passed over.
	first.Seen(p.Runner.ID, pairing.Beat{})
	if _, err := first.Revoke(t.Context(), "default", "", p.Runner.ID); err != nil {
		t.Fatal(err)
	}
	if err := first.Run(ctx); err != nil {
		t.Errorf("save after a revocation: %v", err)
	}
}

func TestRunSavesEveryInterval(t *testing.T) {
	t.Parallel()
	st := open(t)
	r := pairing.New(pairing.Config{Store: st, FlushEvery: time.Millisecond})
	p := pair(t, r, "dev", "mac")
	r.Attach(p.Runner, hello)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); ; {
		row, err := st.Runner(t.Context(), p.Runner.ID)
		if err == nil && row.LastSeenAt != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the row is %+v (%v), want lastSeenAt to be saved", row, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}

// 5,000 heartbeats cost no write and little else.
func BenchmarkSeen(b *testing.B) {
	r := pairing.New(pairing.Config{Store: open(b)})
	const n = 5000
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("rnr_%d", i)
		r.Attach(protocol.Runner{ID: ids[i]}, hello)
	}
	var i atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Seen(ids[i.Add(1)%n], pairing.Beat{Busy: 1})
		}
	})
}
