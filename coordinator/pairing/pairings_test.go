package pairing_test

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/store"
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

// Who may say what of a request, and when.
func TestApproveAndDeny(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.Approve(ann, "prq_nobody")
	refused(t, "approve nobody", err, 404, protocol.ReasonExpired)
	_, err = d.Get(ann, "prq_nobody")
	refused(t, "look at nobody", err, 404, protocol.ReasonExpired)

	b := d.asks(withCallback)
	if v, err := d.Deny(bob, b.id); err != nil || v.Status != protocol.PairingDenied {
		t.Errorf("deny: %+v, %v", v, err)
	}
	_, err = d.Approve(ann, b.id)
	refused(t, "approve what was denied", err, 409, protocol.ReasonDenied)
	_, _, err = b.redeem("")
	refused(t, "redeem what was denied", err, 403, protocol.ReasonDenied)

	b = d.asks(withCallback)
	grant := d.approve(ann, b)
	_, err = d.Approve(bob, b.id)
	refused(t, "approve another's", err, 409, protocol.ReasonUsed)
	_, err = d.Deny(bob, b.id)
	refused(t, "deny another's", err, 409, protocol.ReasonUsed)
	runner := b.redeems(grant).Runner.ID
	if v, err := d.Get(ann, b.id); err != nil || v.Status != protocol.PairingDone || v.Runner != runner {
		t.Errorf("ann sees %+v, %v; want runner %s", v, err, runner)
	}
	if v, err := d.Get(bob, b.id); err != nil || v.Runner != "" {
		t.Errorf("bob sees %+v, %v; want no runner", v, err)
	}

	b = d.asks(nil)
	d.clock.advance(5 * time.Minute)
	_, err = d.Approve(ann, b.id)
	refused(t, "approve at the end", err, 404, protocol.ReasonExpired)
	if v, err := d.Get(ann, b.id); err != nil || v.Status != protocol.PairingExpired || v.ExpiresInSec != 0 {
		t.Errorf("at its end: %+v, %v", v, err)
	}
	d.clock.advance(5 * time.Minute)
	d.asks(nil)
	_, err = d.Get(ann, b.id)
	refused(t, "long after", err, 404, protocol.ReasonExpired)
}

// A code that is typed in is found however it is typed, for as long as somebody may
// approve it; nothing else tells a wrong one from an old one.
func TestLookup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(nil)
	code := b.started.UserCode
	plain := strings.ReplaceAll(code, "-", "")
	for _, typed := range []string{code, strings.ToLower(code), plain, " " + plain[:3] + " - " + plain[3:] + " "} {
		if v, err := d.Lookup(ann, here, typed); err != nil || v.ID != b.id || !v.Headless {
			t.Errorf("%q finds %+v, %v", typed, v, err)
		}
	}
	browser := d.asks(withCallback)
	if browser.started.UserCode != "" {
		t.Errorf("a machine with a browser has the code %s", browser.started.UserCode)
	}
	done := d.asks(nil)
	d.approve(ann, done)
	var answers []string
	for _, typed := range []string{"", "BCDF-GHJK", "AEIO-UAEI", code + "B", strings.Repeat("B", 100), done.started.UserCode} {
		_, err := d.Lookup(ann, here, typed)
		refused(t, typed, err, 404, protocol.ReasonExpired)
		answers = append(answers, err.Error())
	}
	d.clock.advance(5 * time.Minute)
	_, err := d.Lookup(ann, here, code)
	refused(t, "at its end", err, 404, protocol.ReasonExpired)
	for _, a := range append(answers, err.Error()) {
		if a != answers[0] {
			t.Errorf("answers differ: %q and %q", answers[0], a)
		}
	}
}

// Guessing is hopeless: from one address, however many accounts, and with one account,
// however many addresses.
func TestGuessing(t *testing.T) {
	t.Parallel()
	limited := func(err error) bool {
		var p *protocol.Problem
		return errors.As(err, &p) && p.Status == 429 && p.Data["retryAfterSec"] != nil
	}
	t.Run("one address", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		b := d.asks(nil)
		for i := range 10 {
			_, err := d.Lookup(auth.Principal{Subject: fmt.Sprint("u", i), Workspace: "team"}, here, "BCDF-GHJK")
			refused(t, "guess", err, 404, protocol.ReasonExpired)
		}
		if _, err := d.Lookup(ann, here, b.started.UserCode); !limited(err) {
			t.Errorf("the eleventh: %v, want a 429", err)
		}
		d.clock.advance(6 * time.Second)
		if _, err := d.Lookup(ann, here, b.started.UserCode); err != nil {
			t.Errorf("after a while: %v", err)
		}
	})
	t.Run("one account", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		for i := range 10 {
			_, err := d.Lookup(ann, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), "BCDF-GHJK")
			refused(t, "guess", err, 404, protocol.ReasonExpired)
		}
		if _, err := d.Lookup(ann, netip.MustParseAddr("10.0.1.1"), "BCDF-GHJK"); !limited(err) {
			t.Errorf("the eleventh: %v, want a 429", err)
		}
		if _, err := d.Lookup(bob, netip.MustParseAddr("10.0.1.1"), "BCDF-GHJK"); limited(err) {
			t.Errorf("bob is slowed down by ann: %v", err)
		}
	})
	t.Run("redemptions", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		b := d.asks(nil)
		thief := *b
		thief.verifier = protocol.NewVerifier()
		for range 10 {
			_, _, err := thief.redeem("")
			refused(t, "guess", err, 403, protocol.ReasonVerifier)
		}
		if _, _, err := thief.redeem(""); !limited(err) {
			t.Errorf("the eleventh: %v, want a 429", err)
		}
	})
}

