package pairing

import (
	"context"
	"net/netip"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// Redeem makes the machine that asked a runner, once its request is approved. done is
// false while it has to ask again.
//
// What is wrong burns nothing of the right machine's, which alone has the verifier and the
// device key. There is one exception: whoever has the right grant and not the verifier has
// read the browser's addresses, and the request is void (RFC 6749, section 10.5).
func (p *Pairings) Redeem(ctx context.Context, from netip.Addr, id string, req *protocol.PairingRedeem) (_ protocol.PairedDevice, done bool, err error) {
	network := auth.Network(from)
	if err := p.wrong.Check(network); err != nil {
		return protocol.PairedDevice{}, false, err
	}
	r, err := p.claim(id, req)
	if err != nil {
		if refused(err) {
			p.wrong.Count(network)
		}
		return protocol.PairedDevice{}, false, err
	}
	if r == nil {
		return protocol.PairedDevice{Status: protocol.PairingPending}, false, nil
	}
	// The machine may go away meanwhile. Whether it has become a runner must be known.
	runner, err := p.cfg.Runners.pairDevice(context.WithoutCancel(ctx), r.account, &r.device)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.redeeming = false
	if err != nil {
		return protocol.PairedDevice{}, false, err
	}
	r.status, r.runner, r.grant = protocol.PairingDone, runner.ID, ""
	p.log(r, "machine paired", "runner", r.runner)
	who := r.account
	return protocol.PairedDevice{Status: protocol.PairingDone, Runner: &runner, Account: &who}, true, nil
}

// refused says whether an error is that of somebody who tried what is not theirs.
func refused(err error) bool {
	switch reason(err) {
	case protocol.ReasonVerifier, protocol.ReasonProof, protocol.ReasonGrant, protocol.ReasonExpired:
		return true
	}
	return false
}

// claim is the request that is now to become a runner; nil while nobody has decided.
func (p *Pairings) claim(id string, req *protocol.PairingRedeem) (*request, error) {
	p.mu.Lock()
	r := p.requests[id]
	p.mu.Unlock()
	if r == nil {
		return nil, unknownRequest()
	}
	// These take a while, and nothing that they look at ever changes.
	verified := protocol.VerifierMeets(req.Verifier, r.challenge)
	proved := verified && protocol.VerifyPairing(r.key, r.id, req.Grant, req.Proof)

	p.mu.Lock()
	defer p.mu.Unlock()
	granted := r.grant != "" && matches(req.Grant, r.grant)
	switch {
	case r.over(p.cfg.Now()):
		return nil, expiredRequest()
	case !verified:
		if granted && r.status == protocol.PairingApproved && !r.redeeming {
			r.status, r.grant, r.void = protocol.PairingDenied, "", true
			p.log(r, "pairing is void: its grant came with a wrong verifier")
		}
		return nil, wrongVerifier()
	case !proved:
		return nil, wrongProof()
	}
	// This is the machine that asked.
	switch r.status {
	case protocol.PairingDenied:
		if r.void {
			return nil, leakedRequest()
		}
		return nil, deniedRequest()
	case protocol.PairingDone:
		return nil, protocol.Conflict("the request was redeemed: the machine is runner %s", r.runner).
			WithData("reason", protocol.ReasonUsed).WithData("runner", r.runner).WithData("account", r.account).
			WithHint("start the runner with its device key")
	case protocol.PairingPending:
		if req.Grant != "" {
			return nil, wrongGrant()
		}
		return nil, nil
	}
	if r.callback != nil && !granted || r.callback == nil && req.Grant != "" {
		return nil, wrongGrant()
	}
	if r.redeeming {
		return nil, nil
	}
	r.redeeming = true
	return r, nil
}
