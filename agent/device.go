package agent

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Device is what a machine that was paired without a token keeps: who it is where, and
// its key.
type Device struct {
	// Coordinator is the address that it was paired with.
	Coordinator string
	Runner      string
	// Account is whose machine it is.
	Account protocol.Account
	Key     ed25519.PrivateKey
}

// Credential is what the device connects with.
func (d Device) Credential() link.DeviceKey { return link.DeviceKey{Runner: d.Runner, Key: d.Key} }

// String names the device without its key.
func (d Device) String() string { return fmt.Sprintf("device %s at %s", d.Runner, d.Coordinator) }

// GoString is String.
func (d Device) GoString() string { return d.String() }

// deviceFile is a Device on the disk: one line of JSON, so that it is told apart from a
// token, which never begins with a brace.
type deviceFile struct {
	Device struct {
		Coordinator string           `json:"coordinator"`
		Runner      string           `json:"runner"`
		Account     protocol.Account `json:"account"`
		// Seed is that of the Ed25519 key, in base64url.
		Seed string `json:"seed"`
	} `json:"device"`
}

// StoreDevice keeps a device in path for later starts, readable by its owner alone.
func StoreDevice(path string, d Device) error {
	if len(d.Key) != ed25519.PrivateKeySize {
		return errors.New("agent: store the device: it has no key")
	}
	var f deviceFile
	f.Device.Coordinator, f.Device.Runner, f.Device.Account = d.Coordinator, d.Runner, d.Account
	f.Device.Seed = base64.RawURLEncoding.EncodeToString(d.Key.Seed())
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("agent: store the device: %w", err)
	}
	return storeSecret(path, string(b))
}

// LoadCredential reads what StoreCredential or StoreDevice has kept in path. device is nil
// for a token. What is not there or empty is fs.ErrNotExist.
func LoadCredential(path string) (c link.Credential, device *Device, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("agent: read the credential: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCredential))
	if err != nil {
		return nil, nil, fmt.Errorf("agent: read the credential: %w", err)
	}
	if b = bytes.TrimSpace(b); !bytes.HasPrefix(b, []byte("{")) {
		line, _, _ := strings.Cut(string(b), "\n")
		token, err := checkCredential(line)
		if err != nil {
			return nil, nil, err
		}
		return token, nil, nil
	}
	d, err := parseDevice(b)
	if err != nil {
		return nil, nil, err
	}
	return d.Credential(), &d, nil
}

// parseDevice reads what StoreDevice has written. Its errors never repeat it.
func parseDevice(b []byte) (Device, error) {
	damaged := errors.New("agent: the credential of this device is damaged: pair the machine again (everdict runner --pair)")
	var f deviceFile
	if json.Unmarshal(b, &f) != nil {
		return Device{}, damaged
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(f.Device.Seed)
	if err != nil || len(seed) != ed25519.SeedSize || !strings.HasPrefix(f.Device.Runner, protocol.RunnerPrefix) {
		return Device{}, damaged
	}
	return Device{Coordinator: f.Device.Coordinator, Runner: f.Device.Runner, Account: f.Device.Account, Key: ed25519.NewKeyFromSeed(seed)}, nil
}
