package secret

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Key is 32 random bytes that seal data keys. It prints as its id.
type Key struct {
	id    string
	bytes []byte
}

// errKey says what a key looks like, and nothing of what was given.
var errKey = errors.New("want 32 random bytes in base64, as openssl rand -base64 32 makes them")

// ParseKey reads a key in base64, of either alphabet and with or without padding.
func ParseKey(text string) (Key, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(strings.TrimSpace(text), "="))
	b, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != keyBytes || strings.ContainsAny(text, "\r\n") {
		return Key{}, errKey
	}
	return newKey(b), nil
}

// GenerateKey makes a key.
func GenerateKey() Key {
	b := make([]byte, keyBytes)
	rand.Read(b) // never fails: it ends the program instead
	return newKey(b)
}

func newKey(b []byte) Key {
	// Under a key of 256 random bits, 64 bits of a code reveal nothing of it.
	code := hmac.New(sha256.New, b)
	code.Write([]byte("everdict secrets key id"))
	return Key{id: "kek_" + hex.EncodeToString(code.Sum(nil)[:8]), bytes: b}
}

// ID names the key and reveals nothing of it.
func (k Key) ID() string { return k.id }

// String implements fmt.Stringer.
func (k Key) String() string { return k.id }

// GoString implements fmt.GoStringer.
func (k Key) GoString() string { return k.id }

// Encode is the key in the form that ParseKey reads.
func (k Key) Encode() string { return base64.StdEncoding.EncodeToString(k.bytes) }

// Keyring is a KeyService with its keys in memory: one that seals, and others that
// only open what they sealed before.
type Keyring struct {
	current string
	keys    map[string]cipher.AEAD
}

var _ KeyService = (*Keyring)(nil)

// NewKeyring returns the service of current, and of old keys.
func NewKeyring(current Key, old ...Key) (*Keyring, error) {
	r := &Keyring{current: current.id, keys: map[string]cipher.AEAD{}}
	for _, k := range append([]Key{current}, old...) {
		aead, err := newAEAD(k.bytes)
		if err != nil {
			return nil, fmt.Errorf("secret: use key %s: %w", k.id, err)
		}
		r.keys[k.id] = aead
	}
	return r, nil
}

// successor is a KeyService with keys beside it that only open.
type successor struct {
	KeyService
	old *Keyring
}

// succeed is service, which also opens what old keys have sealed.
func succeed(service KeyService, old []Key) (KeyService, error) {
	if len(old) == 0 {
		return service, nil
	}
	ring, err := NewKeyring(old[0], old[1:]...)
	return successor{service, ring}, err
}

// Has implements KeyService.
func (s successor) Has(id string) bool { return s.KeyService.Has(id) || s.old.Has(id) }

// Unwrap implements KeyService.
func (s successor) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	if s.old.Has(id) {
		return s.old.Unwrap(ctx, id, wrapped, associated)
	}
	return s.KeyService.Unwrap(ctx, id, wrapped, associated)
}

// KeyID implements KeyService.
func (r *Keyring) KeyID() string { return r.current }

// Has implements KeyService.
func (r *Keyring) Has(id string) bool { return r.keys[id] != nil }

// Wrap implements KeyService.
func (r *Keyring) Wrap(_ context.Context, dataKey, associated []byte) ([]byte, error) {
	return r.keys[r.current].Seal(nil, nil, dataKey, associated), nil
}

// Unwrap implements KeyService.
func (r *Keyring) Unwrap(_ context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	key := r.keys[id]
	if key == nil {
		return nil, &WrongKeyError{Wanted: []string{id}, Given: r.current}
	}
	return key.Open(nil, nil, wrapped, associated)
}
