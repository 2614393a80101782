package link

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("LINK_CROWD"); url != "" {
		crowd(url)
		return
	}
	goleak.VerifyTestMain(m)
}

const testToken = Secret("rnr_test_credential")

// quick is a timing for tests: the defaults' proportions at a hundredth of their length.
func quick() Timing {
	return Timing{
		Heartbeat: 50 * time.Millisecond, HeartbeatTimeout: 400 * time.Millisecond, LeaseTTL: 2 * time.Second,
		LeaseMargin: 200 * time.Millisecond, StartAck: time.Second, Ping: 60 * time.Millisecond,
		DeadPeer: 700 * time.Millisecond, Write: 3 * time.Second, Reply: 2 * time.Second, Ack: 3 * time.Second,
		Handshake: 3 * time.Second, Close: 200 * time.Millisecond,
	}
}

// steady is quick where nothing is lost: a runner that a busy machine keeps waiting for a second or two is not dead.
func steady() Timing {
	t := quick()
	t.HeartbeatTimeout, t.DeadPeer, t.LeaseTTL = 5*time.Second, 8*time.Second, 10*time.Second
	return t
}

// lossy is quick for tests of what is lost: nothing but heartbeats and pings finds out soon.
func lossy(c *AcceptConfig) {
	c.Timing = quick()
	c.Timing.Write, c.Timing.Reply, c.Timing.Ack = 30*time.Second, 30*time.Second, 30*time.Second
}

// coordinator is a Handler that behaves: it keeps leases, evidence and results in memory under the contract's rules.
type coordinator struct {
	mu       sync.Mutex
	jobs     chan Attempt          // what Pull hands out
	asked    map[string]Attempt    // by request id, until acknowledged
	standing map[string]Standing   // by job, default Stands
	stored   map[string]*evidence  // by job
	sessions []*CoordinatorSession // in order of their hellos
	beats    int
	beat     chan Heartbeat // the last heartbeats, if somebody reads
	started  []AttemptRef
	returned []GiveBack
	status   []Status
	drains   []Drain
	closed   []error

	hello    func(*CoordinatorSession, Hello) (Welcome, error)
	slowBeat func(ctx context.Context)
	onWrite  func(ctx context.Context, channel string, offset int64, p []byte) error
	onPull   func(ctx context.Context) (*Attempt, error)
	onAsk    func(ctx context.Context, q Ask) (Answer, error)
	forget   bool // store nothing of the evidence
}

type evidence struct {
	channels map[string][]byte
	result   []byte
	results  int
	closes   int
}

func newCoordinator() *coordinator {
	return &coordinator{
		jobs: make(chan Attempt, 16), asked: map[string]Attempt{}, standing: map[string]Standing{},
		stored: map[string]*evidence{}, beat: make(chan Heartbeat, 64),
	}
}

func (c *coordinator) verdicts(held []HeldLease) (vs []LeaseVerdict) {
	for _, h := range held {
		v := LeaseVerdict{Run: h.Run, Job: h.Job, Epoch: h.Epoch, Standing: Stands, TTL: Duration(2 * time.Second)}
		if s, ok := c.standing[h.Job]; ok && s != Stands {
			v.Standing, v.TTL = s, 0
		}
		vs = append(vs, v)
	}
	return vs
}

