package client

import (
	"context"

	"github.com/everdict/everdict/protocol"
)

// StartPairing asks that this machine becomes a runner. It needs no credential.
func (c *Client) StartPairing(ctx context.Context, req *protocol.PairingRequest) (*protocol.PairingStarted, error) {
	return send[protocol.PairingStarted](ctx, c, post("pairings"), req)
}

// RedeemPairing makes the machine a runner once its request is approved; until then the
// answer is protocol.PairingPending. It needs no credential.
func (c *Client) RedeemPairing(ctx context.Context, id string, req *protocol.PairingRedeem) (*protocol.PairedDevice, error) {
	return send[protocol.PairedDevice](ctx, c, post("pairings", id, "redeem"), req)
}

// Pairing is the request of a machine.
func (c *Client) Pairing(ctx context.Context, id string) (*protocol.Pairing, error) {
	return one[protocol.Pairing](ctx, c, get("pairings", id))
}

// LookupPairing finds the request of a machine by the code that it shows.
func (c *Client) LookupPairing(ctx context.Context, userCode string) (*protocol.Pairing, error) {
	return send[protocol.Pairing](ctx, c, post("pairings", "lookup"), &protocol.PairingLookup{UserCode: userCode})
}

// ApprovePairing lets a machine be a runner of the caller's.
func (c *Client) ApprovePairing(ctx context.Context, id string) (*protocol.PairingApproval, error) {
	return one[protocol.PairingApproval](ctx, c, post("pairings", id, "approve"))
}

// DenyPairing refuses a machine.
func (c *Client) DenyPairing(ctx context.Context, id string) (*protocol.Pairing, error) {
	return one[protocol.Pairing](ctx, c, post("pairings", id, "deny"))
}

// CreatePairCode makes a link that connects the machine on which it is opened.
func (c *Client) CreatePairCode(ctx context.Context) (*protocol.PairCode, error) {
	return one[protocol.PairCode](ctx, c, post("pair-codes"))
}

// PairCode says what has become of one.
func (c *Client) PairCode(ctx context.Context, id string) (*protocol.PairCode, error) {
	return one[protocol.PairCode](ctx, c, get("pair-codes", id))
}

// Unpair ends the pairing of the runner whose credential the client has: its session
// closes and its job stops.
func (c *Client) Unpair(ctx context.Context) error {
	return c.call(ctx, del("runners", "self"), nil)
}

// Nonce asks for what a device key signs (protocol.SignSession). It needs no credential.
func (c *Client) Nonce(ctx context.Context) (*protocol.Nonce, error) {
	return one[protocol.Nonce](ctx, c, post("agent", "nonce"))
}
