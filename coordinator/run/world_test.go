package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

var (
	ann = auth.Principal{Subject: "ann", Workspace: "default"}
	bob = auth.Principal{Subject: "bob", Workspace: "default"}
)

// world is a run service over a real queue, store and evidence in one directory,
// which can be closed and opened again.
type world struct {
	t    *testing.T
	dir  string
	cfg  lease.Config
	conf Config

	db       *sqlite.DB
	q        *lease.Queue
	s        *Service
	store    *store.Store
	runners  *pairing.Runners
	runtimes *registry.Runtimes
	evidence *evidence.Store
	secrets  *secret.Vault
	key      secret.Key
	close    func()

	pulls int
}

// inWorld runs a test in a world whose clock moves when everybody waits.
func inWorld(t *testing.T, test func(t *testing.T, w *world), configure ...func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, t.TempDir(), configure...)
		test(t, w)
	})
}

func newWorld(t *testing.T, dir string, configure ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, dir: dir, key: secret.GenerateKey(), cfg: lease.Config{Limit: &lease.Limit{}}}
	for _, f := range configure {
		f(w)
	}
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	var err error
	w.db, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(w.dir, "everdict.db"), Readers: 2})
	must(err)
	w.store, err = store.Open(ctx, w.db)
	must(err)
	w.evidence, err = evidence.Open(evidence.Config{Dir: filepath.Join(w.dir, "evidence")})
	must(err)
	w.runners = pairing.New(pairing.Config{Store: w.store, OnChanged: func(workspace, id string) { w.s.RunnerChanged(workspace, id) }})
	w.runtimes = registry.NewRuntimes(registry.RuntimesConfig{Store: w.store,
		Changed: func(ctx context.Context, workspace string, latest *protocol.RuntimeSpec) error {
			return w.s.RuntimeChanged(ctx, workspace, latest)
		}})
	ring, err := secret.NewKeyring(w.key)
	must(err)
	w.secrets, err = secret.Open(ctx, secret.Config{Store: w.store, Keys: ring})
	must(err)
	conf := w.conf
	conf.Secrets = w.secrets
	conf.Runtimes = w.runtimes
	conf.Store, conf.Registry, conf.Runners, conf.Evidence = w.store, registry.New(w.store, nil), w.runners, w.evidence
	w.s = New(conf)
	cfg := w.cfg
	cfg.OnChange, cfg.Committed = w.s.OnChange, w.s.Committed
	w.q, err = lease.Open(ctx, w.db, cfg)
	must(err)
	must(w.s.Bind(ctx, w.q))
	must(w.runtimes.Announce(ctx))
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.q.Run(run) }()
	w.close = func() {
		stop()
		if err := errors.Join(<-ended, w.db.Close(), w.evidence.Close()); err != nil {
			w.t.Errorf("close: %v", err)
		}
	}
}

// restart is what a coordinator's restart is for the service: all memory is gone.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
}

func (w *world) pair(owner, label string, capabilities ...string) Holder {
	w.t.Helper()
	p, err := w.runners.Pair(w.t.Context(), "default", owner, protocol.PairRequest{Label: label, Capabilities: capabilities})
	if err != nil {
		w.t.Fatalf("pair %s: %v", label, err)
	}
	return Holder{Runner: p.Runner}
}

func request(target string, edit ...func(*protocol.RunRequest)) *protocol.RunRequest {
	r := &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: protocol.AdapterScripted},
		Case:    protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Task: "Say done"},
		Runtime: target,
	}
	for _, f := range edit {
		f(r)
	}
	return r
}

func beforeStart(r *protocol.RunRequest) { r.Case.Approval = protocol.ApprovalBeforeStart }

func (w *world) submit(r *protocol.RunRequest) string {
	w.t.Helper()
	run, err := w.s.Submit(w.t.Context(), ann, r)
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return run.ID
}

// take pulls for a runner until it has a lease.
func (w *world) take(h Holder) lease.Lease {
	w.t.Helper()
	w.pulls++
	l, err := w.q.Pull(w.t.Context(), lease.PullRequest{RequestID: fmt.Sprint("pull ", w.pulls), Runner: w.leaseRunner(h)})
	if err != nil {
		w.t.Fatalf("pull for %s: %v", h.Runner.ID, err)
	}
	return l
}

