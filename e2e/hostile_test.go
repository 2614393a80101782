package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// liar is a runner that speaks the protocol by hand and does as the test says.
type liar struct{ instance string }

func (liar) Beat() link.Heartbeat                 { return link.Heartbeat{} }
func (liar) Renewed(time.Time, link.HeartbeatAck) {}
func (liar) Cancel(link.Cancel)                   {}
func (liar) Drain(link.Drain)                     {}
func (liar) Status(link.Status)                   {}

func (l liar) hello() link.Hello {
	return link.Hello{Version: "test", OS: "linux", Arch: "amd64", Hostname: "liar", Capabilities: []string{protocol.CapGit}, Slots: 1, Instance: l.instance}
}

// dial connects as the runner of a pairing; the session ends with the test.
func (l liar) dial(t *testing.T, h *house.House, paired protocol.Paired, configure ...func(*link.DialConfig)) (*link.RunnerSession, error) {
	t.Helper()
	cfg := link.DialConfig{URL: h.URL(), Credential: link.Secret(paired.Token), Hello: l.hello, Handler: l, Timing: h.Config.Timing}
	for _, f := range configure {
		f(&cfg)
	}
	s, err := link.Dial(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() { s.Close(link.CloseReason{Code: link.CloseNormal}) })
	}
	return s, err
}

// afterUpgrade calls between once, after the coordinator has accepted the
// connection and before the runner has said anything more.
type afterUpgrade struct {
	net.Conn
	once    *sync.Once
	between func()

	mu       sync.Mutex
	answered bool
}

func (c *afterUpgrade) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = c.answered || n > 0
	return n, err
}

func (c *afterUpgrade) Write(p []byte) (int, error) {
	c.mu.Lock()
	answered := c.answered
	c.mu.Unlock()
	if answered {
		c.once.Do(c.between)
	}
	return c.Conn.Write(p)
}

// TestF35_RevokedBetweenConnectAndHello: a runner that holds back its hello until
// its credential was revoked gets no session.
func TestF35_RevokedBetweenConnectAndHello(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	paired := h.Pair("liar")
	var once sync.Once
	s, err := liar{"one"}.dial(t, h, paired, func(c *link.DialConfig) {
		c.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &afterUpgrade{Conn: conn, once: &once, between: func() {
				if err := h.Client.RevokeRunner(ctx, paired.Runner.ID); err != nil {
					t.Errorf("revoke: %v", err)
				}
			}}, err
		}
	})
	if err == nil {
		select {
		case <-s.Done():
			err = s.Err()
		case <-time.After(house.Patience):
			t.Fatal("a runner that was revoked before its hello keeps a session")
		}
	}
	var revoked *link.RevokedError
	if !errors.As(err, &revoked) {
		t.Errorf("the session of a runner that was revoked before its hello ended with %v, want a *RevokedError", err)
	}
}

// TestP2_RunnerCannotSpeakForAnothersAttempt: a reference whose run is the liar's
// own and whose job is somebody else's opens, seals and settles nothing.
func TestP2_RunnerCannotSpeakForAnothersAttempt(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	honest := h.Runner("honest")
	file := filepath.Join(t.TempDir(), "ticks")
	victim := house.Scripted("run while [ ! -e " + file + ".enough ]; do echo x >> " + file + "; sleep 0.05; done; echo the last line")
	victim.Runtime = honest.Target
	victimID := h.Submit(victim)
	h.Running(victimID)

	paired := h.Pair("liar")
	s, err := liar{"one"}.dial(t, h, paired)
	if err != nil {
		t.Fatal(err)
	}
	own := house.Scripted("say nothing")
	own.Runtime = protocol.TargetSelfPrefix + paired.Runner.ID
	ownID := h.Submit(own)
	offer, err := s.Pull(t.Context(), link.PullRequest{Request: "req_1"})
	if err != nil || offer.Run != ownID {
		t.Fatalf("pull: %+v, %v; want %s", offer, err, ownID)
	}
	if _, err := offer.Started(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]link.AttemptRef{
		"its run and another's job":  {Run: ownID, Job: victimID, Epoch: 1, Token: offer.Token},
		"another's run and its job":  {Run: victimID, Job: ownID, Epoch: 1, Token: offer.Token},
		"another's run and job":      {Run: victimID, Job: victimID, Epoch: 1, Token: offer.Token},
		"an attempt that never was":  {Run: ownID, Job: ownID, Epoch: 7, Token: offer.Token},
		"a run that never was":       {Run: "run_nothing", Job: "run_nothing", Epoch: 1, Token: offer.Token},
		"a run that climbs the tree": {Run: "../" + ownID, Job: "../" + ownID, Epoch: 1, Token: offer.Token},
	} {
		w, err := s.OpenEvidence(t.Context(), ref)
		if err == nil {
			ack, rerr := w.Result(t.Context(), json.RawMessage(`{"scores":[]}`))
			t.Errorf("evidence for %s was taken, and the result answered with %+v, %v", name, ack, rerr)
			w.Close()
		}
	}
	enough(t, file)
	if run := h.Settled(victimID); run.Status != protocol.StatusSucceeded || run.Provenance.Runner != honest.ID {
		t.Errorf("the other's run: %s on %+v, want succeeded on %s", run.Status, run.Provenance, honest.ID)
	}
	log, err := h.Client.Log(t.Context(), victimID, protocol.LogQuery{})
	if err != nil || !strings.Contains(log.Text, "the last line") {
		t.Errorf("the other's log: %q, %v; want its last line", log.Text, err)
	}
}

// slowFarewell holds up whoever logs that a runner has left until one has come,
// or for a moment.
type slowFarewell struct {
	slog.Handler
	came chan struct{}
}

func (f *slowFarewell) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "runner connected":
		select {
		case f.came <- struct{}{}:
		default:
		}
	case "runner disconnected":
		select {
		case <-f.came:
		case <-time.After(time.Second):
		}
	}
	return f.Handler.Handle(ctx, r)
}

func (f *slowFarewell) WithAttrs([]slog.Attr) slog.Handler { return f }

// TestF4_ReconnectBesideTheEndOfTheOldSession: however slowly an old session ends
// beside the beginning of a new one, the queue knows the runner as connected.
func TestF4_ReconnectBesideTheEndOfTheOldSession(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick, func(c *coordinator.Config) {
		c.Log = slog.New(&slowFarewell{Handler: c.Log.Handler(), came: make(chan struct{})})
	})
	paired := h.Pair("liar")
	req := house.Scripted("say nothing")
	req.Runtime = protocol.TargetSelfPrefix + paired.Runner.ID
	id := h.Submit(req)
	old, err := liar{"one"}.dial(t, h, paired)
	if err != nil {
		t.Fatal(err)
	}
	first := h.Run(id).Placement.BlockedReason
	if strings.Contains(first, "not connected") {
		t.Fatalf("with a session the run waits because: %s", first)
	}
	old.Close(link.CloseReason{Code: link.CloseNormal})
	house.Eventually(t, "the coordinator has noticed the end", func() bool {
		all, err := h.Client.WorkspaceRunners(t.Context())
		return err == nil && len(all) == 1 && !all[0].Online
	})
	if _, err := (liar{"one"}).dial(t, h, paired); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the old session has ended", func() bool { return strings.Contains(metrics(t, h), "\neverdict_runners_connected 1\n") })
	if again := h.Run(id).Placement.BlockedReason; again != first {
		t.Errorf("after the reconnect the run waits because: %s; want: %s", again, first)
	}
}

func metrics(t *testing.T, h *house.House) string {
	t.Helper()
	res, err := http.Get(h.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
