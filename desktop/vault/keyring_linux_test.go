package vault

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/sessionbus/bustest"
	"github.com/everdict/everdict/protocol"
)

// The whole of the keyring against a Secret Service. Not parallel: the bus is found by the environment.
func TestSecretService(t *testing.T) {
	bus := bustest.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	ctx := t.Context()
	v := &Vault{Dir: filepath.Join(t.TempDir(), "keys"), Keyring: System{}}
	if err := v.Usable(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("on a bus without a Secret Service: %v, want ErrUnavailable", err)
	}
	service := startSecretService(t, bus.Connect(t))
	service.set(func() { service.none = true })
	if err := v.Usable(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a collection: %v, want ErrUnavailable", err)
	}
	service.set(func() { service.none = false })
	if err := v.Usable(ctx); err != nil {
		t.Fatalf("a Secret Service that is open: %v", err)
	}
	s := Secret{Key: protocol.NewDeviceKey(), Pending: &Pending{Coordinator: "https://c.example", Pairing: "prq_1", Verifier: "v"}}
	if err := v.Put(ctx, "con_1", control.KeyringPlace, s); err != nil {
		t.Fatal(err)
	}
	got, err := v.Get(ctx, "con_1", control.KeyringPlace)
	if err != nil || !got.Key.Equal(s.Key) || *got.Pending != *s.Pending {
		t.Errorf("got %+v, %v", got.Pending, err)
	}
	if _, err := v.Get(ctx, "con_2", control.KeyringPlace); !errors.Is(err, ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}
	// A locked keyring says so, and nobody is asked for its password.
	service.set(func() { service.locked = true })
	for what, err := range map[string]error{
		"usable": v.Usable(ctx), "put": v.Put(ctx, "con_1", control.KeyringPlace, s), "delete": v.Delete(ctx, "con_1", control.KeyringPlace),
	} {
		if !errors.Is(err, ErrLocked) {
			t.Errorf("%s of a locked keyring: %v, want ErrLocked", what, err)
		}
	}
	service.set(func() {
		if service.unlocked != 0 {
			t.Errorf("somebody was asked %d times to unlock it", service.unlocked)
		}
		service.locked = false
	})
	if err := v.Delete(ctx, "con_1", control.KeyringPlace); err != nil {
		t.Fatal(err)
	}
	if err := v.Delete(ctx, "con_1", control.KeyringPlace); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	service.set(func() {
		if len(service.items) != 0 {
			t.Errorf("%d items are left", len(service.items))
		}
	})
	// No error says what was read.
	if err := (System{}).Set(ctx, "con_3", `{"v":1,"seed":"c2VjcmV0"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(ctx, "con_3", control.KeyringPlace); err == nil || strings.Contains(err.Error(), "c2Vj") {
		t.Errorf("a broken key: %v", err)
	}
	bus.Stop()
	if err := v.Usable(ctx); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after the session's end: %v", err)
	}
}
