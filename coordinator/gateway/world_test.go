package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// patience is how long a test waits for what has to come: machines are shared.
const patience = 30 * time.Second

var ann = auth.Principal{Subject: "ann", Workspace: "default"}

// world is a gateway on a loopback port, over a real queue, store and evidence.
type world struct {
	t        *testing.T
	cfg      lease.Config
	ev       evidence.Config
	local    bool
	db       *sqlite.DB
	store    *store.Store
	q        *lease.Queue
	runs     *run.Service
	runners  *pairing.Runners
	runtimes *registry.Runtimes
	evidence *evidence.Store
	registry *registry.Registry
	secrets  *secret.Vault
	g        *Gateway
	url      string
}

func newWorld(t *testing.T, configure ...func(*world)) *world {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	w := &world{t: t, cfg: lease.Config{Limit: &lease.Limit{}}, ev: evidence.Config{Dir: filepath.Join(dir, "evidence")}}
	for _, f := range configure {
		f(w)
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	var err error
	w.db, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "everdict.db"), Readers: 2})
	must(err)
	w.store, err = store.Open(ctx, w.db)
	must(err)
	w.evidence, err = evidence.Open(w.ev)
	must(err)
	w.runners = pairing.New(pairing.Config{Store: w.store, OnRevoked: func(ids ...string) { w.g.Revoked(ids...) }})
	w.runtimes = registry.NewRuntimes(registry.RuntimesConfig{Store: w.store,
		Changed: func(ctx context.Context, workspace string, latest *protocol.RuntimeSpec) error {
			return w.runs.RuntimeChanged(ctx, workspace, latest)
		}})
	w.registry = registry.New(w.store, nil)
	ring, err := secret.NewKeyring(secret.GenerateKey())
	must(err)
	w.secrets, err = secret.Open(ctx, secret.Config{Store: w.store, Keys: ring})
	must(err)
	w.runs = run.New(run.Config{Store: w.store, Registry: w.registry, Runtimes: w.runtimes, Runners: w.runners, Evidence: w.evidence, Secrets: w.secrets, Local: w.local})
	cfg := w.cfg
	cfg.OnChange = w.runs.OnChange
	cfg.Committed = func(events []lease.Event) { w.runs.Committed(events); w.g.Committed(events) }
	w.q, err = lease.Open(ctx, w.db, cfg)
	must(err)
	must(w.runs.Bind(ctx, w.q))
	w.g, err = New(Config{Queue: w.q, Runs: w.runs, Runners: w.runners, Evidence: w.evidence, Version: "test"})
	must(err)
	server := httptest.NewServer(w.g)
	w.url = server.URL
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.q.Run(running) }()
	t.Cleanup(func() {
		leave, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err := w.g.Shutdown(leave, time.Second)
		server.Close()
		stop()
		if err := errors.Join(err, <-ended, w.db.Close(), w.evidence.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// ctx ends when a test has waited long enough.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) pair(owner, label string) protocol.Paired {
	w.t.Helper()
	p, err := w.runners.Pair(w.ctx(), "default", owner, protocol.PairRequest{Label: label})
	if err != nil {
		w.t.Fatalf("pair %s: %v", label, err)
	}
	return p
}

func (w *world) submit(target string) string {
	w.t.Helper()
	r, err := w.runs.Submit(w.ctx(), ann, &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: protocol.AdapterScripted},
		Case:    protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Task: "Say done"},
		Runtime: target,
	})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return r.ID
}

// machine is a process that uses a runner's credential.
type machine struct {
	w *world
	*link.RunnerSession
	hello link.Hello

	mu      sync.Mutex
	held    []link.HeldLease
	terms   link.Terms
	cancels chan link.Cancel
}

func (m *machine) Beat() link.Heartbeat {
	m.mu.Lock()
	defer m.mu.Unlock()
	return link.Heartbeat{Leases: m.held, Terms: m.terms}
}
func (m *machine) Renewed(time.Time, link.HeartbeatAck) {}
func (m *machine) Cancel(c link.Cancel)                 { m.cancels <- c }
func (m *machine) Drain(link.Drain)                     {}
func (m *machine) Status(link.Status)                   {}

// dial connects a process; edit changes what it says of itself.
func (w *world) dial(p protocol.Paired, edit ...func(*link.Hello)) (*machine, error) {
	return w.dialAs(link.Secret(p.Token), edit...)
}

