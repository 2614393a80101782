package pairing

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// nonceLife is how long a nonce is good: a machine signs it at once, and a slow network
// takes seconds.
const nonceLife = time.Minute

// maxNoncesUsed bounds the sessions of one device within nonceLife. One that is in order
// has few; more are told to come later.
const maxNoncesUsed = 64

// nonces are what device keys sign. One is the time at which it was given and a code of
// it with a key that this process alone has, so that giving one costs no memory, whoever
// asks. That it was used is remembered only of a device that has proved its key.
type nonces struct {
	now   func() time.Time
	key   [sha256.Size]byte
	since time.Time

	mu sync.Mutex
	// last is the time of the newest one: no two have the same.
	last time.Duration
	// used are the times of those that each device has used and that are not over.
	used map[string][]time.Duration
}

func newNonces(now func() time.Time) *nonces {
	n := &nonces{now: now, since: now(), used: map[string][]time.Duration{}}
	rand.Read(n.key[:]) // never fails: crypto/rand aborts the program instead
	return n
}

// give makes a nonce.
func (n *nonces) give() protocol.Nonce {
	n.mu.Lock()
	n.last = max(n.last+1, n.now().Sub(n.since))
	at := n.last
	n.mu.Unlock()
	b := binary.BigEndian.AppendUint64(nil, uint64(at))
	return protocol.Nonce{Nonce: base64.RawURLEncoding.EncodeToString(append(b, n.code(b)...)), ExpiresInSec: int(nonceLife / time.Second)}
}

// read says when a nonce was given; auth.ErrNonce if it is over, or is none of ours.
func (n *nonces) read(nonce string) (at time.Duration, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(nonce)
	if err != nil || len(b) != 8+sha256.Size || !hmac.Equal(b[8:], n.code(b[:8])) {
		return 0, auth.ErrNonce
	}
	at = time.Duration(binary.BigEndian.Uint64(b))
	if n.over(at) {
		return 0, auth.ErrNonce
	}
	return at, nil
}

// use is auth.ErrNonce for a nonce that the device has used.
func (n *nonces) use(device string, at time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var left []time.Duration
	for _, t := range n.used[device] {
		if t == at {
			return auth.ErrNonce
		}
		if !n.over(t) {
			left = append(left, t)
		}
	}
	if len(left) >= maxNoncesUsed {
		return auth.ErrNonce
	}
	n.used[device] = append(left, at)
	return nil
}

// forget drops what is remembered of a device, which never comes back.
func (n *nonces) forget(device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, device)
}

func (n *nonces) over(at time.Duration) bool { return n.now().Sub(n.since) >= at+nonceLife }

func (n *nonces) code(b []byte) []byte {
	mac := hmac.New(sha256.New, n.key[:])
	mac.Write(b)
	return mac.Sum(nil)
}