// What an unauthenticated caller sends is bounded, and those with a pair code still come
// in.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	full := func(what string, err error) {
		t.Helper()
		var p *protocol.Problem
		if !errors.As(err, &p) || p.Status != 429 || p.Hint == "" {
			t.Errorf("%s: %v, want a 429 with a hint", what, err)
		}
	}
	var err error
	for range 20 {
		err = cmp.Or(err, d.box().ask(here, nil))
	}
	if err != nil {
		t.Fatalf("twenty at once: %v", err)
	}
	full("the 21st at once", d.box().ask(here, nil))
	for range 44 {
		d.clock.advance(3 * time.Second)
		if err := d.box().ask(here, nil); err != nil {
			t.Fatalf("at leisure: %v", err)
		}
	}
	d.clock.advance(3 * time.Second)
	full("the 65th that waits at an address", d.box().ask(here, nil))
	n := 64
	for i := 0; n < 4096; i++ {
		if err := d.box().ask(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), 1}), nil); err != nil {
			t.Fatalf("from everywhere, number %d: %v", n, err)
		}
		n++
	}
	elsewhere := netip.MustParseAddr("198.51.100.1")
	full("the 4097th", d.box().ask(elsewhere, nil))
	code, err := d.CreateCode(ann, base)
	if err != nil {
		t.Fatal(err)
	}
	b := d.box()
	if err := b.ask(elsewhere, func(r *protocol.PairingRequest) { r.Code, r.Number = secretOf(t, code), code.Number }); err != nil {
		t.Errorf("with a pair code: %v", err)
	}
	d.clock.advance(5 * time.Minute)
	if err := d.box().ask(elsewhere, nil); err != nil {
		t.Errorf("when they are over: %v", err)
	}
}

// An operator who has switched it off gets no machine by a typed code, and all others.
func TestDeviceCodeOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *pairing.PairingsConfig) { c.NoDeviceCode = true })
	refused(t, "without a browser", d.box().ask(here, nil), 403, protocol.ReasonOff)
	b := d.asks(withCallback)
	b.redeems(d.approve(ann, b))
}

func secretOf(t *testing.T, c protocol.PairCode) string {
	t.Helper()
	l, err := protocol.ParseDeepLink(c.Link)
	if err != nil {
		t.Fatalf("link %q: %v", c.Link, err)
	}
	return l.Code
}

