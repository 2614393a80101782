// Package house starts a real coordinator and real runners inside a test: the
// same packages as the binary, over loopback, on temporary directories.
package house

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// Patience is how long a test waits for a condition before it gives up: long,
// because machines are shared.
const Patience = 60 * time.Second

// House is a coordinator that can be stopped and started again on the same data
// and the same port.
type House struct {
	T       testing.TB
	Config  coordinator.Config
	Address string
	Client  *client.Client

	mu   sync.Mutex
	stop context.CancelFunc
	done chan error
	c    *coordinator.Coordinator
}

// New starts a coordinator that is stopped when the test ends.
func New(t testing.TB, configure ...func(*coordinator.Config)) *House {
	t.Helper()
	h := &House{T: t, Config: coordinator.Config{DataDir: t.TempDir(), Version: "test", Log: Log(t, "coordinator")}}
	for _, f := range configure {
		f(&h.Config)
	}
	h.Start()
	t.Cleanup(h.Stop)
	return h
}

// Quick are clocks that let a test see expiry within seconds.
func Quick(c *coordinator.Config) {
	c.Lease = lease.Config{TTL: 3 * time.Second, StartAck: 2 * time.Second, OnlineWindow: 2 * time.Second}
	c.Timing = link.Timing{Heartbeat: 300 * time.Millisecond, HeartbeatTimeout: 1200 * time.Millisecond, LeaseTTL: 3 * time.Second,
		LeaseMargin: time.Second, StartAck: 2 * time.Second, Ping: 300 * time.Millisecond, DeadPeer: 2 * time.Second}
	c.RetryAfter = 50 * time.Millisecond
}

// Steady are clocks for a test that is about something else than expiry: what happens is seen as soon as with Quick, and
// however slow the machine is, no lease ends under a test.
func Steady(c *coordinator.Config) {
	c.Lease = lease.Config{TTL: time.Minute, StartAck: 30 * time.Second, OnlineWindow: 20 * time.Second}
	c.Timing = link.Timing{Heartbeat: 300 * time.Millisecond, HeartbeatTimeout: 10 * time.Second, LeaseTTL: time.Minute,
		LeaseMargin: 10 * time.Second, StartAck: 30 * time.Second, Ping: 300 * time.Millisecond, DeadPeer: 20 * time.Second}
	c.RetryAfter = 50 * time.Millisecond
}

// Lasting are the clocks of Quick with leases that outlast a restart and what a busy machine does to
// a runner: for tests in which none is to run out, and a lost session is to be seen soon.
func Lasting(c *coordinator.Config) {
	Quick(c)
	c.Lease.TTL, c.Timing.LeaseTTL = 30*time.Second, 30*time.Second
}

