package link

import (
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// direction of the bytes through a faultProxy.
type direction int

const (
	up   direction = iota // runner to coordinator
	down                  // coordinator to runner
)

// faults is what a faultProxy does to the bytes of one direction. The zero value forwards them.
type faults struct {
	latency time.Duration
	rate    int   // bytes per second, 0 is unlimited
	stall   bool  // hold everything back, as lost packets do that are sent again later
	eat     bool  // read and forget, with no sign to either side
	cutAt   int64 // once, close a connection after so many bytes of this direction; 0 is never
}

// faultProxy is a TCP proxy between runner and coordinator that misbehaves on request. Faults apply to the connections
// that exist and to those to come.
type faultProxy struct {
	t      testing.TB
	target string
	ln     net.Listener

	mu        sync.Mutex
	faults    [2]faults
	changed   chan struct{}
	conns     map[net.Conn]struct{}
	idleClose time.Duration
	accepted  int
	passed    [2]int64
	closed    bool
	wg        sync.WaitGroup
}

func newFaultProxy(t testing.TB, server *httptest.Server) *faultProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{t: t, target: strings.TrimPrefix(server.URL, "http://"), ln: ln,
		changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *faultProxy) url() string { return "http://" + p.ln.Addr().String() }

func (p *faultProxy) close() {
	_ = p.ln.Close()
	p.mu.Lock()
	p.closed = true
	p.wake()
	p.mu.Unlock()
	p.cut()
	p.wg.Wait()
}

// set changes the faults of both directions.
func (p *faultProxy) set(f func(up, down *faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.faults[up], &p.faults[down])
	p.wake()
}

func (p *faultProxy) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// cut closes every connection.
func (p *faultProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *faultProxy) count(d direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

func (p *faultProxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *faultProxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.accepted++
		idle := p.idleClose
		if p.closed {
			_ = in.Close()
			_ = out.Close()
		}
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		var alive *time.Timer
		end := sync.OnceFunc(func() {
			_ = in.Close()
			_ = out.Close()
			p.mu.Lock()
			delete(p.conns, in)
			delete(p.conns, out)
			p.wake()
			p.mu.Unlock()
		})
		if idle > 0 {
			alive = time.AfterFunc(idle, end)
		}
		gone := make(chan struct{})
		var pumps sync.WaitGroup
		pumps.Go(func() { p.pump(up, in, out, end, gone, alive, idle) })
		pumps.Go(func() { p.pump(down, out, in, end, gone, alive, idle) })
		p.wg.Go(func() {
			pumps.Wait()
			if alive != nil {
				alive.Stop()
			}
		})
	}
}

// piece is bytes with the moment at which they are due.
type piece struct {
	b  []byte
	at time.Time
}

// pump forwards one direction of one connection.
func (p *faultProxy) pump(d direction, from, to net.Conn, end func(), gone chan struct{}, alive *time.Timer, idle time.Duration) {
	queue := make(chan piece, 8)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer end()
	reading.Go(func() {
		defer close(queue)
		for {
			b := make([]byte, 4096)
			n, err := from.Read(b)
			if n > 0 {
				if alive != nil {
					alive.Reset(idle)
				}
				p.mu.Lock()
				f := p.faults[d]
				p.mu.Unlock()
				queue <- piece{b[:n], time.Now().Add(f.latency)}
			}
			if err != nil {
				return
			}
		}
	})
	defer func() {
		for range queue { // lets the reader go
		}
	}()
	defer end()
	var sent int64
	for pc := range queue {
		f, ok := p.ready(d, to)
		if !ok {
			return
		}
		wait := time.Until(pc.at)
		if f.rate > 0 {
			wait = max(wait, time.Duration(len(pc.b))*time.Second/time.Duration(f.rate))
		}
		if wait > 0 {
			<-time.After(wait)
		}
		if f.eat {
			continue
		}
		if f.cutAt > 0 && sent+int64(len(pc.b)) >= f.cutAt {
			n, _ := to.Write(pc.b[:max(0, f.cutAt-sent)])
			p.add(d, n)
			p.mu.Lock()
			p.faults[d].cutAt = 0
			p.mu.Unlock()
			return
		}
		n, err := to.Write(pc.b)
		sent += int64(n)
		p.add(d, n)
		if err != nil {
			return
		}
	}
}

func (p *faultProxy) add(d direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[d] += int64(n)
}

// ready waits while the direction is stalled, and reports false when the connection is gone.
func (p *faultProxy) ready(d direction, to net.Conn) (faults, bool) {
	for {
		p.mu.Lock()
		f, changed := p.faults[d], p.changed
		_, open := p.conns[to]
		closed := p.closed
		p.mu.Unlock()
		if !open || closed {
			return f, false
		}
		if !f.stall {
			return f, true
		}
		<-changed
	}
}
