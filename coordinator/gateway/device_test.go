package gateway

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

var bob = auth.Principal{Subject: "bob", Workspace: "default"}

// deviceOf is a machine of ann's that was paired without a token. Its nonces come from the
// runners themselves: the gateway does not give them.
type deviceOf struct {
	link.DeviceKey
	runners *pairing.Runners
}

func (d deviceOf) Bearer(context.Context, func(context.Context) (string, error)) (link.Secret, error) {
	return link.Secret(protocol.SignSession(d.Key, d.Runner, d.runners.Nonce().Nonce)), nil
}

func (w *world) device(label string) deviceOf {
	w.t.Helper()
	pairings := pairing.NewPairings(pairing.PairingsConfig{Runners: w.runners})
	key, verifier := protocol.NewDeviceKey(), protocol.NewVerifier()
	from := netip.MustParseAddr("192.0.2.1")
	started, err := pairings.Start(from, w.url, &protocol.PairingRequest{Label: label, PublicKey: protocol.PublicKey(key), Challenge: protocol.PairingChallenge(verifier)})
	if err == nil {
		_, err = pairings.Approve(ann, started.ID)
	}
	if err != nil {
		w.t.Fatalf("pair %s: %v", label, err)
	}
	p, _, err := pairings.Redeem(w.ctx(), from, started.ID, &protocol.PairingRedeem{Verifier: verifier, Proof: protocol.SignPairing(key, started.ID, "")})
	if err != nil || p.Runner == nil {
		w.t.Fatalf("redeem %s: %+v, %v", label, p, err)
	}
	return deviceOf{link.DeviceKey{Runner: p.Runner.ID, Key: key}, w.runners}
}

// says is a heartbeat of a machine whose owner lets it do something else now.
func (m *machine) says(t link.Terms) {
	m.w.t.Helper()
	m.mu.Lock()
	m.terms = t
	m.mu.Unlock()
	if _, err := m.Heartbeat(m.w.ctx()); err != nil {
		m.w.t.Fatalf("heartbeat: %v", err)
	}
}

func (w *world) submitAs(p auth.Principal, target string) (string, error) {
	r, err := w.runs.Submit(w.ctx(), p, &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: protocol.AdapterScripted},
		Case:    protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Task: "Say done"},
		Runtime: target,
	})
	return r.ID, err
}

func (w *world) blocked(p auth.Principal, run string) string {
	w.t.Helper()
	v, err := w.runs.Placement(w.ctx(), p, run)
	if err != nil || v.Placement == nil {
		w.t.Fatalf("placement of %s: %v", run, err)
	}
	return v.Placement.BlockedReason
}

// A device takes its owner's runs until its owner opens it, on that machine, and again
// when it is closed: a run of somebody else that waits for it is not leased then.
func TestScopeOfADevice(t *testing.T) {
	w := newWorld(t)
	d := w.device("mac")
	target := protocol.TargetSelfPrefix + d.Runner
	for _, to := range []string{target, protocol.TargetSelfWorkspace} {
		var p *protocol.Problem
		if _, err := w.submitAs(bob, to); !errors.As(err, &p) || p.Status != 404 || p.Hint == "" {
			t.Errorf("bob submits to %s: %v, want to be refused with a hint", to, err)
		}
	}
	m := w.connectAs(d)
	if got := w.runner(d.Runner).Scope; got != protocol.RunnerScopeOwner {
		t.Errorf("scope %q, want the owner's", got)
	}
	m.says(link.Terms{Scope: protocol.RunnerScopeWorkspace})
	if got := w.runner(d.Runner).Scope; got != protocol.RunnerScopeWorkspace {
		t.Errorf("opened, scope %q", got)
	}
	for _, to := range []string{target, protocol.TargetSelfWorkspace, protocol.TargetAuto} {
		id, err := w.submitAs(bob, to)
		if err != nil {
			t.Fatalf("bob submits to %s: %v", to, err)
		}
		if o := m.pull("to " + to); o.Run != id || !strings.Contains(string(o.Payload), `"submittedBy":"bob"`) {
			t.Errorf("to %s: leased %s with %s, want %s of bob", to, o.Run, o.Payload, id)
		}
	}
	his, err := w.submitAs(bob, target)
	if err != nil {
		t.Fatal(err)
	}
	m.says(link.Terms{})
	if why := w.blocked(bob, his); !strings.Contains(why, "takes its owner's runs alone now") {
		t.Errorf("bob's run waits for %q", why)
	}
	hers := w.submit(target)
	if o := m.pull("closed"); o.Run != hers {
		t.Errorf("closed: leased %s, want ann's %s", o.Run, hers)
	}
	m.says(link.Terms{Scope: protocol.RunnerScopeWorkspace})
	if o := m.pull("open again"); o.Run != his {
		t.Errorf("open again: leased %s, want bob's %s", o.Run, his)
	}
	m.says(link.Terms{Scope: "everybody"})
	if got := w.runner(d.Runner).Scope; got != protocol.RunnerScopeOwner {
		t.Errorf("of a scope that nobody knows: %q, want the narrowest", got)
	}
}

