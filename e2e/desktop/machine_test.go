package desktop_test

import (
	"context"
	"sync"
	"testing"

	"github.com/everdict/everdict/desktop"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/vault"
)

// ring is a keyring in memory that can be locked.
type ring struct {
	mu     sync.Mutex
	locked bool
	kept   map[string]string
}

func (r *ring) lock(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locked = on
}

func (r *ring) do(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked {
		return vault.ErrLocked
	}
	return f()
}

func (r *ring) Usable(context.Context) error { return r.do(func() error { return nil }) }
func (r *ring) Get(_ context.Context, id string) (s string, err error) {
	err = r.do(func() error {
		var ok bool
		if s, ok = r.kept[id]; !ok {
			return vault.ErrNotFound
		}
		return nil
	})
	return s, err
}
func (r *ring) Set(_ context.Context, id, s string) error {
	return r.do(func() error { r.kept[id] = s; return nil })
}
func (r *ring) Delete(_ context.Context, id string) error {
	return r.do(func() error { delete(r.kept, id); return nil })
}

// Keys go into the keyring where there is one. A locked one is said, at a pairing and at a start, and never waited for.
func TestKeyring(t *testing.T) {
	t.Parallel()
	h := quickHouse(t)
	keys := &ring{kept: map[string]string{}}
	a := newApp(t, h, func(c *desktop.Config) { c.Keyring = keys })
	ctx := context.Background()
	keys.lock(true)
	if _, err := a.Pair(ctx, control.PairRequest{Coordinator: h.URL()}); err != nil {
		t.Fatal(err)
	}
	s := a.until("the pairing fails", func(s control.State) bool { return s.Pairing.Status == control.PairingFailed })
	if s.Pairing.Next == "" {
		t.Errorf("with a locked keyring: %+v", s.Pairing)
	}
	keys.lock(false)
	c := a.pair()
	if c.Key != control.KeyringPlace || len(keys.kept) != 1 || a.State().Keys.Warning != "" {
		t.Errorf("the key is in %s, %d in the keyring, warning %q", c.Key, len(keys.kept), a.State().Keys.Warning)
	}
	a.end()
	keys.lock(true)
	a.start()
	a.connection("it says that the keyring is locked", because(control.StatusAttention, control.ReasonKeyLocked))
	keys.lock(false)
	if _, err := a.Retry(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	a.connection("it is idle", is(control.StatusIdle))
	if k, err := a.MoveKeys(ctx, control.KeyMove{Place: control.FilePlace}); err != nil || k.Warning == "" || len(keys.kept) != 0 {
		t.Errorf("moved to files: %+v, %v, %d in the keyring", k, err, len(keys.kept))
	}
	if k, err := a.MoveKeys(ctx, control.KeyMove{Place: control.KeyringPlace}); err != nil || k.Warning != "" || len(keys.kept) != 1 {
		t.Errorf("moved back: %+v, %v, %d in the keyring", k, err, len(keys.kept))
	}
	keys.lock(true)
	if _, err := a.MoveKeys(ctx, control.KeyMove{Place: control.FilePlace}); err == nil {
		t.Error("a key was moved out of a locked keyring")
	}
	keys.lock(false)
	if _, err := a.Unpair(ctx, c.ID); err != nil || len(keys.kept) != 0 {
		t.Errorf("unpair: %v, %d keys are left", err, len(keys.kept))
	}
}
