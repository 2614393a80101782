package pairing_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

// Each way in which a redemption is refused, and what the right machine can do after it.
func TestRedeemRefused(t *testing.T) {
	t.Parallel()
	other := protocol.NewDeviceKey()
	for _, row := range []struct {
		name     string
		callback bool
		// do changes the redemption of an approved request.
		do     func(d *desk, b *box, r *protocol.PairingRedeem)
		status int
		reason string
		// after is the reason that the right machine is refused with then; empty: it is paired.
		after string
	}{
		{"another verifier", false, func(_ *desk, _ *box, r *protocol.PairingRedeem) { r.Verifier = protocol.NewVerifier() }, 403, "verifier", ""},
		{"no verifier", false, func(_ *desk, _ *box, r *protocol.PairingRedeem) { r.Verifier = "" }, 403, "verifier", ""},
		{"the challenge as the verifier", false, func(_ *desk, b *box, r *protocol.PairingRedeem) { r.Verifier = protocol.PairingChallenge(b.verifier) }, 403, "verifier", ""},
		{"another verifier, no grant", true, func(_ *desk, _ *box, r *protocol.PairingRedeem) { r.Verifier, r.Grant = protocol.NewVerifier(), "" }, 403, "verifier", ""},
		{"another verifier with the grant", true, func(_ *desk, _ *box, r *protocol.PairingRedeem) { r.Verifier = protocol.NewVerifier() }, 403, "verifier", "denied"},
		{"another key", false, func(_ *desk, b *box, r *protocol.PairingRedeem) { r.Proof = protocol.SignPairing(other, b.id, "") }, 403, "proof", ""},
		{"another key with verifier and grant", true, func(_ *desk, b *box, r *protocol.PairingRedeem) { r.Proof = protocol.SignPairing(other, b.id, r.Grant) }, 403, "proof", ""},
		{"a proof for no grant", true, func(_ *desk, b *box, r *protocol.PairingRedeem) { r.Proof = protocol.SignPairing(b.key, b.id, "") }, 403, "proof", ""},
		{"a proof for another request", false, func(_ *desk, b *box, r *protocol.PairingRedeem) { r.Proof = protocol.SignPairing(b.key, "prq_x", "") }, 403, "proof", ""},
		{"no proof", false, func(_ *desk, _ *box, r *protocol.PairingRedeem) { r.Proof = "" }, 403, "proof", ""},
		{"no grant", true, func(_ *desk, b *box, r *protocol.PairingRedeem) {
			r.Grant, r.Proof = "", protocol.SignPairing(b.key, b.id, "")
		}, 403, "grant", ""},
		{"another grant", true, func(_ *desk, b *box, r *protocol.PairingRedeem) {
			r.Grant = protocol.NewCredential(protocol.PairGrantPrefix)
			r.Proof = protocol.SignPairing(b.key, b.id, r.Grant)
		}, 403, "grant", ""},
		{"the grant of another request", true, func(d *desk, b *box, r *protocol.PairingRedeem) {
			r.Grant = d.approve(ann, d.asks(withCallback))
			r.Proof = protocol.SignPairing(b.key, b.id, r.Grant)
		}, 403, "grant", ""},
		{"a grant where there is no callback", false, func(_ *desk, b *box, r *protocol.PairingRedeem) {
			r.Grant = protocol.NewCredential(protocol.PairGrantPrefix)
			r.Proof = protocol.SignPairing(b.key, b.id, r.Grant)
		}, 403, "grant", ""},
		{"at its end", false, func(d *desk, _ *box, _ *protocol.PairingRedeem) { d.clock.advance(5 * time.Minute) }, 404, "expired", "expired"},
		{"a nanosecond after its end", true, func(d *desk, _ *box, _ *protocol.PairingRedeem) { d.clock.advance(5*time.Minute + 1) }, 404, "expired", "expired"},
		{"long after", true, func(d *desk, _ *box, _ *protocol.PairingRedeem) {
			d.clock.advance(10 * time.Minute)
			d.asks(nil)
		}, 404, "expired", "expired"},
		{"denied after the approval", true, func(d *desk, b *box, _ *protocol.PairingRedeem) {
			if _, err := d.Deny(ann, b.id); err != nil {
				d.t.Fatal(err)
			}
		}, 403, "denied", "denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			var change func(*protocol.PairingRequest)
			if row.callback {
				change = withCallback
			}
			b := d.asks(change)
			grant := d.approve(ann, b)
			r := &protocol.PairingRedeem{Verifier: b.verifier, Grant: grant, Proof: protocol.SignPairing(b.key, b.id, grant)}
			row.do(d, b, r)
			_, done, err := d.Redeem(t.Context(), here, b.id, r)
			refused(t, "redeem", err, row.status, row.reason)
			if done {
				t.Error("redeemed all the same")
			}
			p, done, err := b.redeem(grant)
			if row.after != "" {
				refused(t, "the right machine", err, map[string]int{"denied": 403, "expired": 404}[row.after], row.after)
			} else if err != nil || !done || p.Account == nil || *p.Account != (protocol.Account{Subject: "ann", Workspace: "team"}) {
				t.Errorf("the right machine: %+v, %v; want it paired", p, err)
			}
		})
	}
}

