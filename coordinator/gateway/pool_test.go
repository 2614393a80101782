package gateway

import (
	"errors"
	"testing"

	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// pool registers a runtime of kind local and issues a token for its pool.
func (w *world) pool(runtime string, limit int) protocol.IssuedPoolToken {
	w.t.Helper()
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: runtime, Version: "1", MaxConcurrent: &limit}
	if _, err := w.runtimes.Register(w.ctx(), "default", "ann", spec); err != nil {
		w.t.Fatal(err)
	}
	issued, err := w.runners.CreatePoolToken(w.ctx(), "default", "ann", protocol.PoolTokenRequest{Runtime: runtime})
	if err != nil {
		w.t.Fatal(err)
	}
	return issued
}

// join gives a machine its identity in a pool.
func (w *world) join(issued protocol.IssuedPoolToken) protocol.Paired {
	w.t.Helper()
	pool, err := w.runners.ResolvePool(w.ctx(), issued.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	joined, err := w.runners.Join(w.ctx(), pool, protocol.JoinRequest{Label: "pod"})
	if err != nil {
		w.t.Fatal(err)
	}
	return protocol.Paired{Runner: joined.Runner, Token: joined.Token}
}

// TestAPoolsRunner is at home in the pool of its runtime, takes its runs, and is
// not one of the machines that a run can name.
func TestAPoolsRunner(t *testing.T) {
	w := newWorld(t)
	pod := w.join(w.pool("prod", 1))
	m := w.connect(pod)
	id := w.submit("prod")
	if ref := m.begin("r1"); ref.Job != id {
		t.Errorf("it took %s, want %s", ref.Job, id)
	}
	stats, err := w.q.Stats(w.ctx())
	if err != nil || len(stats.Homes) != 1 || stats.Homes[0].Pool != run.RuntimePool("default", "prod").String() || stats.Homes[0].Limit != (lease.Limit{MaxConcurrent: 1}) {
		t.Errorf("homes %+v, %v", stats.Homes, err)
	}
	_, err = w.runs.Submit(w.ctx(), ann, &protocol.RunRequest{Harness: protocol.HarnessRef{ID: protocol.AdapterScripted}, Runtime: "self:" + pod.Runner.ID,
		Case: protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Task: "Say done"}})
	var p *protocol.Problem
	if !errors.As(err, &p) || p.Code != protocol.CodeNotFound {
		t.Errorf("a run for the pod itself: %v, want a 404", err)
	}
	pools, err := w.runs.Pools(w.ctx(), ann)
	if err != nil || len(pools) != 1 || pools[0].Running != 1 || pools[0].Online != 1 || pools[0].Slots != 1 || pools[0].MaxConcurrent != 1 {
		t.Errorf("pools %+v, %v", pools, err)
	}
}

// TestF35_ARevokedPoolTokenClosesSessions: of all that joined with it, at once, and
// fences their leases; the others go on.
func TestF35_ARevokedPoolTokenClosesSessions(t *testing.T) {
	w := newWorld(t)
	issued, other := w.pool("prod", 10), w.pool("dev", 10)
	id := w.submit("prod")
	busy, elsewhere := w.connect(w.join(issued)), w.connect(w.join(other))
	held := busy.begin("r1")
	idle := w.join(issued)
	idler := w.connect(idle, as("process-2", "host-2"))
	if ok, err := w.runners.RevokePoolToken(w.ctx(), "default", issued.PoolToken.ID); !ok || err != nil {
		t.Fatalf("revoke: %v, %v", ok, err)
	}
	var revoked *link.RevokedError
	for name, m := range map[string]*machine{"the busy one": busy, "the idle one": idler} {
		if err := m.over(name + " joined with a token that was revoked"); !errors.As(err, &revoked) {
			t.Errorf("the session of %s ended with %v", name, err)
		}
	}
	if err := w.runs.GiveBack(w.ctx(), ref(held), "x"); err == nil {
		t.Error("a revoked runner's word about its lease was taken")
	}
	w.tells(id, "running, 1 active")
	if _, err := w.dial(idle); !errors.As(err, &revoked) || revoked.Code != "revoked" {
		t.Errorf("it came back: %v", err)
	}
	next := w.submit("dev")
	if ref := elsewhere.begin("r2"); ref.Job != next {
		t.Errorf("the other pool's runner took %s, want %s", ref.Job, next)
	}
}

// TestAForgottenRunnerLeavesNoSeat: pods come and go for years.
func TestAForgottenRunnerLeavesNoSeat(t *testing.T) {
	w := newWorld(t)
	pod := w.join(w.pool("prod", 1))
	m := w.connect(pod)
	w.g.Forgotten(pod.Runner.ID) // a mistake: it is here
	if w.g.connected(pod.Runner.ID) == nil {
		t.Error("a connected runner lost its seat")
	}
	m.Close(link.CloseReason{Code: link.CloseNormal})
	w.until("it has left", func() bool { return w.g.connected(pod.Runner.ID) == nil })
	w.g.Forgotten(pod.Runner.ID)
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if len(w.g.seats) != 0 {
		t.Errorf("%d seats are left", len(w.g.seats))
	}
}
