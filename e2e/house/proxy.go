package house

import (
	"errors"
	"io"
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
	hear     []func(io.Reader)

	mu     sync.Mutex
	held   bool
	change chan struct{}
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// Proxy starts a proxy in front of the coordinator. Each hear gets what is sent to the coordinator, one reader for a
// connection, and may stop to read.
func (h *House) Proxy(hear ...func(io.Reader)) *Proxy {
	h.T.Helper()
	return newProxy(h.T, h.Address, hear...)
}

func newProxy(t testing.TB, target string, hear ...func(io.Reader)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, hear: hear, change: make(chan struct{}), conns: map[net.Conn]struct{}{}}
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
		up := p.heard(in)
		p.wg.Go(func() { p.copy(up, in, out) })
		p.wg.Go(func() { p.copy(out, out, in) })
	}
}

// heard reads from a connection what is told to every hear as well.
func (p *Proxy) heard(in io.Reader) io.ReadCloser {
	r, ends := in, []io.Closer{}
	for _, hear := range p.hear {
		told, tell := io.Pipe()
		r, ends = io.TeeReader(r, tell), append(ends, tell)
		p.wg.Go(func() {
			hear(told)
			_, _ = io.Copy(io.Discard, told)
		})
	}
	return &heard{r, ends}
}

type heard struct {
	io.Reader
	ends []io.Closer
}

func (h *heard) Close() error {
	var errs []error
	for _, end := range h.ends {
		errs = append(errs, end.Close())
	}
	return errors.Join(errs...)
}

// copy goes on until an end of the connection closes. what is from, or reads from it.
func (p *Proxy) copy(what io.ReadCloser, from, to net.Conn) {
	defer func() {
		_ = what.Close()
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := what.Read(buf)
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