// A request is good until a nanosecond before its end.
func TestRedeemAtTheLastMoment(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(nil)
	d.approve(ann, b)
	d.clock.advance(5*time.Minute - 1)
	b.redeems("")
}

// Who asks before anybody has decided is told to ask again; who lost the answer is told
// which runner it is; and nobody else is.
func TestRedeemAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(withCallback)
	if p, done, err := b.redeem(""); err != nil || done || p.Status != protocol.PairingPending {
		t.Errorf("before the approval: %+v, %t, %v", p, done, err)
	}
	_, _, err := b.redeem(protocol.NewCredential(protocol.PairGrantPrefix))
	refused(t, "a grant before the approval", err, 403, protocol.ReasonGrant)
	grant := d.approve(ann, b)
	if again := d.approve(ann, b); again != grant {
		t.Errorf("approved twice: another grant, so that the first callback is worth nothing")
	}
	d.changed = nil
	runner := b.redeems(grant).Runner
	if len(d.changed) != 1 || d.changed[0] != "team/"+runner.ID {
		t.Errorf("told of %v, want the new runner", d.changed)
	}
	if runner.Owner != "ann" || runner.Scope != protocol.RunnerScopeOwner || runner.Label != "mac" {
		t.Errorf("runner %+v", runner)
	}
	for _, g := range []string{grant, ""} {
		_, _, err = b.redeem(g)
		refused(t, "again", err, 409, protocol.ReasonUsed)
		var p *protocol.Problem
		if errors.As(err, &p) && p.Data["runner"] != runner.ID {
			t.Errorf("again: %+v, want the runner's id", p.Data)
		}
	}
	thief := *b
	thief.verifier = protocol.NewVerifier()
	_, _, err = thief.redeem(grant)
	refused(t, "somebody else, afterwards", err, 403, protocol.ReasonVerifier)
	var p *protocol.Problem
	if errors.As(err, &p) && p.Data["runner"] != nil {
		t.Errorf("somebody else is told the runner: %+v", p.Data)
	}
	_, err = d.Approve(ann, b.id)
	refused(t, "approve a runner", err, 409, protocol.ReasonUsed)
	_, err = d.Deny(ann, b.id)
	refused(t, "deny a runner", err, 409, protocol.ReasonUsed)
	d.clock.advance(5 * time.Minute)
	_, _, err = b.redeem(grant)
	refused(t, "again, after the request's life", err, 404, protocol.ReasonExpired)
}

// Of two redemptions at once, one makes the runner.
func TestRedeemAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(nil)
	d.approve(ann, b)
	var made sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if p, done, err := b.redeem(""); done && err == nil {
				made.Store(p.Runner.ID, true)
			}
		})
	}
	all.Wait()
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	runners, err := d.runners.List(t.Context(), "team", "")
	if n != 1 || err != nil || len(runners) != 1 {
		t.Errorf("%d answers, %d runners, %v; want one", n, len(runners), err)
	}
}

// A machine whose answer was lost with the coordinator asks again with its key, and is the
// runner that it was. Nobody else's account gets it, and a revoked one is over.
func TestOneKeyIsOneRunner(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(nil)
	d.approve(ann, b)
	first := b.redeems("").Runner.ID
	d.Pairings = pairing.NewPairings(pairing.PairingsConfig{Runners: d.runners, Now: d.clock.Now}) // a restart
	_, _, err := b.redeem("")
	refused(t, "after a restart", err, 404, protocol.ReasonExpired)
	again := func(by auth.Principal) (protocol.PairedDevice, bool, error) {
		t.Helper()
		if err := b.ask(here, nil); err != nil {
			t.Fatal(err)
		}
		d.approve(by, b)
		return b.redeem("")
	}
	if p, done, err := again(ann); err != nil || !done || p.Runner.ID != first {
		t.Errorf("again: %+v, %v; want %s", p.Runner, err, first)
	}
	var p *protocol.Problem
	if _, _, err := again(bob); !errors.As(err, &p) || p.Status != 409 {
		t.Errorf("for somebody else: %v, want a conflict", err)
	}
	if ok, err := d.runners.Revoke(t.Context(), "team", "ann", first); !ok || err != nil {
		t.Fatal(err)
	}
	if _, _, err := again(ann); !errors.As(err, &p) || p.Status != 409 {
		t.Errorf("after its revocation: %v, want a conflict", err)
	}
}
