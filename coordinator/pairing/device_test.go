package pairing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

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
