package secret

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/everdict/everdict/coordinator/store"
)

// keyBytes is the length of every key here: AES-256.
const keyBytes = 32

// KeyService wraps data keys by a key that nobody else has, and unwraps them: what
// a key management service does. Keyring is the one with keys at hand. Its methods are
// safe for concurrent use. A data key is asked for whenever a value is set or looked up,
// so one that cannot be reached holds up runs that need secrets.
type KeyService interface {
	// KeyID names the key that wraps from now on.
	KeyID() string
	// Has reports whether what the key id has wrapped can be unwrapped.
	Has(id string) bool
	// Wrap seals a data key by the key that KeyID names, bound to associated.
	Wrap(ctx context.Context, dataKey, associated []byte) ([]byte, error)
	// Unwrap opens what the key id has wrapped. What was changed, or was bound to
	// something else, is an error, and the secret is taken for damaged. ErrUnavailable
	// says that it may open later.
	Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error)
}

// ErrUnavailable says that a key service was not reached: whoever needs the secret is to
// ask again.
var ErrUnavailable = errors.New("secret: the key service does not answer")

// UnreadableError is a secret that does not open: its row was damaged, or put in
// the place of another one.
type UnreadableError struct {
	store.SecretKey
	Err error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("secret: open %s (%s) in workspace %s: %v", e.Name, e.Scope, e.Workspace, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// newAEAD is AES-256-GCM that makes its own random nonces and keeps them with what
// it seals. A data key seals one value; the key above seals one data key per
// change of a secret, far from the 2^32 up to which random nonces are safe.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// associated is what a secret is bound to: its whole name, each part with its
// length, so that no two names look alike.
func associated(k store.SecretKey) []byte {
	b := []byte("everdict secret 1")
	for _, part := range []string{k.Workspace, k.Scope, k.Owner, k.Name} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// seal makes the row of a value, but for its time.
func seal(ctx context.Context, keys KeyService, k store.SecretKey, value string) (store.SecretRecord, error) {
	r := store.SecretRecord{SecretKey: k, KeyID: keys.KeyID()}
	dataKey := make([]byte, keyBytes)
	defer clear(dataKey)
	rand.Read(dataKey) // never fails: it ends the program instead
	aead, err := newAEAD(dataKey)
	if err != nil {
		return r, fmt.Errorf("secret: seal %s: %w", k.Name, err)
	}
	bound := associated(k)
	r.Sealed = aead.Seal(nil, nil, []byte(value), bound)
	if r.DataKey, err = keys.Wrap(ctx, dataKey, bound); err != nil {
		return r, fmt.Errorf("secret: seal %s: %w", k.Name, err)
	}
	return r, nil
}

// open is the value in a row; an *UnreadableError if it is not the one that was
// sealed for this row.
func open(ctx context.Context, keys KeyService, r store.SecretRecord) (string, error) {
	bound := associated(r.SecretKey)
	dataKey, err := keys.Unwrap(ctx, r.KeyID, r.DataKey, bound)
	if err != nil && (errors.Is(err, ErrUnavailable) || ctx.Err() != nil) {
		return "", fmt.Errorf("secret: open %s: %w", r.Name, err)
	}
	if err != nil {
		return "", &UnreadableError{r.SecretKey, err}
	}
	defer clear(dataKey)
	aead, err := newAEAD(dataKey)
	if err != nil {
		return "", &UnreadableError{r.SecretKey, err}
	}
	value, err := aead.Open(nil, nil, r.Sealed, bound)
	if err != nil {
		return "", &UnreadableError{r.SecretKey, err}
	}
	return string(value), nil
}
