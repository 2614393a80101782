// Package gateway is the coordinator's end of runner sessions: it turns the
// messages of protocol/link into calls of the lease queue and of the run service,
// and the queue's decisions into messages. It decides nothing itself but the
// takeover rule: the newest session of a runner is the runner; an older one is
// closed and told so.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// Config of a Gateway. Queue, Runs, Runners and Evidence are required.
type Config struct {
	Queue    *lease.Queue
	Runs     *run.Service
	Runners  *pairing.Runners
	Evidence *evidence.Store
	// Version is the coordinator's.
	Version string
	Timing  link.Timing
	Log     *slog.Logger
}

// Gateway serves runners at link.Path.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	acceptor *link.Acceptor

	mu    sync.Mutex
	seats map[string]*seat  // by runner
	local map[string]bool   // runners inside this process
	bound map[string]string // jobs that units were given after their launch, by unit
}

// seat is where the sessions of one runner follow each other.
type seat struct {
	// turn is held over what a session's coming or going, or a new audience, tells
	// the queue, so that the queue hears it in the order in which it happened.
	// It is taken before Gateway.mu, and never on the writer's goroutine.
	turn sync.Mutex

	session *session // guarded by Gateway.mu; nil: not connected
	last    process  // guarded by Gateway.mu: who had it last
}

// process is one life of a runner's program.
type process struct{ instance, host string }

// replaces says that a process has come after another one, which is gone. A
// machine lets one process at a time use a credential, and that one sweeps what
// the one before it left, before it connects. Of a process on another machine
// nothing is known: it may still be at work.
func (p process) replaces(before process) bool {
	return before.instance != "" && before.instance != p.instance && before.host == p.host
}

// session is a runner that is connected.
type session struct {
	link      *link.CoordinatorSession
	workspace string
	holder    run.Holder
	process   process
	detach    func()

	mu     sync.Mutex
	runner lease.Runner
	terms  link.Terms // of its owner, as last said
}

func (s *session) lease() lease.Runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runner
}

func (s *session) set(r lease.Runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runner = r
}

