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

// Wrong keys that an address may try at once, and how long it waits for each
// further one.
const (
	wrongBurst = 10
	wrongEvery = 6 * time.Second
	// maxThrottled bounds the addresses that are remembered; beyond it all others
	// share one allowance.
	maxThrottled = 10_000
)

// Throttle slows down who tries keys. A key cannot be guessed: this is so that
// nobody keeps the coordinator and its log busy with it.
type Throttle struct {
	now func() time.Time

	mu     sync.Mutex
	byAddr map[netip.Prefix]*rate.Limiter
	others *rate.Limiter
}

// NewThrottle returns one that has seen nobody. now is the clock; nil: time.Now.
func NewThrottle(now func() time.Time) *Throttle {
	if now == nil {
		now = time.Now
	}
	return &Throttle{now: now, byAddr: map[netip.Prefix]*rate.Limiter{}, others: newLimiter()}
}

func newLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(wrongEvery), wrongBurst) }

// Check is a 429 for an address that has tried too many wrong keys.
func (t *Throttle) Check(addr netip.Addr) error {
	t.mu.Lock()
	limiter := t.byAddr[network(addr)]
	if limiter == nil && len(t.byAddr) >= maxThrottled {
		limiter = t.others
	}
	t.mu.Unlock()
	if limiter == nil {
		return nil
	}
	left := limiter.TokensAt(t.now())
	if left >= 1 {
		return nil
	}
	wait := int(math.Ceil((1 - left) * wrongEvery.Seconds()))
	return (&protocol.Problem{
		Status: http.StatusTooManyRequests, Code: protocol.CodeRateLimited, Message: "too many wrong API keys came from this address",
	}).WithHint("try again in %s seconds", strconv.Itoa(wait)).WithData("retryAfterSec", wait)
}

// Wrong counts a wrong key.
func (t *Throttle) Wrong(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	key := network(addr)
	limiter := t.byAddr[key]
	if limiter == nil {
		if len(t.byAddr) >= maxThrottled {
			t.forget(now)
		}
		if len(t.byAddr) >= maxThrottled {
			limiter = t.others
		} else {
			limiter = newLimiter()
			t.byAddr[key] = limiter
		}
	}
	limiter.AllowN(now, 1)
}

// forget drops those that may try as if they never had. The caller holds mu.
func (t *Throttle) forget(now time.Time) {
	for key, limiter := range t.byAddr {
		if limiter.TokensAt(now) >= wrongBurst {
			delete(t.byAddr, key)
		}
	}
}

// network is what one client has at its disposal: an IPv4 address, or the /64 of an
// IPv6 one.
func network(addr netip.Addr) netip.Prefix {
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
