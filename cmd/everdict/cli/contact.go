package cli

import (
	"errors"
	"fmt"
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
	// base is the server's address; empty: none is asked.
	base string
	// watched says that somebody else says the news, who knows where the cursor is.
	watched bool
}

// asks notes the address of the server.
func (c *contact) asks(base string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
}

// watch leaves saying the news to the caller.
func (c *contact) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = true
}

// unwatched is the address of the server whose news nobody else says, else "".
func (c *contact) unwatched() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched {
		return ""
	}
	return c.base
}

// sayNews says on stderr what a command waits for when the server does not answer, until the function that it returns
// has returned.
func (a *app) sayNews() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			base := a.contact.unwatched()
			if base == "" {
				continue
			}
			if news := a.contact.news(base); news != "" && !a.quiet {
				fmt.Fprintln(a.err, news)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
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
	unanswered := errors.Is(c.err, client.ErrUnanswered)
	if c.err == nil || c.said || !unanswered && time.Since(c.since) < patienceWithServer {
		return ""
	}
	c.said = true
	if unanswered {
		return base + " has not answered yet"
	}
	if client.StatusOf(c.err) != 0 {
		return base + " is not ready, trying again"
	}
	return "no answer from " + base + ", trying again"
}
