package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// silent is a coordinator that gives one attempt away and does not confirm its start, nor
// renews it, before it is told to.
type silent struct {
	startWithin time.Duration
	failures    int // of the first pulls
	payload     json.RawMessage
	confirm     chan struct{}

	held chan bool // what the runner says of its sandbox

	mu   sync.Mutex
	gave bool
}

func (s *silent) wantHeld(t *testing.T, want bool) {
	t.Helper()
	select {
	case held := <-s.held:
		if held != want {
			t.Fatalf("the attempt is held still: %v, want %v", held, want)
		}
	case <-time.After(house.Patience):
		t.Fatalf("the runner does not say that its attempt is held still: %v", want)
	}
}

var theAttempt = link.AttemptRef{Run: "run_1", Job: "run_1", Epoch: 1, Token: "of the lease"}

func (*silent) Hello(context.Context, *link.CoordinatorSession, link.Hello) (link.Welcome, error) {
	return link.Welcome{Runner: "rnr_1"}, nil
}

func (*silent) Heartbeat(context.Context, *link.CoordinatorSession, link.Heartbeat) (link.HeartbeatAck, error) {
	return link.HeartbeatAck{}, nil
}

func (s *silent) Pull(ctx context.Context, _ *link.CoordinatorSession, _ link.PullRequest, answer func(*link.Attempt, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failures > 0:
		s.failures--
		go answer(nil, &link.RemoteError{Code: string(protocol.CodeInternal), Message: "not this time", RetryAfter: link.Duration(time.Millisecond)})
	case s.gave:
		context.AfterFunc(ctx, func() { answer(nil, ctx.Err()) })
	default:
		s.gave = true
		go answer(&link.Attempt{AttemptRef: theAttempt, TTL: link.Duration(time.Hour), StartWithin: link.Duration(s.startWithin), Payload: s.payload}, nil)
	}
}

func (s *silent) Started(ctx context.Context, _ *link.CoordinatorSession, _ link.AttemptRef) (link.Standing, error) {
	select {
	case <-s.confirm:
		return link.Stands, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (*silent) GiveBack(context.Context, *link.CoordinatorSession, link.AttemptRef, link.GiveBack) (link.Standing, error) {
	return link.Stands, nil
}

func (*silent) Evidence(context.Context, *link.CoordinatorSession, link.AttemptRef) (link.EvidenceSink, link.EvidenceReady, error) {
	return nil, link.EvidenceReady{}, &link.RemoteError{Code: string(protocol.CodeInternal), Message: "not now"}
}

func (*silent) Ask(context.Context, *link.CoordinatorSession, link.Ask) (link.Answer, error) {
	return link.Answer{}, &link.RemoteError{Code: string(protocol.CodeInternal), Message: "nobody is there"}
}

func (*silent) Status(context.Context, *link.CoordinatorSession, link.Status) {}
func (*silent) Drain(context.Context, *link.CoordinatorSession, link.Drain)   {}
func (*silent) Closed(*link.CoordinatorSession, error)                        {}

// ticksOf is a runner of a silent coordinator whose run writes into the file that it returns.
func ticksOf(t *testing.T, c *silent, startAck time.Duration) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ticks")
	var err error
	c.payload, err = json.Marshal(protocol.Job{RunID: theAttempt.Run, Workspace: "default",
		Case:    protocol.Case{ID: "c1", Task: "Tick", TimeoutSec: 600, Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}},
		Harness: protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "ticks", Version: "1", Command: "while :; do echo x >> " + file + "; sleep 0.05; done"}})
	if err != nil {
		t.Fatal(err)
	}
	c.confirm, c.held = make(chan struct{}), make(chan bool, 16)
	timing := link.Timing{Heartbeat: 100 * time.Millisecond, LeaseTTL: time.Hour, LeaseMargin: time.Second, StartAck: startAck}
	acceptor, err := link.NewAcceptor(link.AcceptConfig{Handler: c, Timing: timing,
		Authenticate: func(context.Context, *http.Request, link.Secret) (link.Principal, error) {
			return link.Principal{Runner: "rnr_1"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+link.Path, acceptor)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	driver := process.New(process.Config{})
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	dir := t.TempDir()
	runner := agent.New(agent.Config{URL: server.URL, Credential: link.Secret(protocol.NewID("rnr_")), Version: "test", Timing: timing,
		StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"), Driver: driver,
		Lookup: builtin.Lookup, DrainTimeout: time.Millisecond, Log: house.Log(t, "runner"),
		Observe: func(e agent.Event) {
			if e, ok := e.(agent.AttemptHeld); ok {
				c.held <- e.Held
			}
		}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return file
}

// TestP3_AStartThatNobodyConfirms: a coordinator gives a run away whose start it has not heard
// of, long before its lease ends. A runner holds such an attempt still in time, and goes on
// with it when the start is confirmed.
func TestP3_AStartThatNobodyConfirms(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ startAck, left time.Duration }{
		"in the time that all have":       {10 * time.Second, 0},
		"in what an offer has left of it": {time.Hour, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &silent{startWithin: row.left}
			file := ticksOf(t, c, row.startAck)
			grows(t, file)
			c.wantHeld(t, true)
			standsStillFor(t, file, 300*time.Millisecond) // the start is asked for no longer than until its time is over
			close(c.confirm)
			c.wantHeld(t, false)
			grows(t, file)
		})
	}
}

// TestF6_APullThatFails: a coordinator that cannot answer a pull is asked again, in the same
// session.
func TestF6_APullThatFails(t *testing.T) {
	t.Parallel()
	grows(t, ticksOf(t, &silent{failures: 3}, time.Hour))
}
