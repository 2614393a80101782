package link

import (
	"context"
	"sync"
	"time"
)

// A pacer bounds what a runner has sent and the coordinator has not yet acknowledged, over all evidence streams of a
// session. Buffers between the two ends (kernel, proxies) would otherwise fill with bulk, and a heartbeat would wait
// behind all of it. The bound follows the measured delay: it grows while acknowledgements come quickly and shrinks to
// one chunk on a slow link, so that what lies before a heartbeat is about pacerDelay worth of bytes.
type pacer struct {
	mu       sync.Mutex
	window   int
	inFlight int
	// limited says that somebody waited for room, without which growing would only prepare a burst.
	limited bool
	// floor is the smallest delay seen: the round trip and the coordinator's disk without a queue.
	floor time.Duration
	freed chan struct{} // closed and replaced when room appears
}

const (
	pacerMin   = runnerWrite
	pacerStart = 2 * runnerWrite
	pacerMax   = 512 << 10
	// pacerDelay is how much queueing is tolerated, a small part of the heartbeat's interval. Growth ends at a quarter of
	// it, because it goes on for one round trip after it should have.
	pacerDelay = 400 * time.Millisecond
)

func newPacer() *pacer { return &pacer{window: pacerStart, freed: make(chan struct{})} }

// acquire waits for room for n bytes, and reports false when ctx or done ended first. Anything fits when nothing is in
// flight.
func (p *pacer) acquire(ctx context.Context, n int, done <-chan struct{}) bool {
	for {
		p.mu.Lock()
		if p.inFlight == 0 || p.inFlight+n <= p.window {
			p.inFlight += n
			p.mu.Unlock()
			return true
		}
		p.limited = true
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		case <-done:
			return false
		}
	}
}

// acked gives back n bytes that were acknowledged after delay.
func (p *pacer) acked(n int, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.floor == 0 || delay < p.floor {
		p.floor = delay
	}
	switch queue := delay - p.floor; {
	case queue > pacerDelay:
		// Halves over one window of acknowledgements.
		p.window = max(pacerMin, p.window-n/2)
	case queue < pacerDelay/4 && p.limited:
		// Doubles over one window of acknowledgements.
		p.window = min(pacerMax, p.window+n)
		p.limited = false
	}
	p.free(n)
}

// forget gives back n bytes whose stream has ended.
func (p *pacer) forget(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(n)
}

func (p *pacer) free(n int) {
	if n == 0 {
		return
	}
	p.inFlight -= n
	close(p.freed)
	p.freed = make(chan struct{})
}
