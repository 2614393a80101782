package link

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/everdict/everdict/protocol"
)

// NoncePath is where a coordinator gives nonces for device sessions (protocol.Nonce). It is a sibling of Path, so that
// what routes the one routes the other.
const NoncePath = "/agent/nonce"

// Credential proves to the coordinator who the runner is. Secret and DeviceKey are the two there are.
type Credential interface {
	// Bearer is what one connection sends in its Authorization header. nonce asks the coordinator for a nonce.
	Bearer(ctx context.Context, nonce func(context.Context) (string, error)) (Secret, error)
	// Identity names the credential without giving it away, the same for each copy of it. It is empty for no
	// credential.
	Identity() string
}

var (
	_ Credential = Secret("")
	_ Credential = DeviceKey{}
)

// Bearer implements Credential: a token is sent as it is.
func (s Secret) Bearer(context.Context, func(context.Context) (string, error)) (Secret, error) {
	return s, nil
}

// Identity implements Credential.
func (s Secret) Identity() string {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// DeviceKey is the credential of a machine that was paired without a token. Its key is sent nowhere.
type DeviceKey struct {
	Runner string
	Key    ed25519.PrivateKey
}

// Bearer implements Credential: it signs a nonce of the coordinator's, so that what is sent is good once.
func (d DeviceKey) Bearer(ctx context.Context, nonce func(context.Context) (string, error)) (Secret, error) {
	n, err := nonce(ctx)
	if err != nil {
		return "", err
	}
	return Secret(protocol.SignSession(d.Key, d.Runner, n)), nil
}

// Identity implements Credential.
func (d DeviceKey) Identity() string {
	if d.Runner == "" || len(d.Key) != ed25519.PrivateKeySize {
		return ""
	}
	sum := sha256.Sum256(d.Key.Public().(ed25519.PublicKey))
	return hex.EncodeToString(sum[:8])
}

// String names the runner alone.
func (d DeviceKey) String() string { return fmt.Sprintf("device key of %s", d.Runner) }

// GoString is String.
func (d DeviceKey) GoString() string { return d.String() }

// LogValue is String.
func (d DeviceKey) LogValue() slog.Value { return slog.StringValue(d.String()) }
