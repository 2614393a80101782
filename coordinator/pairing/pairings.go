package pairing

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// Bounds of what Pairings remember.
const (
	// maxRequests are the requests that nobody vouches for, maxRequestsFrom those of one
	// network among them.
	maxRequests     = 4096
	maxRequestsFrom = 64
	// maxCodes are the pair codes, maxCodesOf those of one person among them. A request
	// that came with a code counts as that.
	maxCodes   = 4096
	maxCodesOf = 16
)

// pairingLife is how long a request and a code are good. For as long again it is
// remembered that they were, so that whoever asks is told so.
const pairingLife = protocol.PairingLifeSec * time.Second

// PairingsConfig of Pairings. Runners is required.
type PairingsConfig struct {
	Runners *Runners
	// NoDeviceCode refuses machines without a browser: those that come with neither a
	// callback nor a pair code.
	NoDeviceCode bool
	// Log is told who lets which machine in; nil: slog.Default.
	Log *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Pairings are the machines that ask to become runners, and the pair codes of people who
// have such a machine. They are in memory alone: after a restart a machine asks anew. Its
// methods are safe for concurrent use.
type Pairings struct {
	cfg PairingsConfig

	// asking is for machines that ask, wrong and guessing are for those that try what is
	// not theirs: by network, and by who is signed in.
	asking, wrong *auth.Throttle[netip.Prefix]
	guessing      *auth.Throttle[string]

	mu sync.Mutex
	// requests are by id; byUserCode are those among them that somebody could type in.
	requests   map[string]*request
	byUserCode map[string]*request
	// codes are by what the link carries, codesByID the same by their id.
	codes, codesByID map[string]*code
}

// NewPairings returns pairings that know of no machine.
func NewPairings(cfg PairingsConfig) *Pairings {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	throttle := func(burst int, every time.Duration, message string) auth.ThrottleConfig {
		return auth.ThrottleConfig{Burst: burst, Every: every, Message: message, Now: cfg.Now}
	}
	const tries = "too many wrong tries to pair a machine came from "
	return &Pairings{
		cfg:        cfg,
		asking:     auth.NewThrottle[netip.Prefix](throttle(20, 3*time.Second, "too many machines at this address ask to be paired")),
		wrong:      auth.NewThrottle[netip.Prefix](throttle(10, 6*time.Second, tries+"this address")),
		guessing:   auth.NewThrottle[string](throttle(10, 6*time.Second, tries+"you")),
		requests:   map[string]*request{},
		byUserCode: map[string]*request{},
		codes:      map[string]*code{},
		codesByID:  map[string]*code{},
	}
}

// life is when something began and is over.
type life struct{ from, until time.Time }

func (p *Pairings) begin() life {
	now := p.cfg.Now()
	return life{from: now, until: now.Add(pairingLife)}
}

// over says whether something is over at a moment: at its end it is.
func (l life) over(now time.Time) bool { return !now.Before(l.until) }

// forgotten says whether it need not be remembered any more that it was.
func (l life) forgotten(now time.Time) bool { return !now.Before(l.until.Add(pairingLife)) }

// left is the rest in whole seconds, rounded down.
func (l life) left(now time.Time) int { return int(max(0, l.until.Sub(now)) / time.Second) }

// sweep drops what need not be remembered any more, and with all also what is over. The
// caller holds mu.
func (p *Pairings) sweep(now time.Time, all bool) {
	for id, r := range p.requests {
		if r.forgotten(now) || all && r.over(now) {
			delete(p.requests, id)
			p.unlist(r)
		}
	}
	for id, c := range p.codesByID {
		if c.forgotten(now) || all && c.over(now) {
			delete(p.codesByID, id)
			delete(p.codes, c.secret)
		}
	}
}

// who names a person for the throttle.
func who(p auth.Principal) string { return p.Workspace + "\n" + p.Subject }

// account is who a machine works for if p says so.
func account(p auth.Principal) protocol.Account {
	return protocol.Account{Subject: p.Subject, Workspace: p.Workspace}
}

// twoDigits makes the number that a person compares.
func twoDigits() string { return fmt.Sprintf("%02d", randomBelow(100)) }

func randomBelow(n int64) int64 {
	i, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		panic(err) // crypto/rand aborts the program instead
	}
	return i.Int64()
}