// What becomes of a pair code.
func TestPairCode(t *testing.T) {
	t.Parallel()
	make := func(d *desk) (c protocol.PairCode, secret string) {
		d.t.Helper()
		c, err := d.CreateCode(ann, base)
		if err != nil {
			d.t.Fatal(err)
		}
		return c, secretOf(d.t, c)
	}
	with := func(secret, number string) func(*protocol.PairingRequest) {
		return func(r *protocol.PairingRequest) { r.Code, r.Number = secret, number }
	}
	wrong := func(number string) string {
		return string(rune('0'+(number[0]-'0'+1)%10)) + number[1:]
	}
	is := func(d *desk, id string, want protocol.PairCodeStatus) protocol.PairCode {
		d.t.Helper()
		c, err := d.Code(d.t.Context(), ann, id)
		if err != nil || c.Status != want {
			d.t.Errorf("the code is %+v, %v; want it %s", c, err, want)
		}
		return c
	}
	t.Run("used", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c, secret := make(d)
		_, err := d.Code(t.Context(), bob, c.ID)
		refused(t, "of another's", err, 404, protocol.ReasonExpired)
		b := d.asks(with(secret, c.Number))
		if b.number != c.Number || b.started.UserCode != "" {
			t.Errorf("started %+v, want the code's number", b.started)
		}
		is(d, c.ID, protocol.PairCodeUsed)
		refused(t, "twice", d.box().ask(here, with(secret, c.Number)), 409, protocol.ReasonUsed)
		thief := *b
		thief.key = protocol.NewDeviceKey()
		_, _, err = thief.redeem("")
		refused(t, "with another key", err, 403, protocol.ReasonProof)
		p := b.redeems("")
		if *p.Account != (protocol.Account{Subject: "ann", Workspace: "team"}) {
			t.Errorf("paired for %+v", p.Account)
		}
		if v := is(d, c.ID, protocol.PairCodeUsed); v.Runner == nil || v.Runner.ID != p.Runner.ID {
			t.Errorf("the code's runner is %+v, want %s", v.Runner, p.Runner.ID)
		}
		if _, err := d.runners.Revoke(t.Context(), "team", "", p.Runner.ID); err != nil {
			t.Fatal(err)
		}
		if v := is(d, c.ID, protocol.PairCodeUsed); v.Runner != nil {
			t.Errorf("a runner that was revoked is shown: %+v", v.Runner)
		}
	})
	t.Run("spoilt", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c, secret := make(d)
		refused(t, "wrong number", d.box().ask(here, with(secret, wrong(c.Number))), 403, protocol.ReasonNumber)
		refused(t, "the right one, too late", d.box().ask(here, with(secret, c.Number)), 403, protocol.ReasonNumber)
		is(d, c.ID, protocol.PairCodeSpoilt)
	})
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c, secret := make(d)
		d.clock.advance(5 * time.Minute)
		is(d, c.ID, protocol.PairCodeExpired)
		refused(t, "at its end", d.box().ask(here, with(secret, c.Number)), 404, protocol.ReasonExpired)
		d.clock.advance(5 * time.Minute)
		make(d)
		_, err := d.Code(t.Context(), ann, c.ID)
		refused(t, "long after", err, 404, protocol.ReasonExpired)
	})
	t.Run("the last moment", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c, secret := make(d)
		d.clock.advance(5*time.Minute - 1)
		d.asks(with(secret, c.Number)).redeems("")
	})
	t.Run("bounded", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		for range 16 {
			make(d)
		}
		_, err := d.CreateCode(ann, base)
		var p *protocol.Problem
		if !errors.As(err, &p) || p.Status != 429 {
			t.Errorf("the 17th: %v, want a 429", err)
		}
		if _, err := d.CreateCode(bob, base); err != nil {
			t.Errorf("bob's first: %v", err)
		}
	})
	t.Run("not by https", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		var p *protocol.Problem
		if _, err := d.CreateCode(ann, "http://everdict.example"); !errors.As(err, &p) || p.Status != 409 || p.Hint == "" {
			t.Errorf("a link that no app would follow: %v, want a conflict with a hint", err)
		}
	})
}

// A device session is good once, for a minute, of this process, for the device that signed
// it.
func TestDeviceSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	b := d.asks(nil)
	d.approve(ann, b)
	id := b.redeems("").Runner.ID
	sign := func() string { return protocol.SignSession(b.key, id, d.runners.Nonce().Nonce) }
	first := sign()
	r, err := d.runners.Resolve(t.Context(), first)
	if err != nil || r.ID != id || r.Owner != "ann" {
		t.Fatalf("resolve: %+v, %v", r, err)
	}
	elsewhere := pairing.New(pairing.Config{Store: open(t), Now: d.clock.Now})
	nonce := d.runners.Nonce().Nonce
	old := sign()
	d.clock.advance(time.Minute + time.Microsecond) // no two nonces are of the same nanosecond
	for name, s := range map[string]string{
		"twice":              first,
		"at its end":         old,
		"of another process": protocol.SignSession(b.key, id, elsewhere.Nonce().Nonce),
		"made up":            protocol.SignSession(b.key, id, "AAAA"),
		"changed":            protocol.SignSession(b.key, id, "B"+nonce[1:]),
	} {
		if _, err := d.runners.Resolve(t.Context(), s); !errors.Is(err, auth.ErrNonce) {
			t.Errorf("%s: %v, want ErrNonce", name, err)
		}
	}
	good := d.runners.Nonce().Nonce
	for name, s := range map[string]string{
		"another key":      protocol.SignSession(protocol.NewDeviceKey(), id, good),
		"another runner":   protocol.SignSession(b.key, "rnr_nobody", good),
		"no session":       protocol.DeviceSessionPrefix + "x",
		"a token's runner": protocol.SignSession(b.key, pair(t, d.runners, "ann", "token").Runner.ID, good),
	} {
		if _, err := d.runners.Resolve(t.Context(), s); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	// None of those has used it up.
	d.clock.advance(time.Minute - 1)
	if _, err := d.runners.Resolve(t.Context(), protocol.SignSession(b.key, id, good)); err != nil {
		t.Errorf("at its last moment: %v", err)
	}
	// A device that goes on and on is stopped, and no other one.
	for range 63 {
		if _, err := d.runners.Resolve(t.Context(), sign()); err != nil {
			t.Fatalf("many: %v", err)
		}
	}
	if _, err := d.runners.Resolve(t.Context(), sign()); !errors.Is(err, auth.ErrNonce) {
		t.Errorf("too many: %v, want ErrNonce", err)
	}
	d.clock.advance(time.Minute)
	if _, err := d.runners.Resolve(t.Context(), sign()); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	if ok, err := d.runners.Revoke(t.Context(), "team", "ann", id); !ok || err != nil {
		t.Fatal(err)
	}
	if r, err := d.runners.Resolve(t.Context(), sign()); err != nil || r.RevokedAt == nil {
		t.Errorf("revoked: %+v, %v; want it named as revoked", r, err)
	}
}
