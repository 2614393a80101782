package auth

import (
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/everdict/everdict/protocol"
)

// maxThrottled bounds those that a Throttle remembers; beyond it all others share one
// allowance.
const maxThrottled = 10_000

// WrongKeys is what is allowed of tries with API keys. A key cannot be guessed: this is
// so that nobody keeps the coordinator and its log busy with it.
func WrongKeys(now func() time.Time) ThrottleConfig {
	return ThrottleConfig{Burst: 10, Every: 6 * time.Second, Message: "too many wrong API keys came from this address", Now: now}
}

// ThrottleConfig says what a Throttle allows. Burst, Every and Message are required.
type ThrottleConfig struct {
	// Burst is how many tries may come at once, Every how long each further one has to
	// wait.
	Burst int
	Every time.Duration
	// Message of the 429.
	Message string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Throttle slows down who tries something too often. K is what it knows them by: for
// clients, their Network.
type Throttle[K comparable] struct {
	cfg ThrottleConfig

	mu     sync.Mutex
	known  map[K]*rate.Limiter
	others *rate.Limiter
}

// NewThrottle returns one that has seen nobody.
func NewThrottle[K comparable](cfg ThrottleConfig) *Throttle[K] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t := &Throttle[K]{cfg: cfg, known: map[K]*rate.Limiter{}}
	t.others = t.limiter()
	return t
}

func (t *Throttle[K]) limiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(t.cfg.Every), t.cfg.Burst)
}

// Check is a 429 for one who has no try left. It does not count as one.
func (t *Throttle[K]) Check(who K) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	limiter := t.known[who]
	if limiter == nil && len(t.known) >= maxThrottled {
		limiter = t.others
	}
	if limiter == nil {
		return nil
	}
	return t.refusal(limiter.TokensAt(t.cfg.Now()))
}

// Count counts a try.
func (t *Throttle[K]) Count(who K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	t.of(who, now).AllowN(now, 1)
}

// Take counts a try, or is a 429 if there is none left.
func (t *Throttle[K]) Take(who K) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	limiter := t.of(who, now)
	if limiter.AllowN(now, 1) {
		return nil
	}
	return t.refusal(limiter.TokensAt(now))
}

// refusal is nil if there is a token left. It never says "at once".
func (t *Throttle[K]) refusal(left float64) error {
	if left >= 1 {
		return nil
	}
	wait := max(1, int(math.Ceil((1-left)*t.cfg.Every.Seconds())))
	return (&protocol.Problem{Status: http.StatusTooManyRequests, Code: protocol.CodeRateLimited, Message: t.cfg.Message}).
		WithHint("try again in %s seconds", strconv.Itoa(wait)).WithData("retryAfterSec", wait)
}

// of is the limiter that counts for who. The caller holds mu.
func (t *Throttle[K]) of(who K, now time.Time) *rate.Limiter {
	if limiter := t.known[who]; limiter != nil {
		return limiter
	}
	if len(t.known) >= maxThrottled {
		t.forget(now)
	}
	if len(t.known) >= maxThrottled {
		return t.others
	}
	limiter := t.limiter()
	t.known[who] = limiter
	return limiter
}

// forget drops those that may try as if they never had. The caller holds mu.
func (t *Throttle[K]) forget(now time.Time) {
	for who, limiter := range t.known {
		if limiter.TokensAt(now) >= float64(t.cfg.Burst) {
			delete(t.known, who)
		}
	}
}

// Network is what one client has at its disposal: an IPv4 address, or the /64 of an
// IPv6 one.
func Network(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
