package api_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener that has one connection to give.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "pipe"} }

// A client that announces a body and does not send it keeps its connection for
// half a minute and no longer, by a clock that the test turns.
func TestP15_BodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{}) // its database lives outside the bubble, and is not asked
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		listener := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.conn <- server
		srv := &http.Server{Handler: e.server}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(listener) }()
		start := time.Now()
		go func() {
			_, _ = io.WriteString(client, "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"harness\":")
		}()
		res, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatalf("no answer to a body that does not come: %v", err)
		}
		if res.StatusCode != http.StatusRequestTimeout {
			t.Errorf("status %d, want 408", res.StatusCode)
		}
		if waited := time.Since(start); waited != 30*time.Second {
			t.Errorf("answered after %s, want 30s", waited)
		}
		client.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
}
