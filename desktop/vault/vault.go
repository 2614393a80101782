// Package vault keeps the device key of each connection: in the system's keyring where there is one that answers, else in
// files that their owner alone can read. It never waits for a person: a keyring that would ask for its password is locked,
// and says so.
package vault

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
)

// Service is the name under which the keyring has our keys.
const Service = "dev.everdict.desktop"

// bound is how long the keyring may take for one answer. One that asks somebody takes longer.
const bound = 5 * time.Second

var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("vault: there is no such key")
	// ErrLocked: the keyring is locked. Somebody has to unlock it.
	ErrLocked = errors.New("vault: the keyring is locked")
	// ErrUnavailable: this machine has no keyring that could be used.
	ErrUnavailable = errors.New("vault: there is no keyring")
)

// Secret is what the vault keeps of a connection.
type Secret struct {
	Key ed25519.PrivateKey
	// Pending is the pairing that the key was made for, until it is known how that ended; nil: it has ended well.
	Pending *Pending
}

// Pending is what a pairing needs to be redeemed, or to be redeemed once more after a crash.
type Pending struct {
	Coordinator string `json:"coordinator"`
	Pairing     string `json:"pairing"`
	Verifier    string `json:"verifier"`
	Grant       string `json:"grant,omitempty"`
	// Account that the link was for; empty: it was typed in.
	Subject   string `json:"subject,omitempty"`
	Workspace string `json:"workspace,omitempty"`
}

// kept is how a Secret is kept.
type kept struct {
	Version int      `json:"v"`
	Seed    string   `json:"seed"`
	Pending *Pending `json:"pending,omitempty"`
}

func (s Secret) encode() (string, error) {
	b, err := json.Marshal(kept{Version: 1, Seed: base64.RawURLEncoding.EncodeToString(s.Key.Seed()), Pending: s.Pending})
	return string(b), err
}

func decode(s string) (Secret, error) {
	var k kept
	// No error says what it read.
	if json.Unmarshal([]byte(s), &k) != nil || k.Version != 1 {
		return Secret{}, errors.New("vault: a key cannot be read")
	}
	seed, err := base64.RawURLEncoding.DecodeString(k.Seed)
	if err != nil || len(seed) != ed25519.SeedSize {
		return Secret{}, errors.New("vault: a key cannot be read")
	}
	return Secret{Key: ed25519.NewKeyFromSeed(seed), Pending: k.Pending}, nil
}

// Keyring is the system's. Its calls return within a bound, with ErrLocked, ErrUnavailable or ErrNotFound where that is
// the reason.
type Keyring interface {
	// Usable says whether it can be used now; nil: it can.
	Usable(ctx context.Context) error
	Get(ctx context.Context, id string) (string, error)
	Set(ctx context.Context, id, secret string) error
	Delete(ctx context.Context, id string) error
}

// Vault keeps secrets by the id of their connection.
type Vault struct {
	// Dir is where files are. Required.
	Dir string
	// Keyring is the system's; nil: there is none.
	Keyring Keyring
}

// Usable says whether the keyring can be used now; nil: it can.
func (v *Vault) Usable(ctx context.Context) error {
	if v.Keyring == nil {
		return ErrUnavailable
	}
	return v.Keyring.Usable(ctx)
}

// Get reads a secret.
func (v *Vault) Get(ctx context.Context, id string, place control.KeyPlace) (Secret, error) {
	s, err := v.get(ctx, id, place)
	if err != nil {
		return Secret{}, err
	}
	return decode(s)
}

func (v *Vault) get(ctx context.Context, id string, place control.KeyPlace) (string, error) {
	if place == control.KeyringPlace {
		if v.Keyring == nil {
			return "", ErrUnavailable
		}
		return v.Keyring.Get(ctx, id)
	}
	b, err := os.ReadFile(v.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("vault: %w", err)
	}
	return string(b), nil
}

// Put keeps a secret, and reads it back: a key that is lost unseen is a computer that has to be connected anew.
func (v *Vault) Put(ctx context.Context, id string, place control.KeyPlace, s Secret) error {
	text, err := s.encode()
	if err != nil {
		return err
	}
	if err := v.put(ctx, id, place, text); err != nil {
		return err
	}
	if back, err := v.get(ctx, id, place); err != nil || back != text {
		return errors.Join(fmt.Errorf("vault: the %s did not keep the key", place), err)
	}
	return nil
}

func (v *Vault) put(ctx context.Context, id string, place control.KeyPlace, text string) error {
	if place == control.KeyringPlace {
		if v.Keyring == nil {
			return ErrUnavailable
		}
		return v.Keyring.Set(ctx, id, text)
	}
	return home.WriteFile(v.path(id), []byte(text))
}

// Delete removes a secret. One that is not there is no error.
func (v *Vault) Delete(ctx context.Context, id string, place control.KeyPlace) error {
	var err error
	switch {
	case place != control.KeyringPlace:
		err = os.Remove(v.path(id))
	case v.Keyring == nil:
		return ErrUnavailable
	default:
		err = v.Keyring.Delete(ctx, id)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

const ext = ".key"

func (v *Vault) path(id string) string { return filepath.Join(v.Dir, filepath.Base(id)+ext) }