func (w *world) leaseRunner(h Holder) lease.Runner {
	return lease.Runner{ID: h.Runner.ID, Home: RunnerPool(h.Runner.ID).String(), Serves: w.s.Serves("default", h.Runner, h.Local),
		Capabilities: h.Runner.Capabilities, OS: "linux", Arch: "amd64"}
}

// begin takes a job and acknowledges its start.
func (w *world) begin(h Holder) lease.Lease {
	w.t.Helper()
	l := w.take(h)
	if err := w.s.Started(w.t.Context(), l.Ref, h); err != nil {
		w.t.Fatalf("started %s: %v", l.Job, err)
	}
	return l
}

// renew keeps a lease for d.
func (w *world) renew(h Holder, ref lease.Ref, d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(10*time.Second, time.Until(end))) {
		if st, err := w.q.Renew(w.t.Context(), h.Runner.ID, []lease.Ref{ref}); err != nil || st[0].Verdict == lease.Stale {
			w.t.Fatalf("renew %s: %+v, %v", ref.Job, st, err)
		}
	}
}

func (w *world) finish(h Holder, ref lease.Ref, result any) Finished {
	w.t.Helper()
	doc, err := json.Marshal(result)
	if err != nil {
		w.t.Fatal(err)
	}
	done, err := w.s.Finish(w.t.Context(), ref, h, doc)
	if err != nil {
		w.t.Fatalf("finish %s: %v", ref.Job, err)
	}
	return done
}

// passed is a result that decides the verdict.
func passed(pass bool) *protocol.CaseResult {
	score := protocol.Measured("answer-match", "answer_match", 1)
	score.Pass = &pass
	return &protocol.CaseResult{EvidenceVersion: protocol.EvidenceVersion, Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt, Output: "done"},
		Scores: []protocol.Score{score}}
}

// ended is the result of an attempt that was ended because a person asked for it.
func ended() *protocol.CaseResult {
	r := broke(protocol.ClassInfra, protocol.ReasonCancelled, false)
	r.Failure.Code = protocol.CodeCancelled
	return r
}

// broke is a result without scores to judge.
func broke(class, reason string, retryable bool) *protocol.CaseResult {
	return &protocol.CaseResult{EvidenceVersion: protocol.EvidenceVersion, Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt},
		Failure: &protocol.Failure{Stage: protocol.StageRun, Class: class, Reason: reason, Code: protocol.CodeUpstreamError,
			Message: "it broke", Retryable: retryable, LogTail: "the end"}}
}

// append stores evidence as the gateway would.
func (w *world) append(ref lease.Ref, channel, text string) {
	w.t.Helper()
	a, err := w.evidence.Attempt(ref.Job, ref.Attempt)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Append(channel, a.Summary().Channels[channel], []byte(text)); err != nil {
		w.t.Fatalf("append to %s of %s: %v", channel, ref.Job, err)
	}
}