func (c *coordinator) Hello(_ context.Context, s *CoordinatorSession, h Hello) (Welcome, error) {
	if c.hello != nil {
		if w, err := c.hello(s, h); err != nil {
			return w, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, s)
	return Welcome{Session: fmt.Sprintf("s%d", len(c.sessions)), Leases: c.verdicts(h.Leases)}, nil
}

func (c *coordinator) Heartbeat(ctx context.Context, _ *CoordinatorSession, hb Heartbeat) (HeartbeatAck, error) {
	if c.slowBeat != nil {
		c.slowBeat(ctx)
	}
	select {
	case c.beat <- hb:
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats++
	return HeartbeatAck{Leases: c.verdicts(hb.Leases)}, nil
}

func (c *coordinator) Pull(ctx context.Context, _ *CoordinatorSession, req PullRequest, answer func(*Attempt, error)) {
	go func() { answer(c.pull(ctx, req)) }()
}

func (c *coordinator) pull(ctx context.Context, req PullRequest) (*Attempt, error) {
	if c.onPull != nil {
		return c.onPull(ctx)
	}
	c.mu.Lock()
	a, ok := c.asked[req.Request]
	c.mu.Unlock()
	if ok {
		return &a, nil
	}
	select {
	case a := <-c.jobs:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked[req.Request] = a
		return &a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *coordinator) Started(_ context.Context, _ *CoordinatorSession, ref AttemptRef) (Standing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = append(c.started, ref)
	if s, ok := c.standing[ref.Job]; ok {
		return s, nil
	}
	return Stands, nil
}

func (c *coordinator) GiveBack(_ context.Context, _ *CoordinatorSession, ref AttemptRef, why GiveBack) (Standing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = append(c.returned, why)
	return Stands, nil
}

func (c *coordinator) Evidence(_ context.Context, _ *CoordinatorSession, ref AttemptRef) (EvidenceSink, EvidenceReady, error) {
	if ref.Token == "wrong" {
		return nil, EvidenceReady{}, &RemoteError{Code: "not_held", Message: "the token is not this attempt's"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.stored[ref.Job]
	if e == nil {
		e = &evidence{channels: map[string][]byte{}}
		c.stored[ref.Job] = e
	}
	ready := EvidenceReady{Standing: Stands, Offsets: map[string]int64{}}
	for name, b := range e.channels {
		ready.Offsets[name] = int64(len(b))
	}
	if s, ok := c.standing[ref.Job]; ok {
		ready.Standing = s
	}
	return &sink{c: c, e: e, standing: ready.Standing}, ready, nil
}

func (c *coordinator) Ask(ctx context.Context, _ *CoordinatorSession, q Ask) (Answer, error) {
	if c.onAsk == nil {
		return Answer{}, &RemoteError{Code: "nobody"}
	}
	return c.onAsk(ctx, q)
}

func (c *coordinator) Status(_ context.Context, _ *CoordinatorSession, s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = append(c.status, s)
}

func (c *coordinator) Drain(_ context.Context, _ *CoordinatorSession, d Drain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drains = append(c.drains, d)
}

func (c *coordinator) Closed(_ *CoordinatorSession, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = append(c.closed, err)
}

// last is the newest session.
func (c *coordinator) last() *CoordinatorSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) == 0 {
		return nil
	}
	return c.sessions[len(c.sessions)-1]
}

func (c *coordinator) bytes(job, channel string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.stored[job]; e != nil {
		return bytes.Clone(e.channels[channel])
	}
	return nil
}

// sink stores in memory and insists on the contract of EvidenceSink.
type sink struct {
	c        *coordinator
	e        *evidence
	standing Standing
}

func (s *sink) Write(ctx context.Context, channel string, offset int64, p []byte) error {
	if s.c.onWrite != nil {
		if err := s.c.onWrite(ctx, channel, offset, p); err != nil {
			return err
		}
	}
	if s.c.forget {
		return nil
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if have := int64(len(s.e.channels[channel])); have != offset {
		return fmt.Errorf("sink: write at %d of %s, which has %d bytes", offset, channel, have)
	}
	s.e.channels[channel] = append(s.e.channels[channel], p...)
	return nil
}

func (s *sink) Result(_ context.Context, doc []byte) (ResultAck, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.e.results++
	if s.standing != Stands {
		return ResultAck{Status: ResultStale}, nil
	}
	if s.e.result != nil && !bytes.Equal(s.e.result, doc) {
		return ResultAck{Status: ResultRejected, Code: "other_result", Message: "a different result was accepted before"}, nil
	}
	s.e.result = bytes.Clone(doc)
	return ResultAck{Status: ResultAccepted}, nil
}

func (s *sink) Close() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.e.closes++
}

// runner is a RunnerHandler that remembers.
type runner struct {
	mu       sync.Mutex
	leases   []HeldLease
	renewals []HeartbeatAck
	cancels  []Cancel
	drains   []Drain
	statuses []Status
	slowest  time.Duration // heartbeat
}

func (r *runner) Beat() Heartbeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Heartbeat{Leases: append([]HeldLease(nil), r.leases...)}
}

func (r *runner) Renewed(asked time.Time, a HeartbeatAck) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest = max(r.slowest, time.Since(asked))
	r.renewals = append(r.renewals, a)
}

func (r *runner) Cancel(c Cancel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels = append(r.cancels, c)
}

func (r *runner) Drain(d Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains = append(r.drains, d)
}

func (r *runner) Status(s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses = append(r.statuses, s)
}

func (r *runner) beaten() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.renewals)
}

// bench is a coordinator behind a real HTTP server on loopback.
type bench struct {
	t        testing.TB
	c        *coordinator
	acceptor *Acceptor
	server   *httptest.Server
	timing   Timing
	log      *slog.Logger
}

func newBench(t testing.TB, change ...func(*AcceptConfig)) *bench {
	t.Helper()
	b := &bench{t: t, c: newCoordinator(), timing: steady(), log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() {
		b.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	cfg := AcceptConfig{
		Handler: b.c, Timing: b.timing, Version: "test", Logger: b.log,
		Authenticate: func(_ context.Context, _ *http.Request, token Secret) (Principal, error) {
			if token != testToken {
				return Principal{}, &RefusedError{Status: http.StatusUnauthorized, Code: "revoked", Message: "unknown credential"}
			}
			return Principal{Runner: "rnr_1"}, nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	b.timing = cfg.Timing.withDefaults()
	var err error
	if b.acceptor, err = NewAcceptor(cfg); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, b.acceptor)
	b.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := b.acceptor.Shutdown(ctx, 0); err != nil {
			t.Error(err)
		}
		b.server.Close()
	})
	return b
}

func (b *bench) config(h RunnerHandler) DialConfig {
	return DialConfig{
		URL: b.server.URL, Credential: testToken, Handler: h, Timing: b.timing, Logger: b.log,
		Hello: func() Hello {
			return Hello{Version: "1.0.0", OS: "linux", Arch: "amd64", Slots: 1, Capabilities: []string{"git"}}
		},
	}
}

// dial connects; the session is closed when the test ends.
func (b *bench) dial(cfg DialConfig) *RunnerSession {
	b.t.Helper()
	s, err := Dial(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatalf("dial: %v", err)
	}
	b.t.Cleanup(func() {
		s.Close(CloseReason{Code: CloseNormal})
		_ = s.Wait()
	})
	return s
}

// until waits for a condition, looking again each millisecond.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 15 s for: %s", what)
		}
		<-tick.C
	}
}

func job(n string, size int) Attempt {
	doc, _ := json.Marshal(map[string]string{"n": n, "pad": strings.Repeat("x", size)})
	return Attempt{AttemptRef: AttemptRef{Run: "run_" + n, Job: "job_" + n, Epoch: 1, Token: "t_" + Secret(n)}, Payload: doc, TTL: Duration(time.Second)}
}

func noErr(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
