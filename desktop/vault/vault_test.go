package vault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	v := &Vault{Dir: filepath.Join(t.TempDir(), "keys")}
	s := Secret{Key: protocol.NewDeviceKey()}
	if err := v.Put(ctx, "con_1", control.FilePlace, s); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(v.path("con_1"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want 0600", info.Mode(), err)
	}
	if got, err := v.Get(ctx, "con_1", control.FilePlace); err != nil || !got.Key.Equal(s.Key) || got.Pending != nil {
		t.Errorf("got %+v, %v", got.Pending, err)
	}
	if err := v.Put(ctx, "con_1", control.KeyringPlace, s); !errors.Is(err, ErrUnavailable) {
		t.Errorf("into a keyring that is not there: %v", err)
	}
	if err := v.Delete(ctx, "con_1", control.FilePlace); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(ctx, "con_1", control.FilePlace); !errors.Is(err, ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
	if err := v.Delete(ctx, "con_1", control.FilePlace); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	// A name leads nowhere else.
	if err := v.Put(ctx, "../../evil", control.FilePlace, s); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(v.Dir, "evil.key")); err != nil {
		t.Errorf("the file is not in its directory: %v", err)
	}
}

// forgetful takes a secret and does not keep it.
type forgetful struct{}

func (forgetful) Usable(context.Context) error                { return nil }
func (forgetful) Get(context.Context, string) (string, error) { return "", ErrNotFound }
func (forgetful) Set(context.Context, string, string) error   { return nil }
func (forgetful) Delete(context.Context, string) error        { return nil }

// A keyring that takes a key and does not have it is found out at once.
func TestForgetfulKeyring(t *testing.T) {
	t.Parallel()
	v := &Vault{Dir: filepath.Join(t.TempDir(), "keys"), Keyring: forgetful{}}
	if err := v.Put(t.Context(), "con_1", control.KeyringPlace, Secret{Key: protocol.NewDeviceKey()}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a key that the keyring did not keep: %v, want ErrNotFound", err)
	}
}