// record is the run as lists show it, checked against what must always hold.
func (w *world) record(id string) *protocol.Run {
	w.t.Helper()
	ctx := w.t.Context()
	r, err := w.store.Run(ctx, "default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	job, err := w.q.Get(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	attempts, err := w.store.Attempts(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := w.store.RunEvents(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	rule := func(ok bool, what string) {
		if !ok {
			w.t.Helper()
			w.t.Errorf("%s: not so: %s\nrecord %s\njob %+v\nattempts %+v", id, what, dump(r), job, attempts)
		}
	}
	rule(r.Status.Terminal() == (job.State == lease.Settled), "the record is over when the job is (P2)")
	rule(r.Status.Terminal() == (r.FinishedAt != nil), "finishedAt is set when it is over")
	rule((r.Status == protocol.StatusFailed) == (r.Failure != nil), "exactly the failed have a failure (P8)")
	rule((r.Failure == nil) == (r.Error == nil) && (r.Failure == nil || r.Error.Code == r.Failure.Code), "error is the failure in short")
	rule((r.Status == protocol.StatusSuspended) == (r.Suspended != nil), "exactly the suspended say what they wait for")
	rule((r.Status == protocol.StatusQueued) == (r.Placement.QueueDeadline != nil), "exactly the queued have a queue deadline")
	rule(r.Status != protocol.StatusRunning || r.StartedAt != nil && r.Provenance != nil && r.Attempt == job.Attempt, "a running run says where and since when")
	rule(r.Status != protocol.StatusQueued || r.StartedAt == nil && r.Provenance == nil, "a queued run runs nowhere")
	rule(r.Failure == nil || r.Failure.Stage != protocol.StageRun || r.Verdict == nil, "what failed while it ran has no verdict")
	rule(int64(len(attempts)) == job.Attempt, "each attempt is on record")
	for i, a := range attempts {
		active := a.Outcome == protocol.AttemptActive
		rule(active == (job.State == lease.Leased && a.Attempt == job.Attempt), "the attempt with the lease is active, and no other (P3)")
		rule(active == (a.EndedAt == nil), "exactly what is over has an end")
		rule(a.Attempt == int64(i+1) && a.LeasedAt != nil && a.Runner != "", "an attempt says when and by whom it was taken")
	}
	for i, e := range events {
		rule(e.Seq == int64(i+1) && (i == 0 || !e.At.Before(events[i-1].At.Time)), "events are in order")
	}
	return r
}

func dump(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// story tells a run in lines: its record, its attempts, its events. Runners are
// called by their labels, times are left out.
func (w *world) story(id string) string {
	w.t.Helper()
	r := w.record(id)
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Status)
	if r.Attempt > 0 {
		fmt.Fprintf(&b, " attempt %d", r.Attempt)
	}
	if r.Verdict != nil {
		fmt.Fprintf(&b, " verdict %v", *r.Verdict)
	}
	if f := r.Failure; f != nil {
		fmt.Fprintf(&b, " %s/%s/%s %s: %s", f.Stage, f.Class, f.Reason, f.Code, f.Message)
	}
	if p := r.Suspended; p != nil {
		fmt.Fprintf(&b, " %s", p.Kind)
		if p.ID != "" {
			fmt.Fprintf(&b, " %s: %s", p.ID, p.Question)
		}
	}
	b.WriteString("\n")
	attempts, err := w.store.Attempts(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range attempts {
		fmt.Fprintf(&b, "%d %s", a.Attempt, a.Outcome)
		if a.Message != "" {
			fmt.Fprintf(&b, ": %s", a.Message)
		}
		if a.Result != nil {
			b.WriteString(" +result")
		}
		if a.LateAt != nil {
			b.WriteString(" late")
		}
		for _, q := range a.Answers {
			fmt.Fprintf(&b, " [%s %v by %s]", q.ID, q.Approved, q.By)
		}
		b.WriteString("\n")
	}
	events, err := w.s.Events(w.t.Context(), ann, id)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, e := range events {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.Kind)
		if e.Attempt > 0 {
			fmt.Fprintf(&b, " %d", e.Attempt)
		}
		if e.Message != "" {
			fmt.Fprintf(&b, " (%s)", e.Message)
		}
	}
	text := b.String()
	roster, err := w.runners.Roster(w.t.Context(), "default")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range roster {
		text = strings.ReplaceAll(text, h.ID, h.Label)
	}
	return text
}

// tells compares a run's story with the lines that are wanted.
func (w *world) tells(id string, want ...string) {
	w.t.Helper()
	if got := w.story(id); got != strings.Join(want, "\n") {
		w.t.Errorf("the run's story is\n  %s\nwant\n  %s", strings.ReplaceAll(got, "\n", "\n  "), strings.Join(want, "\n  "))
	}
}

// code is the code of a problem; "" when there is none.
func code(err error) protocol.Code {
	var p *protocol.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	if err != nil {
		return protocol.Code("not a problem: " + err.Error())
	}
	return ""
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	if i := slices.IndexFunc(parts, func(p string) bool { return !strings.Contains(text, p) }); i >= 0 {
		t.Errorf("%s is %q, want %q in it", what, text, parts[i])
	}
}

// cancelled is a context that ends with the test at the latest.
func cancelled(w *world) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	return ctx, cancel
}
