package house

import (
	"context"
	"crypto/ed25519"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Device pairs a machine without a token, as a machine without a browser does and with
// the caller of h.Client as the one who approves.
func (h *House) Device(label string, key ed25519.PrivateKey) (protocol.Runner, link.DeviceKey) {
	h.T.Helper()
	ctx := context.Background()
	verifier := protocol.NewVerifier()
	started, err := h.Client.StartPairing(ctx, &protocol.PairingRequest{Label: label, PublicKey: protocol.PublicKey(key), Challenge: protocol.PairingChallenge(verifier)})
	if err != nil {
		h.T.Fatalf("start to pair %s: %v", label, err)
	}
	if _, err := h.Client.ApprovePairing(ctx, started.ID); err != nil {
		h.T.Fatalf("approve %s: %v", label, err)
	}
	device, err := h.Client.RedeemPairing(ctx, started.ID, &protocol.PairingRedeem{Verifier: verifier, Proof: protocol.SignPairing(key, started.ID, "")})
	if err != nil || device.Runner == nil {
		h.T.Fatalf("redeem %s: %+v, %v", label, device, err)
	}
	return *device.Runner, link.DeviceKey{Runner: device.Runner.ID, Key: key}
}

// DeviceRunner starts the runner of a device.
func (h *House) DeviceRunner(runner protocol.Runner, key link.DeviceKey, configure ...func(*agent.Config)) *Runner {
	h.T.Helper()
	return h.RunnerFor(protocol.Paired{Runner: runner}, append(configure, func(c *agent.Config) { c.Credential = key })...)
}
