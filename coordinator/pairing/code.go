package pairing

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// code is a pair code. What is above status never changes; status is guarded by
// Pairings.mu.
type code struct {
	life
	id, secret, number string
	account            protocol.Account

	status  protocol.PairCodeStatus // without PairCodeExpired, which time makes of it
	request *request                // that came with it
}

// CreateCode makes a pair code of by's. base is where by's browser reaches this
// coordinator, and where the machine will.
func (p *Pairings) CreateCode(by auth.Principal, base string) (protocol.PairCode, error) {
	c := &code{
		life: p.begin(), id: protocol.NewID(protocol.PairCodeIDPrefix), secret: protocol.NewCredential(protocol.PairCodePrefix), number: twoDigits(),
		account: account(by), status: protocol.PairCodeWaiting,
	}
	link := protocol.DeepLink{Kind: protocol.LinkPair, Coordinator: base, Account: c.account, Code: c.secret}.String()
	if _, err := protocol.ParseDeepLink(link); err != nil {
		return protocol.PairCode{}, protocol.Conflict("no link for the desktop app can be made: %v", err).
			WithHint("open the dashboard by https, or on the coordinator's own machine; everdict runner --pair connects a machine in any case")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := c.from
	p.sweep(now, false)
	own := 0
	for _, other := range p.codesByID {
		if other.account == c.account && !other.over(now) && other.status == protocol.PairCodeWaiting {
			own++
		}
	}
	if len(p.codesByID) >= maxCodes {
		p.sweep(now, true)
	}
	if own >= maxCodesOf || len(p.codesByID) >= maxCodes {
		return protocol.PairCode{}, (&protocol.Problem{Status: http.StatusTooManyRequests, Code: protocol.CodeRateLimited,
			Message: "too many pair codes wait for a machine"}).
			WithHint("use one of them, or wait: each is over after five minutes").WithData("retryAfterSec", 60)
	}
	p.codes[c.secret], p.codesByID[c.id] = c, c
	v := c.view(now)
	v.Link = link
	return v, nil
}

// Code says to whoever made it what has become of a pair code.
func (p *Pairings) Code(ctx context.Context, by auth.Principal, id string) (protocol.PairCode, error) {
	p.mu.Lock()
	c := p.codesByID[id]
	if c == nil || c.account != account(by) {
		p.mu.Unlock()
		return protocol.PairCode{}, unknownCode()
	}
	v := c.view(p.cfg.Now())
	runner := ""
	if c.request != nil {
		runner = c.request.runner
	}
	p.mu.Unlock()
	if runner == "" {
		return v, nil
	}
	shown, err := p.cfg.Runners.Get(ctx, by.Workspace, runner)
	var problem *protocol.Problem
	switch {
	case err == nil:
		v.Runner = &shown
	case !errors.As(err, &problem): // one that was revoked since is not shown
		return protocol.PairCode{}, err
	}
	return v, nil
}

// vouch makes a request one that whoever made its code has approved. The caller holds mu.
func (p *Pairings) vouch(r *request, req *protocol.PairingRequest, now time.Time) error {
	network := auth.Network(r.from)
	if err := p.wrong.Check(network); err != nil {
		return err
	}
	c := p.codes[req.Code]
	switch {
	case c == nil || c.over(now):
		p.wrong.Count(network)
		return unknownCode()
	case c.status == protocol.PairCodeUsed:
		return usedCode()
	case c.status == protocol.PairCodeSpoilt:
		return spoiltCode()
	case !matches(req.Number, c.number):
		c.status = protocol.PairCodeSpoilt
		p.wrong.Count(network)
		return spoiltCode()
	}
	c.status, c.request = protocol.PairCodeUsed, r
	r.code, r.number, r.status, r.account = c, c.number, protocol.PairingApproved, c.account
	p.log(r, "machine came with a pair code", "pair_code", c.id)
	return nil
}

func (c *code) view(now time.Time) protocol.PairCode {
	v := protocol.PairCode{ID: c.id, Number: c.number, Status: c.status, ExpiresInSec: c.left(now)}
	if c.status == protocol.PairCodeWaiting && c.over(now) {
		v.Status = protocol.PairCodeExpired
	}
	return v
}
