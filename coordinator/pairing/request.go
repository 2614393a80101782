package pairing

import (
	"cmp"
	"crypto/ed25519"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// pollSeconds is how often a machine without a callback asks whether it is approved.
const pollSeconds = 2

// request is a machine that asks. What is above mu never changes; the rest is guarded by
// Pairings.mu.
type request struct {
	life
	id, number, userCode string
	device               device
	key                  ed25519.PublicKey
	challenge            string
	callback             *protocol.PairingCallback
	from                 netip.Addr
	code                 *code // that it came with; nil: none

	status  protocol.PairingStatus // without PairingExpired, which time makes of it
	account protocol.Account       // who approved it
	grant   string                 // of the approval, if there is a callback
	void    bool                   // denied because the grant has leaked
	// redeeming says that the machine is being made a runner at this moment.
	redeeming bool
	runner    string // once there is one
}

// headless says that the machine has no browser and that nobody has vouched for it.
func (r *request) headless() bool { return r.callback == nil && r.code == nil }

// Start takes in a machine that asks, from an address. base is where the machine reaches
// this coordinator.
func (p *Pairings) Start(from netip.Addr, base string, req *protocol.PairingRequest) (protocol.PairingStarted, error) {
	if err := req.Validate(); err != nil {
		return protocol.PairingStarted{}, err
	}
	key, err := protocol.ParsePublicKey(req.PublicKey)
	if err != nil {
		return protocol.PairingStarted{}, err
	}
	if err := p.asking.Take(auth.Network(from)); err != nil {
		return protocol.PairingStarted{}, err
	}
	if p.cfg.NoDeviceCode && req.Callback == nil && req.Code == "" {
		return protocol.PairingStarted{}, deviceCodeOff()
	}
	r := &request{
		life: p.begin(), id: protocol.NewID(protocol.PairingPrefix), number: twoDigits(), key: key, challenge: req.Challenge,
		device: device{label: req.Label, os: req.OS, arch: req.Arch, hostname: req.Hostname, version: req.Version,
			capabilities: distinct(req.Capabilities), publicKey: req.PublicKey},
		callback: req.Callback, from: from, status: protocol.PairingPending,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := r.life.from
	p.sweep(now, false)
	started := protocol.PairingStarted{ID: r.id, ExpiresInSec: r.left(now)}
	if req.Code != "" {
		if err := p.vouch(r, req, now); err != nil {
			return protocol.PairingStarted{}, err
		}
		started.Account = &r.account
	} else {
		if err := p.room(from, now); err != nil {
			return protocol.PairingStarted{}, err
		}
		started.URL = base + "/ui/pair/" + r.id
	}
	if r.headless() {
		for r.userCode == "" || p.byUserCode[r.userCode] != nil {
			r.userCode = newUserCode()
		}
		p.byUserCode[r.userCode] = r
		started.UserCode, started.EnterURL, started.IntervalSec = r.userCode, base+"/ui/pair", pollSeconds
	}
	started.Number = r.number
	p.requests[r.id] = r
	return started, nil
}

// room is a 429 where there is none for one more machine that nobody vouches for. The
// caller holds mu.
func (p *Pairings) room(from netip.Addr, now time.Time) error {
	if len(p.requests) >= 2*maxRequests {
		p.sweep(now, true)
	}
	all, here := 0, 0
	for _, r := range p.requests {
		if r.code != nil || r.over(now) {
			continue
		}
		all++
		if auth.Network(r.from) == auth.Network(from) && r.status == protocol.PairingPending {
			here++
		}
	}
	if here < maxRequestsFrom && all < maxRequests {
		return nil
	}
	where := ""
	if here >= maxRequestsFrom {
		where = "at this address "
	}
	return (&protocol.Problem{Status: http.StatusTooManyRequests, Code: protocol.CodeRateLimited,
		Message: "too many machines " + where + "wait to be approved"}).
		WithHint("try again in a minute, or use a pair code of the dashboard").WithData("retryAfterSec", 60)
}

// Get is a request as somebody who is signed in sees it.
func (p *Pairings) Get(by auth.Principal, id string) (protocol.Pairing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[id]
	if r == nil {
		return protocol.Pairing{}, unknownRequest()
	}
	return p.view(r, by), nil
}

// Lookup is the request with a code that somebody typed in. Whatever is wrong with it,
// the answer is the same.
func (p *Pairings) Lookup(by auth.Principal, from netip.Addr, userCode string) (protocol.Pairing, error) {
	network := auth.Network(from)
	if err := cmp.Or(p.wrong.Check(network), p.guessing.Check(who(by))); err != nil {
		return protocol.Pairing{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byUserCode[readUserCode(userCode)]; r != nil && !r.over(p.cfg.Now()) {
		return p.view(r, by), nil
	}
	p.wrong.Count(network)
	p.guessing.Count(who(by))
	return protocol.Pairing{}, refuse(protocol.NotFound("no machine waits with this code"), protocol.ReasonExpired,
		"look whether it is typed as the machine shows it; it is good for five minutes")
}

// Approve lets the machine be a runner of by's. The same person may do it again, and gets
// the same answer.
func (p *Pairings) Approve(by auth.Principal, id string) (protocol.PairingApproval, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.undecided(by, id)
	if err != nil {
		return protocol.PairingApproval{}, err
	}
	if r.status == protocol.PairingDenied {
		return protocol.PairingApproval{}, refuse(protocol.Conflict("the request was denied"), protocol.ReasonDenied, beginAgain)
	}
	if r.status == protocol.PairingPending {
		r.status, r.account = protocol.PairingApproved, account(by)
		p.log(r, "machine approved")
		p.unlist(r)
		if r.callback != nil {
			r.grant = protocol.NewCredential(protocol.PairGrantPrefix)
		}
	}
	answer := protocol.PairingApproval{Pairing: p.view(r, by)}
	if c := r.callback; c != nil {
		answer.Callback = fmt.Sprintf("http://127.0.0.1:%d/callback?pairing=%s&grant=%s&state=%s", c.Port, r.id, r.grant, url.QueryEscape(c.State))
		answer.Link = protocol.DeepLink{Kind: protocol.LinkGranted, Pairing: r.id, Code: r.grant, State: c.State}.String()
	}
	return answer, nil
}

// Deny refuses the machine. Whoever approved it may do it for as long as the machine has
// not become a runner.
func (p *Pairings) Deny(by auth.Principal, id string) (protocol.Pairing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.undecided(by, id)
	if err != nil {
		return protocol.Pairing{}, err
	}
	r.status, r.grant = protocol.PairingDenied, ""
	p.log(r, "machine denied", "by", by.Subject)
	p.unlist(r)
	return p.view(r, by), nil
}

// undecided is a request of which by may still say what becomes of it. The caller holds
// mu.
func (p *Pairings) undecided(by auth.Principal, id string) (*request, error) {
	r := p.requests[id]
	switch {
	case r == nil:
		return nil, unknownRequest()
	case r.status == protocol.PairingDone || r.redeeming:
		return nil, refuse(protocol.Conflict("the machine is a runner already"), protocol.ReasonUsed, "revoke it among the runners if it should not be")
	case r.over(p.cfg.Now()):
		return nil, expiredRequest()
	case r.status == protocol.PairingApproved && r.account != account(by):
		return nil, refuse(protocol.Conflict("somebody else has approved the request"), protocol.ReasonUsed, beginAgain+" to have it as a runner of yours")
	}
	return r, nil
}

// log writes what became of a request, never its codes. The caller holds mu.
func (p *Pairings) log(r *request, what string, more ...any) {
	p.cfg.Log.Info(what, append([]any{"pairing", r.id, "label", r.device.label, "from", r.from, "subject", r.account.Subject, "workspace", r.account.Workspace}, more...)...)
}

// unlist makes a request one that nobody can type in. The caller holds mu.
func (p *Pairings) unlist(r *request) {
	if p.byUserCode[r.userCode] == r {
		delete(p.byUserCode, r.userCode)
	}
}

// view is a request as by sees it. The caller holds mu.
func (p *Pairings) view(r *request, by auth.Principal) protocol.Pairing {
	now := p.cfg.Now()
	v := protocol.Pairing{
		ID: r.id, Status: r.status, Label: r.device.label, OS: r.device.os, Arch: r.device.arch, Hostname: r.device.hostname,
		Version: r.device.version, Capabilities: distinct(r.device.capabilities), From: r.from.String(), Number: r.number,
		Headless: r.headless(), RequestedAt: protocol.At(r.life.from), ExpiresInSec: r.left(now),
	}
	if r.over(now) && (r.status == protocol.PairingPending || r.status == protocol.PairingApproved) {
		v.Status = protocol.PairingExpired
	}
	if r.account == account(by) {
		v.Runner = r.runner
	}
	return v
}

// matches compares secrets in constant time.
func matches(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