// said is what the runner's owner last let it do.
func (s *session) said() link.Terms {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

// say reports whether the runner's owner lets it do something else than before.
func (s *session) say(t link.Terms) bool {
	t.Paused = protocol.Clip(t.Paused, pairing.MaxPaused)
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.terms != t
	s.terms = t
	return changed
}

// New returns a gateway and makes the run service tell it what concerns runners.
func New(cfg Config) (*Gateway, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{cfg: cfg, log: cfg.Log, seats: map[string]*seat{}, local: map[string]bool{}, bound: map[string]string{}}
	acceptor, err := link.NewAcceptor(link.AcceptConfig{
		Handler: g, Authenticate: g.authenticate, Version: cfg.Version,
		MinVersion: cfg.Version, // what is known to be new enough
		Timing:     cfg.Timing, Logger: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.acceptor = acceptor
	cfg.Runs.OnStopping(g.stopping)
	cfg.Runs.OnAudience(g.audience)
	return g, nil
}

// ServeHTTP upgrades a runner's request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.acceptor.ServeHTTP(w, r) }

// Sessions is the number of connected runners.
func (g *Gateway) Sessions() int { return g.acceptor.Sessions() }

// Local marks a runner as one inside this process: it serves every workspace.
func (g *Gateway) Local(runnerID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.local[runnerID] = true
}

// Shutdown tells every runner to come back later, closes the sessions, and waits
// for what they were doing, until ctx ends.
func (g *Gateway) Shutdown(ctx context.Context, retryAfter time.Duration) error {
	g.acceptor.Drain(link.Drain{RetryAfter: link.Duration(retryAfter), Reason: "the coordinator is going away"})
	return g.acceptor.Shutdown(ctx, retryAfter)
}

func (g *Gateway) authenticate(ctx context.Context, _ *http.Request, token link.Secret) (link.Principal, error) {
	record, err := g.cfg.Runners.Resolve(ctx, string(token))
	switch {
	case errors.Is(err, store.ErrNotFound) && strings.HasPrefix(string(token), protocol.PoolTokenPrefix):
		return link.Principal{}, &link.RefusedError{Status: http.StatusUnauthorized, Code: string(protocol.CodeUnauthenticated),
			Message: "this is a pool token, with which a runner joins before it connects", Hint: "everdict runner --pool-token"}
	case errors.Is(err, auth.ErrNonce):
		return link.Principal{}, &link.RefusedError{Status: http.StatusUnauthorized, Code: link.CodeNonce,
			Message: "this device session is not, or no longer, good", Hint: "sign a new nonce: POST " + link.NoncePath}
	case errors.Is(err, store.ErrNotFound):
		return link.Principal{}, &link.RefusedError{Status: http.StatusUnauthorized, Code: string(protocol.CodeUnauthenticated),
			Message: "this credential is not known here", Hint: "pair the machine again: everdict runner --pair"}
	case err != nil:
		return link.Principal{}, err
	case record.RevokedAt != nil && record.Runtime != "":
		return link.Principal{}, &link.RefusedError{Status: http.StatusForbidden, Code: "revoked",
			Message: fmt.Sprintf("runner %s of runtime %s was revoked", record.ID, record.Runtime), Hint: "make a new pool token: everdict pools token create"}
	case record.RevokedAt != nil:
		return link.Principal{}, &link.RefusedError{Status: http.StatusForbidden, Code: "revoked",
			Message: fmt.Sprintf("runner %s (%s) was revoked", record.ID, record.Label), Hint: "pair the machine again: everdict runner --pair"}
	}
	return link.Principal{Runner: record.ID, Value: record}, nil
}

// maxEvidence bounds what is shown of why a runner offers something, in bytes.
const maxEvidence = 500

// Hello implements link.Handler: the runner becomes present, an older session of
// it is taken over, and each lease that it holds gets its verdict.
func (g *Gateway) Hello(ctx context.Context, c *link.CoordinatorSession, h link.Hello) (link.Welcome, error) {
	record := c.Principal().Value.(*store.RunnerRecord)
	s := &session{link: c, workspace: record.Workspace, process: process{h.Instance, h.Hostname}}
	s.say(h.Terms)
	s.holder = g.holder(c)
	capabilities := slices.DeleteFunc(slices.Clone(h.Capabilities), func(name string) bool { return !protocol.KnownCapability(name) })
	evidence := map[string]string{}
	for _, name := range capabilities {
		if seen := h.CapabilityEvidence[name]; seen != "" {
			evidence[name] = protocol.Clip(seen, maxEvidence)
		}
	}

	at := g.seat(record.ID)
	at.turn.Lock()
	defer at.turn.Unlock()
	// In its turn as well: of two sessions that come at once, the one that gets the
	// seat last is also the one that is shown.
	s.detach = g.cfg.Runners.Attach(record.Runner, pairing.Hello{
		Workspace: record.Workspace,
		Version:   h.Version, Protocol: h.Protocol, OS: h.OS, Arch: h.Arch, Hostname: h.Hostname,
		Capabilities: capabilities, CapabilityEvidence: evidence, Slots: h.Slots, Terms: h.Terms,
	})
	g.mu.Lock()
	old, before := at.session, at.last
	at.session, at.last = s, s.process
	g.mu.Unlock()
	if old != nil {
		g.takeOver(old, s)
	}
	// The credential was good when the connection was accepted, which may be a
	// while ago. From here on a revocation finds the session.
	if g.cfg.Runners.Revoked(record.ID) {
		return link.Welcome{}, &link.RevokedError{Message: "this runner was revoked"}
	}
	home := run.RunnerPool(record.ID) // a paired machine's slots are its own limit
	switch {
	case s.holder.Local:
		home = run.RuntimeHome(run.LocalRuntime)
	case record.Runtime != "":
		home = run.RuntimePool(record.Workspace, record.Runtime)
	}
	s.set(lease.Runner{
		ID: record.ID, Home: home.String(), Serves: g.serves(s),
		Capabilities: capabilities, OS: h.OS, Arch: h.Arch, MemoryMB: h.Resources.MemoryMB,
		Job: g.boundTo(&record.Runner), Paused: s.said().Paused,
	})
	adopted, err := g.cfg.Queue.Adopt(ctx, s.lease(), refs(h.Leases))
	if errors.Is(err, lease.ErrFenced) {
		err = &link.RevokedError{Message: "this runner was revoked"}
	}
	if err != nil {
		return link.Welcome{}, err
	}
	adopted.Held = g.begun(ctx, s.holder, h.Leases, adopted.Held)
	for _, missing := range adopted.Missing {
		// The same process has only lost an answer, and asks again; of one on
		// another machine the lease has to run out.
		if !s.process.replaces(before) {
			continue
		}
		if err := g.cfg.Runs.GiveBack(ctx, missing.Ref, "the runner was restarted"); err != nil {
			g.log.Warn("lost attempt could not be taken back, its lease will expire", "run", missing.Job, "err", err)
		}
	}
	g.log.Info("runner connected", "runner", record.ID, "label", record.Label, "version", h.Version, "held", len(h.Leases))
	return link.Welcome{Runner: record.ID, Version: g.cfg.Version, Leases: verdicts(adopted.Held)}, nil
}

// begun takes the word of a runner that its attempts have begun, where the acknowledgement
// of a start was lost: else the queue would give a run away that is renewed (P3). Where that
// cannot be written, the runner hears nothing of the attempt, and holds it still in time.
func (g *Gateway) begun(ctx context.Context, h run.Holder, held []link.HeldLease, standings []lease.Standing) []lease.Standing {
	var known []lease.Standing
	for i, s := range standings {
		if s.Verdict == lease.Stands && !s.Started && held[i].Started {
			err := g.cfg.Runs.Started(ctx, s.Ref, h)
			switch _, stale := lease.IsStale(err); {
			case stale, errors.Is(err, lease.ErrAlreadySettled), errors.Is(err, lease.ErrUnknownJob):
				s = lease.Standing{Ref: s.Ref, Verdict: lease.Stale}
			case err != nil:
				g.log.Warn("start of an attempt could not be written", "run", s.Ref.Job, "err", err)
				continue
			}
		}
		known = append(known, s)
	}
	return known
}

// serves are the pools whose jobs the runner of a session takes now.
func (g *Gateway) serves(s *session) []string {
	r := s.holder.Runner
	r.Scope = pairing.ScopeOf(&r, s.workspace, s.said().Scope)
	return g.cfg.Runs.Serves(s.workspace, r, s.holder.Local)
}

// holder is the runner of a session, as a run's record names it.
func (g *Gateway) holder(c *link.CoordinatorSession) run.Holder {
	h := run.Holder{Runner: c.Principal().Value.(*store.RunnerRecord).Runner}
	h.Runner.Hostname = c.Hello().Hostname
	g.mu.Lock()
	defer g.mu.Unlock()
	h.Local = g.local[h.Runner.ID]
	return h
}

// seat is the place of a runner.
func (g *Gateway) seat(runnerID string) *seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.seats[runnerID]
	if at == nil {
		at = &seat{}
		g.seats[runnerID] = at
	}
	return at
}

// connected is the live session of a runner; nil if there is none.
func (g *Gateway) connected(runnerID string) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.seats[runnerID]; at != nil {
		return at.session
	}
	return nil
}

// takeOver closes the older session of a runner. The same process that has
// reconnected is told nothing.
func (g *Gateway) takeOver(old, s *session) {
	reason := link.CloseReason{Code: link.CloseNormal, Message: "reconnected"}
	if old.process.instance != s.process.instance {
		reason = link.CloseReason{Code: link.CloseTakenOver,
			Message: fmt.Sprintf("another process on %s uses this runner's credential", s.holder.Runner.Hostname)}
		g.log.Warn("runner taken over by another process", "runner", s.holder.Runner.ID, "host", s.holder.Runner.Hostname)
	}
	old.detach()
	go old.link.Close(reason)
}

// Closed implements link.Handler.
func (g *Gateway) Closed(c *link.CoordinatorSession, err error) {
	id := c.Principal().Runner
	at := g.seat(id)
	at.turn.Lock()
	defer at.turn.Unlock()
	g.mu.Lock()
	s := at.session
	current := s != nil && s.link == c
	if current {
		at.session = nil
	}
	g.mu.Unlock()
	if !current {
		return // taken over: the newer session is the runner
	}
	s.detach()
	g.log.Info("runner disconnected", "runner", id, "reason", err)
	// The coordinator may be closing as well; then nothing needs to know.
	if err := g.cfg.Queue.RemoveRunner(context.Background(), id); err != nil && !errors.Is(err, lease.ErrClosed) {
		g.log.Error("queue was not told that a runner left", "runner", id, "err", err)
	}
}

// Heartbeat implements link.Handler.
func (g *Gateway) Heartbeat(ctx context.Context, c *link.CoordinatorSession, hb link.Heartbeat) (link.HeartbeatAck, error) {
	id := c.Principal().Runner
	standings, err := g.cfg.Queue.Renew(ctx, id, refs(hb.Leases))
	if err != nil {
		return link.HeartbeatAck{}, err
	}
	standings = g.begun(ctx, g.holder(c), hb.Leases, standings)
	beat := pairing.Beat{Busy: len(hb.Leases), Slots: c.Hello().Slots, Terms: hb.Terms}
	if hb.Degraded != "" {
		beat.Status = &protocol.RunnerStatus{Text: protocol.Clip(hb.Degraded, 200), Level: "warn", At: protocol.At(time.Now())}
	}
	g.cfg.Runners.Seen(id, beat)
	if s, err := g.session(c); err == nil && s.say(hb.Terms) {
		g.serve(g.seat(id))
	}
	return link.HeartbeatAck{Leases: verdicts(standings)}, nil
}

// levels are those of a runner's status; the first is that of one that says none.
var levels = []string{"info", "warn", "error"}

// Status implements link.Handler.
func (g *Gateway) Status(_ context.Context, c *link.CoordinatorSession, st link.Status) {
	if !slices.Contains(levels, st.Level) {
		st.Level = levels[0]
	}
	g.cfg.Runners.SetStatus(c.Principal().Runner, &protocol.RunnerStatus{Text: protocol.Clip(st.Text, 200), Level: st.Level, At: protocol.At(time.Now())})
}

// Drain implements link.Handler.
func (g *Gateway) Drain(_ context.Context, c *link.CoordinatorSession, d link.Drain) {
	g.cfg.Runners.SetStatus(c.Principal().Runner, &protocol.RunnerStatus{Text: "draining: " + protocol.Clip(d.Reason, 180), Level: "info", At: protocol.At(time.Now())})
}

// Committed is told of the queue's changes: who is busy is shown at once, and a
// runner that took a lease and did not acknowledge its start as degraded (F6).
func (g *Gateway) Committed(events []lease.Event) {
	for i := range events {
		ev := &events[i]
		switch {
		case ev.Runner == "":
		case ev.Kind == lease.JobLeased:
			g.cfg.Runners.Took(ev.Runner, 1)
		case ev.Kind == lease.JobSettled, ev.Kind == lease.JobRequeued:
			g.cfg.Runners.Took(ev.Runner, -1)
		}
		if ev.Kind == lease.JobRequeued && ev.Cause == lease.CauseStartTimeout {
			g.cfg.Runners.SetStatus(ev.Runner, &protocol.RunnerStatus{
				Text: "degraded: took " + ev.Job + " and did not start it", Level: "warn", At: protocol.At(ev.At)})
		}
	}
}

// stopping tells the holder of an attempt to end it. It is called on the writer's
// goroutine.
func (g *Gateway) stopping(ev lease.Event) {
	s := g.connected(ev.Runner)
	if s == nil {
		return // it hears it when it comes back
	}
	go func() {
		if err := s.link.Cancel(link.Cancel{Run: ev.Job, Job: ev.Job, Epoch: ev.Attempt, Reason: ev.Reason}); err != nil {
			g.log.Debug("cancel will be told by the next heartbeat", "run", ev.Job, "err", err)
		}
	}()
}

// audience makes the runners of a workspace serve somebody new.
func (g *Gateway) audience(workspace string) {
	g.mu.Lock()
	var all []*seat
	for _, at := range g.seats {
		if s := at.session; s != nil && (s.holder.Local || s.workspace == workspace) {
			all = append(all, at)
		}
	}
	g.mu.Unlock()
	for _, at := range all {
		g.serve(at)
	}
}

// serve tells the queue whom the runner in a seat serves now, which job it is bound to,
// and whether it is paused, if that has changed.
func (g *Gateway) serve(at *seat) {
	at.turn.Lock()
	defer at.turn.Unlock()
	g.mu.Lock()
	s := at.session
	g.mu.Unlock()
	if s == nil {
		return
	}
	r := s.lease()
	if r.ID == "" {
		return // its hello was refused, and it is on its way out
	}
	serves, job, paused := g.serves(s), g.boundTo(&s.holder.Runner), s.said().Paused
	if slices.Equal(serves, r.Serves) && job == r.Job && paused == r.Paused {
		return
	}
	r.Serves, r.Job, r.Paused = serves, job, paused
	s.set(r)
	if err := g.cfg.Queue.SetRunner(context.Background(), r); err != nil && !errors.Is(err, lease.ErrFenced) {
		g.log.Error("runner does not serve a new submitter yet", "runner", r.ID, "err", err)
	}
}

// BindUnit makes the runner of a launched unit take one job and no other, now or when
// it connects; no job: the one that it was launched for, or none if it was for none.
func (g *Gateway) BindUnit(unit, job string) {
	g.mu.Lock()
	if job == "" {
		delete(g.bound, unit)
	} else {
		g.bound[unit] = job
	}
	var of *seat
	for _, at := range g.seats {
		if at.session != nil && at.session.holder.Runner.Unit == unit {
			of = at
		}
	}
	g.mu.Unlock()
	if of != nil {
		g.serve(of)
	}
}

// boundTo is the one job that a runner takes; empty: any of its pools.
func (g *Gateway) boundTo(r *protocol.Runner) string {
	if r.Unit == "" {
		return r.Job
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A unit without a job is bound to what is none, until it is given one.
	return cmp.Or(g.bound[r.Unit], r.Job, r.Unit)
}

// Revoked closes the sessions of runners at once and fences their leases: nothing that
// they still send can change a record (F35).
func (g *Gateway) Revoked(runnerIDs ...string) {
	for _, id := range runnerIDs {
		if s := g.connected(id); s != nil {
			go s.link.Close(link.CloseReason{Code: link.CloseRevoked, Message: "this runner was revoked"})
		}
	}
	if err := g.fence(context.Background(), runnerIDs); err != nil && !errors.Is(err, lease.ErrClosed) {
		g.log.Error("that runners were revoked is not in the records of their runs yet", "runners", runnerIDs, "err", err)
	}
}

// fence takes the trust from runners. Those that hold payloads lose their credentials alone.
func (g *Gateway) fence(ctx context.Context, runnerIDs []string) error {
	return g.cfg.Queue.Fence(ctx, slices.DeleteFunc(slices.Clone(runnerIDs), g.cfg.Runs.HoldsPayload)...)
}

// Recover fences the leases of runners that were revoked while a coordinator that is gone
// could not say so.
func (g *Gateway) Recover(ctx context.Context) error {
	leases, err := g.cfg.Queue.List(ctx)
	if err != nil {
		return err
	}
	holders := map[string]bool{}
	for _, l := range leases {
		holders[l.Runner] = true
	}
	var revoked []string
	for id := range holders {
		was, err := g.cfg.Runners.WasRevoked(ctx, id)
		if err != nil {
			return err
		}
		if was {
			revoked = append(revoked, id)
		}
	}
	return g.fence(ctx, revoked)
}

// Forgotten gives up the seat of a runner that is away and will not be known when
// it comes back.
func (g *Gateway) Forgotten(runnerID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.seats[runnerID]; at != nil && at.session == nil {
		delete(g.seats, runnerID)
	}
}

func refs(held []link.HeldLease) []lease.Ref {
	out := make([]lease.Ref, len(held))
	for i, l := range held {
		out[i] = ref(l.AttemptRef)
	}
	return out
}

func ref(a link.AttemptRef) lease.Ref {
	return lease.Ref{Job: a.Job, Attempt: a.Epoch, Token: string(a.Token)}
}

func verdicts(standings []lease.Standing) []link.LeaseVerdict {
	out := make([]link.LeaseVerdict, len(standings))
	for i, s := range standings {
		v := link.LeaseVerdict{Run: s.Ref.Job, Job: s.Ref.Job, Epoch: s.Ref.Attempt, TTL: link.Duration(s.TTL), Reason: s.Reason}
		switch s.Verdict {
		case lease.Stands:
			v.Standing = link.Stands
		case lease.Stop:
			v.Standing = link.Cancelled
		default:
			v.Standing, v.Reason = link.Stale, "another attempt has taken its place, or its lease has run out"
		}
		out[i] = v
	}
	return out
}
