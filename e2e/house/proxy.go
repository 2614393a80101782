package house

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy between a runner and its coordinator that can hold every
// byte back, as a network does that loses all packets, without a sign to either
// end.
type Proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	held   bool
	change chan struct{}
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// Proxy starts a proxy in front of the coordinator.
func (h *House) Proxy() *Proxy {
	h.T.Helper()
	return newProxy(h.T, h.Address)
}

func newProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, change: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Release()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is what a runner dials.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Hold keeps every byte from here on, both ways, until Release.
func (p *Proxy) Hold() { p.set(true) }

// Release lets what was held and what comes through.
func (p *Proxy) Release() { p.set(false) }

func (p *Proxy) set(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	close(p.change)
	p.change = make(chan struct{})
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(in, out) })
		p.wg.Go(func() { p.copy(out, in) })
	}
}

func (p *Proxy) copy(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) wait() {
	for {
		p.mu.Lock()
		held, change := p.held, p.change
		p.mu.Unlock()
		if !held {
			return
		}
		<-change
	}
}