func (w *world) dialAs(c link.Credential, edit ...func(*link.Hello)) (*machine, error) {
	m := &machine{w: w, cancels: make(chan link.Cancel, 16), hello: link.Hello{Version: "test", OS: "linux", Arch: "amd64",
		Hostname: "host-1", Capabilities: []string{protocol.CapGit, "telepathy"}, Slots: 1,
		CapabilityEvidence: map[string]string{protocol.CapGit: strings.Repeat("git ", 1000), "telepathy": "felt"}, Instance: "process-1"}}
	for _, f := range edit {
		f(&m.hello)
	}
	m.held, m.terms = m.hello.Leases, m.hello.Terms
	s, err := link.Dial(w.ctx(), link.DialConfig{URL: w.url, Credential: c,
		Hello: func() link.Hello { return m.hello }, Handler: m})
	if err != nil {
		return nil, err
	}
	m.RunnerSession = s
	w.t.Cleanup(func() {
		s.Close(link.CloseReason{Code: link.CloseNormal})
		_ = s.Wait()
	})
	return m, nil
}

func (w *world) connect(p protocol.Paired, edit ...func(*link.Hello)) *machine {
	w.t.Helper()
	m, err := w.dial(p, edit...)
	if err != nil {
		w.t.Fatalf("connect %s: %v", p.Runner.Label, err)
	}
	return m
}

func (w *world) connectAs(c link.Credential, edit ...func(*link.Hello)) *machine {
	w.t.Helper()
	m, err := w.dialAs(c, edit...)
	if err != nil {
		w.t.Fatalf("connect: %v", err)
	}
	return m
}

func as(instance, host string) func(*link.Hello) {
	return func(h *link.Hello) { h.Instance, h.Hostname = instance, host }
}

func holding(refs ...link.AttemptRef) func(*link.Hello) {
	return func(h *link.Hello) {
		for _, ref := range refs {
			h.Leases = append(h.Leases, link.HeldLease{AttemptRef: ref, Started: true})
		}
	}
}

// pull waits for an attempt.
func (m *machine) pull(request string) *link.Offer {
	m.w.t.Helper()
	o, err := m.Pull(m.w.ctx(), link.PullRequest{Request: request})
	if err != nil {
		m.w.t.Fatalf("pull %s: %v", request, err)
	}
	return o
}

// begin pulls and acknowledges the start.
func (m *machine) begin(request string) link.AttemptRef {
	m.w.t.Helper()
	o := m.pull(request)
	if st, err := o.Started(m.w.ctx()); err != nil || st != link.Stands {
		m.w.t.Fatalf("started %s: %s, %v", o.Run, st, err)
	}
	return o.AttemptRef
}

// over waits for the end of a session and returns its reason.
func (m *machine) over(why string) error {
	m.w.t.Helper()
	select {
	case <-m.Done():
		return m.Err()
	case <-m.w.ctx().Done():
		m.w.t.Fatalf("%s: the session goes on", why)
		return nil
	}
}

// wantRevoked waits until a session has ended because its runner was revoked.
func (m *machine) wantRevoked() {
	m.w.t.Helper()
	var revoked *link.RevokedError
	if err := m.over("it was revoked"); !errors.As(err, &revoked) {
		m.w.t.Errorf("the session ended with %v, want revoked", err)
	}
}

// revoke revokes a runner of ann.
func (w *world) revoke(id string) {
	w.t.Helper()
	if ok, err := w.runners.Revoke(w.ctx(), "default", "ann", id); !ok || err != nil {
		w.t.Fatalf("revoke: %v, %v", ok, err)
	}
}

// until waits for a condition.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("never came: %s", what)
		}
	}
}

func (w *world) job(id string) lease.Status {
	w.t.Helper()
	s, err := w.q.Get(w.ctx(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// story is what has happened to a run, in short.
func (w *world) story(id string) string {
	w.t.Helper()
	r, err := w.store.Run(w.ctx(), "default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	attempts, err := w.store.Attempts(w.ctx(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(r.Status)
	for _, a := range attempts {
		text += fmt.Sprintf(", %d %s", a.Attempt, a.Outcome)
		if a.LateAt != nil {
			text += " late"
		}
	}
	return text
}

func (w *world) tells(id, want string) {
	w.t.Helper()
	if got := w.story(id); got != want {
		w.t.Errorf("the run's story is %q, want %q", got, want)
	}
}

func (w *world) runner(id string) protocol.Runner {
	w.t.Helper()
	r, err := w.runners.Get(w.ctx(), "default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func document(t *testing.T, r *protocol.CaseResult) []byte {
	t.Helper()
	doc, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func done() *protocol.CaseResult {
	return &protocol.CaseResult{EvidenceVersion: protocol.EvidenceVersion, Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt, Output: "done"}}
}

// remote is the code of what the coordinator answered.
func remote(err error) string {
	var r *link.RemoteError
	if errors.As(err, &r) {
		return r.Code
	}
	return fmt.Sprint("not the coordinator's: ", err)
}
