package pairing

import (
	"context"
	"errors"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// device is a machine that has proved that it has the key.
type device struct {
	label, os, arch, hostname, version string
	capabilities                       []string
	publicKey                          string
}

// pairDevice adds a machine as a runner of account's. A machine whose key is such a
// runner already is that one: it did not get the answer the first time.
func (r *Runners) pairDevice(ctx context.Context, account protocol.Account, d *device) (protocol.Runner, error) {
	record := &store.RunnerRecord{
		Runner: protocol.Runner{
			ID: protocol.NewID(protocol.RunnerPrefix), Label: d.label, Owner: account.Subject,
			OS: d.os, Arch: d.arch, Hostname: d.hostname, Version: d.version, Capabilities: distinct(d.capabilities),
			PairedAt: protocol.At(r.cfg.Now()), Device: true, Scope: protocol.RunnerScopeOwner,
		},
		Workspace: account.Workspace,
		PublicKey: d.publicKey,
	}
	err := r.cfg.Store.InsertRunner(ctx, *record)
	if errors.Is(err, store.ErrExists) {
		if record, err = r.cfg.Store.RunnerByKey(ctx, d.publicKey); err != nil {
			return protocol.Runner{}, err
		}
		if record.RevokedAt != nil || record.Workspace != account.Workspace || record.Owner != account.Subject {
			return protocol.Runner{}, protocol.Conflict("this device key was paired before, and the runner that it belongs to is somebody else's or was revoked").
				WithHint("begin again with a new device key")
		}
	}
	if err != nil {
		return protocol.Runner{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(account.Workspace)
	r.tell(account.Workspace, record.ID)
	return r.view(record), nil
}

// Nonce gives a nonce for a device session. It remembers nothing.
func (r *Runners) Nonce() protocol.Nonce { return r.nonces.give() }

// resolveDevice is Resolve for what a device key signed. A revoked device is named to
// nobody but the device, which still has its key.
func (r *Runners) resolveDevice(ctx context.Context, credential string) (*store.RunnerRecord, error) {
	session, err := protocol.ParseDeviceSession(credential)
	if err != nil {
		return nil, store.ErrNotFound
	}
	at, err := r.nonces.read(session.Nonce)
	if err != nil {
		return nil, err
	}
	record, err := r.cfg.Store.Runner(ctx, session.Runner)
	if err != nil {
		return nil, err
	}
	key, err := protocol.ParsePublicKey(record.PublicKey)
	if err != nil || !session.Signed(key) {
		return nil, store.ErrNotFound
	}
	if record.RevokedAt != nil {
		return record, nil
	}
	return record, r.nonces.use(record.ID, at)
}
