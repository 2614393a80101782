package cli

import (
	"sync"
	"time"

	"github.com/everdict/everdict/protocol/client"
)

// patienceWithServer is how long a server may be away before whoever waits is
// told. A restart takes less.
const patienceWithServer = 2 * time.Second

// contact knows how long the server has not answered. The zero value has had no
// trouble.
type contact struct {
	mu    sync.Mutex
	since time.Time
	err   error
	said  bool
}

// told takes note of a try; see client.Config.Contact.
func (c *contact) told(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.since, c.err, c.said = time.Time{}, nil, false
	case c.err == nil:
		c.since, c.err = time.Now(), err
	default:
		c.err = err
	}
}

// news is what to say of it, once for every time that the server is away for
// long; else "".
func (c *contact) news(base string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || c.said || time.Since(c.since) < patienceWithServer {
		return ""
	}
	c.said = true
	if client.StatusOf(c.err) != 0 {
		return base + " is not ready, trying again"
	}
	return "no answer from " + base + ", trying again"
}
