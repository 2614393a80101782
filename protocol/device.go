package protocol

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
)

// DeviceSessionPrefix begins a credential that a device key made.
const DeviceSessionPrefix = "drs_"

// maxDeviceSession bounds one, in bytes: 30 of an id, 200 of a nonce, 86 of a signature.
const maxDeviceSession = 512

// Nonce is the answer of POST /agent/nonce, which needs no credential. A nonce is good for
// one session of one device.
type Nonce struct {
	// Nonce is at most MaxNonce characters of base64url.
	Nonce        string `json:"nonce"`
	ExpiresInSec int    `json:"expiresInSec"`
}

// MaxNonce bounds a nonce, in bytes.
const MaxNonce = 200

// ValidNonce says whether s could be a nonce.
func ValidNonce(s string) bool { return s != "" && len(s) <= MaxNonce && base64URL(s) }

// DeviceSession says that whoever holds a runner's device key wants a session now. It is a
// bearer credential that is good once.
type DeviceSession struct {
	Runner, Nonce string
	signature     []byte
}

// sessionContext keeps a signature for one purpose from being one for another.
const sessionContext = "everdict device session v1\n"

// NewDeviceKey makes the key of a machine that wants to be a runner.
func NewDeviceKey() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand aborts the program instead
	}
	return key
}

// PublicKey is the public half of a device key, as PairingRequest has it.
func PublicKey(key ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

// ParsePublicKey reads what PublicKey made.
func ParsePublicKey(s string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("protocol: this is no Ed25519 public key in base64url")
	}
	return b, nil
}

// SignSession makes the credential of one session: drs_RUNNER.NONCE.SIGNATURE.
func SignSession(key ed25519.PrivateKey, runner, nonce string) string {
	sig := ed25519.Sign(key, []byte(sessionContext+runner+"\n"+nonce))
	return DeviceSessionPrefix + runner + "." + nonce + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// ParseDeviceSession reads what SignSession made. The signature is not checked.
func ParseDeviceSession(s string) (DeviceSession, error) {
	bad := errors.New("protocol: this is no device session")
	rest, ok := strings.CutPrefix(s, DeviceSessionPrefix)
	if !ok || len(s) > maxDeviceSession {
		return DeviceSession{}, bad
	}
	part := strings.Split(rest, ".")
	if len(part) != 3 || !strings.HasPrefix(part[0], RunnerPrefix) || !base64URL(part[0]) || !ValidNonce(part[1]) {
		return DeviceSession{}, bad
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(part[2])
	if err != nil || len(sig) != ed25519.SignatureSize {
		return DeviceSession{}, bad
	}
	return DeviceSession{Runner: part[0], Nonce: part[1], signature: sig}, nil
}

// Signed says whether the holder of a key made it.
func (d DeviceSession) Signed(key ed25519.PublicKey) bool {
	return ed25519.Verify(key, []byte(sessionContext+d.Runner+"\n"+d.Nonce), d.signature)
}

// base64URL says whether s has no other characters than base64url's.
func base64URL(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
