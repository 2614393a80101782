//go:build unix

package docker

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes an engine's API on, and cuts the connection of the first request to one path after the engine has carried
// it out: the answer is lost.
type proxy struct {
	host string
	cut  atomic.Bool
}

func newProxy(t *testing.T, engine, lose string) *proxy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{host: "unix://" + path}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(in, strings.TrimPrefix(engine, "unix://"), lose) })
		}
	})
	return p
}

func (p *proxy) serve(in net.Conn, socket, lose string) {
	defer in.Close()
	out, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer out.Close()
	fromClient, fromEngine := bufio.NewReader(in), bufio.NewReader(out)
	for {
		req, err := http.ReadRequest(fromClient)
		if err != nil {
			return
		}
		if err := req.Write(out); err != nil {
			return
		}
		if req.Header.Get("Upgrade") != "" { // an attach: bytes from here on
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(in, fromEngine); in.Close() })
			_, _ = io.Copy(out, fromClient)
			out.Close()
			wg.Wait()
			return
		}
		resp, err := http.ReadResponse(fromEngine, req)
		if err != nil {
			return
		}
		if strings.HasSuffix(req.URL.Path, lose) && p.cut.CompareAndSwap(false, true) {
			resp.Body.Close()
			return
		}
		err = resp.Write(in)
		resp.Body.Close()
		if err != nil {
			return
		}
	}
}