// A runner of the whole workspace has no say in whose runs it takes, and one with a token
// that says nothing takes what it always did.
func TestScopeOfOthers(t *testing.T) {
	w := newWorld(t)
	shared, own := w.pair(pairing.WorkspaceOwner("default"), "build"), w.pair("ann", "old")
	w.connect(shared, func(h *link.Hello) { h.Scope = protocol.RunnerScopeOwner })
	w.connect(own)
	for _, id := range []string{shared.Runner.ID, own.Runner.ID} {
		if got := w.runner(id).Scope; got != "" {
			t.Errorf("%s has the scope %q, want none", id, got)
		}
	}
	if _, err := w.submitAs(bob, shared.Runner.Target); err != nil {
		t.Errorf("to the workspace's: %v", err)
	}
	if _, err := w.submitAs(bob, own.Runner.Target); err == nil {
		t.Error("bob's run goes to ann's runner")
	}
}

// TestP9_Paused: a runner that its owner has paused is shown so, gets nothing even if it
// asks, and what waits for it says why.
func TestP9_Paused(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	id := mac.Runner.ID
	m := w.connect(mac, func(h *link.Hello) { h.Paused = "paused by its owner" })
	run := w.submit(mac.Runner.Target)
	if r := w.runner(id); r.Paused != "paused by its owner" || !r.Online {
		t.Errorf("shown as %+v", r)
	}
	if why := w.blocked(ann, run); !strings.HasPrefix(why, "runner "+id+" takes no runs: paused by its owner; settles as unschedulable at ") {
		t.Errorf("the run waits for %q", why)
	}
	pulled := make(chan string, 1)
	ctx := w.ctx()
	go func() {
		o, err := m.Pull(ctx, link.PullRequest{Request: "r1"})
		if err != nil {
			pulled <- err.Error()
			return
		}
		pulled <- o.Run
	}()
	w.until("the pull waits", func() bool {
		s, err := w.q.Stats(w.ctx())
		return err == nil && s.Waiting == 1
	})
	m.says(link.Terms{Paused: strings.Repeat("x", 999)})
	if got := w.runner(id).Paused; len(got) > 210 {
		t.Errorf("what it says is shown in %d bytes", len(got))
	}
	select {
	case got := <-pulled:
		t.Fatalf("a paused runner was leased %s", got)
	default:
	}
	m.says(link.Terms{})
	if got := <-pulled; got != run {
		t.Errorf("resumed: leased %s, want %s", got, run)
	}
	if got := w.runner(id).Paused; got != "" {
		t.Errorf("resumed: shown as %q", got)
	}
}

// TestF35_F52_CopiedDeviceKey: of two machines with one device key the newer is the
// runner, and the older is told so and does not come back.
func TestF35_F52_CopiedDeviceKey(t *testing.T) {
	w := newWorld(t)
	d := w.device("mac")
	first := w.connectAs(d, as("process-1", "host-1"))
	w.connectAs(d, as("process-2", "host-2"))
	var taken *link.TakenOverError
	if err := first.over("the copy connects"); !errors.As(err, &taken) || !link.Terminal(err) || !strings.Contains(taken.Message, "host-2") {
		t.Errorf("the first ended with %v, want taken over by host-2, for good", err)
	}
	if ok, err := w.runners.Revoke(w.ctx(), "default", "ann", d.Runner); !ok || err != nil {
		t.Fatal(err)
	}
	var revoked *link.RevokedError
	if _, err := w.dialAs(d); !errors.As(err, &revoked) || !strings.Contains(revoked.Message, "mac") {
		t.Errorf("revoked: %v, want so, by name", err)
	}
}

// A nonce of before a restart is no reason to give the pairing up.
func TestNonceOfAnotherProcess(t *testing.T) {
	w := newWorld(t)
	d := w.device("mac")
	d.runners = pairing.New(pairing.Config{Store: w.store})
	var he *link.HTTPError
	if _, err := w.dialAs(d); !errors.As(err, &he) || he.Code != link.CodeNonce || link.Terminal(err) {
		t.Errorf("dial: %v, want to be told to come again with another nonce", err)
	}
}
