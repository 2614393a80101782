package pairing_test

import (
	"crypto/ed25519"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

var (
	ann  = auth.Principal{Subject: "ann", Workspace: "team"}
	bob  = auth.Principal{Subject: "bob", Workspace: "team"}
	here = netip.MustParseAddr("192.0.2.1")
)

const base = "https://everdict.example"

// clock is one that a test moves, to the nanosecond.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// desk is pairings over a real store.
type desk struct {
	*pairing.Pairings
	t       *testing.T
	clock   *clock
	runners *pairing.Runners
	changed []string
}

func newDesk(t *testing.T, change ...func(*pairing.PairingsConfig)) *desk {
	t.Helper()
	d := &desk{t: t, clock: &clock{at: time.UnixMilli(1_800_000_000_000)}}
	d.runners = pairing.New(pairing.Config{Store: open(t), Now: d.clock.Now, OnChanged: func(workspace, id string) { d.changed = append(d.changed, workspace+"/"+id) }})
	cfg := pairing.PairingsConfig{Runners: d.runners, Now: d.clock.Now}
	for _, f := range change {
		f(&cfg)
	}
	d.Pairings = pairing.NewPairings(cfg)
	return d
}

// box is a machine that asks.
type box struct {
	d        *desk
	key      ed25519.PrivateKey
	verifier string
	id       string
	number   string
	started  protocol.PairingStarted
}

func withCallback(r *protocol.PairingRequest) {
	r.Callback = &protocol.PairingCallback{Port: 4711, State: strings.Repeat("s", 20)}
}

func (d *desk) box() *box {
	return &box{d: d, key: protocol.NewDeviceKey(), verifier: protocol.NewVerifier()}
}

func (b *box) ask(from netip.Addr, change func(*protocol.PairingRequest)) error {
	req := &protocol.PairingRequest{Label: "mac", PublicKey: protocol.PublicKey(b.key), Challenge: protocol.PairingChallenge(b.verifier)}
	if change != nil {
		change(req)
	}
	s, err := b.d.Start(from, base, req)
	b.id, b.number, b.started = s.ID, s.Number, s
	return err
}

func (d *desk) asks(change func(*protocol.PairingRequest)) *box {
	d.t.Helper()
	b := d.box()
	if err := b.ask(here, change); err != nil {
		d.t.Fatalf("ask: %v", err)
	}
	return b
}

func (d *desk) approve(by auth.Principal, b *box) (grant string) {
	d.t.Helper()
	a, err := d.Approve(by, b.id)
	if err != nil {
		d.t.Fatalf("approve: %v", err)
	}
	if a.Callback == "" {
		return ""
	}
	u, err := url.Parse(a.Callback)
	if err != nil {
		d.t.Fatal(err)
	}
	return u.Query().Get("grant")
}

func (b *box) redeem(grant string) (protocol.PairedDevice, bool, error) {
	return b.d.Redeem(b.d.t.Context(), here, b.id, &protocol.PairingRedeem{Verifier: b.verifier, Grant: grant, Proof: protocol.SignPairing(b.key, b.id, grant)})
}

func (b *box) redeems(grant string) protocol.PairedDevice {
	b.d.t.Helper()
	p, done, err := b.redeem(grant)
	if err != nil || !done || p.Runner == nil {
		b.d.t.Fatalf("redeem: %+v, done %t, %v", p, done, err)
	}
	return p
}

// refused checks the status and the reason of a refusal, and that it says what to do.
func refused(t *testing.T, what string, err error, status int, reason string) {
	t.Helper()
	var p *protocol.Problem
	if !errors.As(err, &p) {
		t.Errorf("%s: %v, want a problem", what, err)
		return
	}
	if got, _ := p.Data["reason"].(string); p.Status != status || got != reason || p.Hint == "" {
		t.Errorf("%s: %d %q (%v), hint %q; want %d %q and a hint", what, p.Status, got, err, p.Hint, status, reason)
	}
}
