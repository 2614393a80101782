package pairing_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

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
