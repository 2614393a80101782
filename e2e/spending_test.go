package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// priceOfCall is a fraction that sums up without a rounding.
const priceOfCall = 0.125

// modelServer counts what is asked of it, by path, and notes when that was for the last time.
type modelServer struct {
	mu    sync.Mutex
	calls map[string]int64
	last  map[string]time.Time
}

// ServeHTTP implements http.Handler.
func (m *modelServer) ServeHTTP(_ http.ResponseWriter, q *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[q.URL.Path]++
	m.last[q.URL.Path] = time.Now()
}

// spender is an agent that calls its model without end and says so in the stream of Claude Code. deaf, it heeds no
// signal, and a daemon of its own calls as well.
const spender = `#!/usr/bin/python3
import os, signal, socket, sys

address, deaf = ("%s", %d), %s
ended = False

def heed(*_):
    global ended
    ended = True

def call(path):
    s = socket.create_connection(address)
    s.sendall(b"GET %%s HTTP/1.0\r\n\r\n" %% path)
    while s.recv(4096):
        pass
    s.close()

for s in signal.SIGINT, signal.SIGTERM:
    signal.signal(s, signal.SIG_IGN if deaf else heed)
if deaf and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            call(b"/daemon")
    os._exit(0)
calls = 0
while not ended:
    call(b"/agent")
    calls += 1
    print('{"type":"assistant","message":{"id":"msg_%%d","model":"m","content":[{"type":"text","text":"on it"}],'
          '"usage":{"input_tokens":10,"output_tokens":1}}}' %% calls, flush=True)
print('{"type":"result","subtype":"error_during_execution","is_error":true,"total_cost_usd":%%g,'
      '"modelUsage":{"m":{"inputTokens":%%d,"outputTokens":%%d}}}' %% (calls * %g, 10 * calls, 3 * calls), flush=True)
sys.exit(1)
`

// TestF12_NothingIsSpentAfterTheDeadline: an agent in a container that calls its model without end is ended by its
// timeout. The server hears nothing of it later than the recorded stop, whatever the agent does with signals and
// whatever it has started, although the container lives on to be graded; and what the record says it used is what the
// server counted.
func TestF12_NothingIsSpentAfterTheDeadline(t *testing.T) {
	t.Parallel()
	host := gateway(t)
	h := house.New(t)
	h.Runner("laptop", containers(t))
	for _, tt := range []struct {
		name string
		deaf bool
	}{{"heeds", false}, {"deaf", true}} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", net.JoinHostPort(host.String(), "0"))
			if err != nil {
				t.Fatalf("listen where containers reach the host: %v", err)
			}
			m := &modelServer{calls: map[string]int64{}, last: map[string]time.Time{}}
			server := &http.Server{Handler: m}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			t.Cleanup(func() {
				_ = server.Close()
				<-served
			})

			source := t.TempDir()
			deaf := "False"
			if tt.deaf {
				deaf = "True"
			}
			program := fmt.Sprintf(spender, host, l.Addr().(*net.TCPAddr).Port, deaf, priceOfCall)
			if err := os.WriteFile(filepath.Join(source, "claude"), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
			req := &protocol.RunRequest{
				Harness: protocol.HarnessRef{ID: "claude-code", Version: protocol.Latest, Params: map[string]string{"bin": "./claude"}},
				Case: protocol.Case{
					ID: "c1", Image: debian, Task: "Spend", TimeoutSec: 2,
					Env:     protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Path: source}},
					Network: &protocol.Network{Mode: protocol.NetworkPublic},
					// The container is there for a while after the stop: whoever was left in it would call.
					Graders: []protocol.GraderSpec{{ID: "command", Config: []byte(`{"cmd":"sleep 2","metric":"late"}`)}},
				},
			}
			run := h.Settled(h.Submit(req))
			f := run.Failure
			if f == nil || f.Reason != protocol.ReasonTimeout || f.Limit == nil || f.Limit.Configured != 2 || len(run.Scores) != 1 {
				t.Fatalf("run: failure %+v, scores %+v; want a timeout, and grading", f, run.Scores)
			}
			var stopped time.Time
			for ev, err := range h.Client.Trace(context.Background(), run.ID, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == protocol.EventError && ev.Message == f.Message {
					stopped = time.UnixMilli(int64(ev.T))
				}
			}
			if stopped.IsZero() {
				t.Fatal("the trace does not say when the agent was ended")
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			// A request that was sent before may be heard a moment later.
			const grace = 1500 * time.Millisecond
			for path, last := range m.last {
				if late := last.Sub(stopped); late > grace {
					t.Errorf("the last call of %s came %v after the recorded stop", path, late)
				}
			}
			n, u := m.calls["/agent"], run.Result.Usage
			if n == 0 || u == nil || u.Calls == nil || u.PromptTokens == nil {
				t.Fatalf("the server counted %v, the record says %+v", m.calls, u)
			}
			if !tt.deaf {
				if *u.Calls != n || *u.PromptTokens != 10*n || u.USD == nil || *u.USD != float64(n)*priceOfCall || u.Partial {
					t.Errorf("the server counted %d calls, the record says %+v", n, u)
				}
				return
			}
			// Its last call was cut off: the server may have heard it before the agent could say so. What it cost the
			// agent has not said, and nobody makes a number up.
			if missed := n - *u.Calls; m.calls["/daemon"] == 0 || missed < 0 || missed > 1 || *u.PromptTokens != 10**u.Calls || u.USD != nil || !u.Partial {
				t.Errorf("the server counted %v, the record says %+v", m.calls, u)
			}
		})
	}
}