// Start brings the coordinator up, on the address that it had before.
func (h *House) Start() {
	h.T.Helper()
	if h.Address == "" {
		h.Address = reserve(h.T)
	}
	listener, err := net.Listen("tcp", h.Address)
	if err != nil {
		h.T.Fatalf("listen on %s: %v", h.Address, err)
	}
	c, err := coordinator.Open(context.Background(), h.Config)
	if err != nil {
		h.T.Fatalf("open the coordinator: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx, listener, 5*time.Second) }()
	h.mu.Lock()
	h.stop, h.done, h.c = stop, done, c
	h.mu.Unlock()
	if h.Client, err = client.New(client.Config{BaseURL: h.URL()}); err != nil {
		h.T.Fatal(err)
	}
}

// Stop drains the coordinator. It can be started again.
func (h *House) Stop() {
	h.mu.Lock()
	stop, done := h.stop, h.done
	h.stop = nil
	h.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	if err := <-done; err != nil {
		h.T.Errorf("the coordinator ended with %v", err)
	}
}

// URL is where the coordinator answers.
func (h *House) URL() string { return "http://" + h.Address }

// Key is the first API key of a coordinator that requires one. It is given once.
func (h *House) Key() string {
	h.T.Helper()
	h.mu.Lock()
	c := h.c
	h.mu.Unlock()
	key, err := c.Bootstrap(context.Background())
	if err != nil || key == "" {
		h.T.Fatalf("the first key: %q, %v", key, err)
	}
	return key
}

// Pair pairs a runner and returns it with its token.
func (h *House) Pair(label string, capabilities ...string) protocol.Paired {
	h.T.Helper()
	paired, err := h.Client.Pair(context.Background(), &protocol.PairRequest{Label: label, Capabilities: capabilities})
	if err != nil {
		h.T.Fatalf("pair %s: %v", label, err)
	}
	return *paired
}

// Runner is a runner that works for a house.
type Runner struct {
	ID     string
	Target string
	Config agent.Config

	t    testing.TB
	mu   sync.Mutex
	stop context.CancelFunc
	done chan struct{}
	err  error
	r    *agent.Runner
}

// Runner pairs and starts a runner that is stopped when the test ends.
func (h *House) Runner(label string, configure ...func(*agent.Config)) *Runner {
	h.T.Helper()
	paired := h.Pair(label)
	return h.RunnerFor(paired, configure...)
}

// RunnerFor starts the runner of a pairing.
func (h *House) RunnerFor(paired protocol.Paired, configure ...func(*agent.Config)) *Runner {
	h.T.Helper()
	dir := h.T.TempDir()
	r := &Runner{ID: paired.Runner.ID, Target: protocol.TargetSelfPrefix + paired.Runner.ID, t: h.T, Config: agent.Config{
		URL: h.URL(), Credential: link.Secret(paired.Token), Version: "test", Timing: h.Config.Timing,
		StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"),
		Lookup: builtin.Lookup, DrainTimeout: time.Minute, Log: Log(h.T, "runner "+paired.Runner.Label),
	}}
	for _, f := range configure {
		f(&r.Config)
	}
	if r.Config.Driver == nil {
		driver := process.New(process.Config{})
		h.T.Cleanup(func() {
			if err := driver.Close(); err != nil {
				h.T.Errorf("close the driver: %v", err)
			}
		})
		r.Config.Driver = driver
	}
	r.Start()
	h.T.Cleanup(func() { _ = r.Stop() })
	return r
}

// Start starts the runner.
func (r *Runner) Start() {
	ctx, stop := context.WithCancel(context.Background())
	runner := agent.New(r.Config)
	done := make(chan struct{})
	r.mu.Lock()
	r.stop, r.done, r.r = stop, done, runner
	r.mu.Unlock()
	go func() {
		err := runner.Run(ctx)
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		close(done)
	}()
}

// Online waits until the coordinator shows a runner as online.
func (h *House) Online(id string) {
	h.T.Helper()
	Eventually(h.T, id+" is online", func() bool {
		all, err := h.Client.WorkspaceRunners(context.Background())
		for _, r := range all {
			if r.ID == id && r.Online {
				return err == nil
			}
		}
		return false
	})
}

// Agent is the runner itself.
func (r *Runner) Agent() *agent.Runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r
}

// Drain lets the runner finish what it has and returns its error.
func (r *Runner) Drain() error {
	r.r.Drain()
	return r.Wait()
}

// Stop ends the runner at once and returns its error.
func (r *Runner) Stop() error {
	r.stop()
	return r.Wait()
}

// Wait waits for the runner to end by itself.
func (r *Runner) Wait() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(Patience):
		r.t.Fatal("the runner did not end")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Scripted is a run of the scripted agent with a script of one step a line.
func Scripted(script string) *protocol.RunRequest {
	return &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "scripted", Version: protocol.Latest, Params: map[string]string{"script": script}},
		Case: protocol.Case{ID: "c1", Task: "Follow the script", TimeoutSec: 120,
			Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}},
	}
}

// Submit submits a run and returns its id.
func (h *House) Submit(req *protocol.RunRequest) string {
	h.T.Helper()
	run, err := h.Client.Submit(context.Background(), req)
	if err != nil {
		h.T.Fatalf("submit: %v", err)
	}
	return run.RunID
}

// Run reads a run.
func (h *House) Run(id string) protocol.Run {
	h.T.Helper()
	run, err := h.Client.Run(context.Background(), id)
	if err != nil {
		h.T.Fatalf("get %s: %v", id, err)
	}
	return *run
}

// Until waits until a run satisfies want and returns it.
func (h *House) Until(id, what string, want func(protocol.Run) bool) protocol.Run {
	h.T.Helper()
	var run protocol.Run
	Eventually(h.T, what, func() bool {
		got, err := h.Client.Run(context.Background(), id)
		if err != nil {
			return false // the coordinator may be away
		}
		run = *got
		return want(run)
	})
	return run
}

// Settled waits until a run is over.
func (h *House) Settled(id string) protocol.Run {
	h.T.Helper()
	return h.Until(id, id+" settles", func(r protocol.Run) bool { return r.Status.Terminal() })
}

// Running waits until a run's harness runs.
func (h *House) Running(id string) protocol.Run {
	h.T.Helper()
	return h.Until(id, id+" runs", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning })
}

// Eventually polls a condition that nothing signals.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain: %s", Patience, what)
		}
	}
}

// Log sends log lines to the test, which shows them when it fails.
func Log(t testing.TB, who string) *slog.Logger {
	level := slog.LevelInfo
	if _, bench := t.(*testing.B); bench {
		level = slog.LevelWarn // what is measured is not the log
	}
	if os.Getenv("EVERDICT_TEST_DEBUG") != "" {
		level = slog.LevelDebug
	}
	w := &testWriter{t: t}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With("who", who)
}

// testWriter writes to a test's log as long as the test runs.
type testWriter struct {
	mu     sync.Mutex
	t      testing.TB
	closed bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, errors.New("test is over")
	}
	w.t.Logf("%s", p)
	return len(p), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
