package pairing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/everdict/everdict/protocol"
)

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
