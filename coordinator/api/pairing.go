package api

import (
	"net/http"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// pairingID is the path of a machine's request.
type pairingID struct {
	ID string `path:"id" description:"the id of the machine's request (prq_...)"`
}

// pairCodeID is the path of a pair code.
type pairCodeID struct {
	ID string `path:"id" description:"the id of the pair code (pci_...)"`
}

func (s *Server) pairingRoutes() []route {
	return []route{
		create("/pairings", "startPairing", "Ask that a machine becomes a runner; needs no credential", (*Server).startPairing).open(),
		get("/pairings/{id}", "getPairing", "The request of a machine", (*Server).getPairing).action(auth.RunnersRead).with(pairingID{}),
		post("/pairings/lookup", "lookupPairing", "Find the request of a machine by the code that it shows", (*Server).lookupPairing).action(auth.RunnersRead),
		postEmpty("/pairings/{id}/approve", "approvePairing", "Let a machine be a runner of your own", (*Server).approvePairing).action(auth.RunnersWrite).with(pairingID{}),
		postEmpty("/pairings/{id}/deny", "denyPairing", "Refuse a machine", (*Server).denyPairing).action(auth.RunnersWrite).with(pairingID{}),
		post("/pairings/{id}/redeem", "redeemPairing", "Become a runner, once approved (200), or learn that nobody has decided (202); needs no credential", (*Server).redeemPairing).or(http.StatusAccepted).open().with(pairingID{}),
		createEmpty("/pair-codes", "createPairCode", "Make a link that connects the machine on which it is opened", (*Server).createPairCode).action(auth.RunnersWrite),
		get("/pair-codes/{id}", "getPairCode", "What has become of a pair code of yours", (*Server).getPairCode).action(auth.RunnersRead).with(pairCodeID{}),
		postEmpty(link.NoncePath, "giveNonce", "A nonce for a device key to sign; needs no credential", (*Server).giveNonce).open(),
	}
}

// manyNonces is what is allowed of nonces: no less than a fleet behind one address needs
// that comes back after a restart.
func manyNonces(now func() time.Time) auth.ThrottleConfig {
	return auth.ThrottleConfig{Burst: 1000, Every: 2 * time.Millisecond, Message: "too many nonces are asked for at this address", Now: now}
}

// noStore keeps an answer out of caches: a pairing's have codes in them.
func (c *call) noStore() { c.w.Header().Set("Cache-Control", "no-store") }

func (s *Server) startPairing(c *call, req *protocol.PairingRequest) (protocol.PairingStarted, error) {
	c.noStore()
	if err := s.cfg.Auth.CheckProgram(c.r); err != nil {
		return protocol.PairingStarted{}, err
	}
	return s.cfg.Pairings.Start(s.cfg.Auth.Client(c.r), c.baseURL(), req)
}

func (s *Server) getPairing(c *call) (protocol.Pairing, error) {
	c.noStore()
	return s.cfg.Pairings.Get(c.principal, c.path("id"))
}

func (s *Server) lookupPairing(c *call, req *protocol.PairingLookup) (protocol.Pairing, error) {
	c.noStore()
	return s.cfg.Pairings.Lookup(c.principal, s.cfg.Auth.Client(c.r), req.UserCode)
}

func (s *Server) approvePairing(c *call) (protocol.PairingApproval, error) {
	c.noStore()
	return s.cfg.Pairings.Approve(c.principal, c.path("id"))
}

func (s *Server) denyPairing(c *call) (protocol.Pairing, error) {
	c.noStore()
	return s.cfg.Pairings.Deny(c.principal, c.path("id"))
}

func (s *Server) redeemPairing(c *call, req *protocol.PairingRedeem) (protocol.PairedDevice, error) {
	c.noStore()
	if err := s.cfg.Auth.CheckProgram(c.r); err != nil {
		return protocol.PairedDevice{}, err
	}
	device, done, err := s.cfg.Pairings.Redeem(c.r.Context(), s.cfg.Auth.Client(c.r), c.path("id"), req)
	if !done {
		c.override = http.StatusAccepted
	}
	return device, err
}

func (s *Server) createPairCode(c *call) (protocol.PairCode, error) {
	c.noStore()
	return s.cfg.Pairings.CreateCode(c.principal, c.baseURL())
}

func (s *Server) getPairCode(c *call) (protocol.PairCode, error) {
	c.noStore()
	return s.cfg.Pairings.Code(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) giveNonce(c *call) (protocol.Nonce, error) {
	c.noStore()
	if err := s.cfg.Auth.CheckProgram(c.r); err != nil { // a page could use up what the machines of its visitor's network have
		return protocol.Nonce{}, err
	}
	if err := s.nonces.Take(auth.Network(s.cfg.Auth.Client(c.r))); err != nil {
		return protocol.Nonce{}, err
	}
	return s.cfg.Runners.Nonce(), nil
}
