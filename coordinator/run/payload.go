package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// A payload is an attempt that is handed out as a file (protocol.Payload). Its holder may
// never be heard of again until a person brings the result, so that a heartbeat cannot
// say that it lives. The coordinator renews its lease instead, and gives the run to nobody
// else: what is out may be running. So there is one attempt at a time here as well (P3),
// at the price that only a person knows when a payload is lost:
//
//	result is there   Deliver, or the runner's own connection     the run is settled with it
//	taken back        TakeBack: a person says that nothing runs   the next attempt
//	cancelled         Cancel                                      the run is settled
//	time is over      HandedOut.Until                             the run has failed, for good
//
// A result that comes after any of these is late evidence, as every late result (P2).

// payloads are those that are out, by run.
type payloads struct {
	mu     sync.Mutex
	out    map[string]payload
	kicked chan struct{}
}

type payload struct {
	lease lease.Lease
	out   protocol.HandedOut
}

func (p *payloads) put(l lease.Lease, out protocol.HandedOut) {
	l.Payload = nil
	p.mu.Lock()
	p.out[l.Job] = payload{l, out}
	p.mu.Unlock()
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

// of is the payload of a run that is out; false: there is none.
func (p *payloads) of(run string) (payload, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, ok := p.out[run]
	return one, ok
}

// over forgets a payload that is not out any more.
func (p *payloads) over(one payload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, ok := p.out[one.lease.Job]; ok && now.lease.Attempt == one.lease.Attempt {
		delete(p.out, one.lease.Job)
	}
}

func (p *payloads) all() []payload {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.out))
}

// takeBound is how long the queue has to lease a run that is handed out: it does at once
// or not at all.
const takeBound = 5 * time.Second

// HandOut makes a payload of the next attempt of a queued run.
func (s *Service) HandOut(ctx context.Context, p auth.Principal, id string, req protocol.PayloadRequest) (*protocol.Payload, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if err := mayHold(p, r.CreatedBy, "hand out run "+r.ID); err != nil {
		return nil, err
	}
	if r.Status != protocol.StatusQueued {
		return nil, protocol.Conflict("run %s cannot be handed out: it is %s", r.ID, r.Status).
			WithHint("a run that waits can be; what is out already is taken back with everdict runs take-back")
	}
	sp, err := s.spec(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	out := protocol.HandedOut{By: p.Subject, Until: protocol.At(s.cfg.Now().Add(req.Life()))}
	holder, err := s.cfg.Runners.Holder(ctx, p.Workspace, p.Subject, r.ID, out.Until.Time)
	if err != nil {
		return nil, err
	}
	return s.handOut(ctx, r, &sp, holder, RunnerPool(holder.Runner.ID), out)
}

// handOut leases a run to the runner that will hold its payload, and counts it against the
// limits of home.
func (s *Service) handOut(ctx context.Context, r *protocol.Run, sp *spec, holder protocol.Paired, home Pool, out protocol.HandedOut) (*protocol.Payload, error) {
	l, err := s.take(ctx, r, holder.Runner, home, sp)
	if err != nil {
		return nil, err
	}
	s.payloads.put(l, out) // before it is out
	if err := s.started(ctx, l.Ref, Holder{Runner: holder.Runner}, &out); err != nil {
		s.payloads.over(payload{lease: l})
		return nil, fmt.Errorf("run: hand out %s: %w", r.ID, err) // the lease ends by itself: nobody has the payload
	}
	p := payloadOf(r, sp)
	p.Attempt, p.RunnerToken, p.LeaseToken = l.Attempt, holder.Token, l.Token
	return p, nil
}

// payloadOf is a run's payload without an attempt.
func payloadOf(r *protocol.Run, sp *spec) *protocol.Payload {
	return &protocol.Payload{Version: protocol.PayloadVersion,
		Job: protocol.Job{RunID: r.ID, Workspace: r.Tenant, SubmittedBy: r.CreatedBy, Case: sp.Case, Harness: sp.Harness}}
}

// mayHold is nil for who created a run, and for an admin.
func mayHold(p auth.Principal, createdBy, what string) error {
	if p.Subject == createdBy || p.Admin() {
		return nil
	}
	return protocol.Forbidden("%s may not %s: %s submitted it", p.Subject, what, createdBy).WithHint("who submitted it can, and an admin")
}

// take leases a run to the runner that will hold its payload. What it is run on is its
// taker's affair: the runner offers whatever the run needs.
func (s *Service) take(ctx context.Context, r *protocol.Run, holder protocol.Runner, home Pool, sp *spec) (lease.Lease, error) {
	needs := Requirements(&sp.Case, &sp.Harness)
	bounded, cancel := context.WithTimeout(ctx, takeBound)
	defer cancel()
	l, err := s.queue.Pull(bounded, lease.PullRequest{RequestID: protocol.NewID("req_"), Runner: lease.Runner{
		ID: holder.ID, Home: home.String(), Serves: []string{r.Placement.Pool},
		Capabilities: needs.Capabilities, OS: needs.OS, Arch: needs.Arch, Job: r.ID,
	}})
	if err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return l, err
	}
	why := ""
	if x, err := s.queue.Explain(ctx, r.ID); err == nil {
		why = ": " + x.Sentence
	}
	return lease.Lease{}, protocol.Conflict("run %s cannot be handed out now%s", r.ID, why).
		WithHint("try again when nothing holds it up; GET /runs/%s says what does", r.ID)
}

// HoldsPayload says whether a runner holds a payload. When it is revoked its credential is
// dead, and the lease stands until the payload is delivered, taken back, cancelled or over:
// whoever has the payload does not hear of it, and may be at work (P3).
func (s *Service) HoldsPayload(runnerID string) bool {
	return slices.ContainsFunc(s.payloads.all(), func(one payload) bool { return one.lease.Runner == runnerID })
}

// TakeBack ends a payload whose result will not come: the caller says that nothing of it
// runs, or will. The run goes back into the queue.
func (s *Service) TakeBack(ctx context.Context, p auth.Principal, id string) error {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return err
	}
	one, out := s.payloads.of(r.ID)
	if !out {
		return protocol.Conflict("run %s is not out as a payload: it is %s", r.ID, r.Status).
			WithHint("everdict runs attempts %s shows what was handed out", r.ID)
	}
	if err := mayHold(p, one.out.By, "take back the payload of "+r.ID); err != nil {
		return err
	}
	if unit := one.out.Unit; unit != "" {
		return protocol.Conflict("run %s is out as the payload of unit %s, which may be at work", r.ID, unit).
			WithHint("cancel the run; or remove the unit on its cluster, whose word is what counts")
	}
	_, err = s.queue.GiveBack(ctx, one.lease.Ref, lease.Return{Reason: "the payload was taken back by " + p.Subject})
	if _, stale := lease.IsStale(err); stale || errors.Is(err, lease.ErrAlreadySettled) {
		err = protocol.Conflict("run %s has gone on meanwhile: its payload is not out any more", r.ID).
			WithHint("GET /runs/%s says where it is", r.ID)
	}
	if err == nil {
		s.payloads.over(one)
	}
	return err
}

// Deliver takes the result of an attempt that was handed out as a payload, from somebody
// who brings what its runner has printed. It is Finish by the runner that held it.
func (s *Service) Deliver(ctx context.Context, p auth.Principal, id string, attempt int64, result *protocol.CaseResult) (protocol.PayloadResult, error) {
	none := protocol.PayloadResult{}
	r, err := s.find(ctx, p, id)
	if err != nil {
		return none, err
	}
	// A runner that was restarted knows no more of the attempt than its run.
	if result.CaseID != r.CaseID && result.CaseID != r.ID {
		return none, protocol.BadRequest("this is the result of case %q, and run %s is of case %q", protocol.Clip(result.CaseID, 80), r.ID, r.CaseID).
			WithHint("deliver it to the run whose payload it came of")
	}
	a, err := s.cfg.Store.Attempt(ctx, r.ID, attempt)
	if errors.Is(err, store.ErrNotFound) || err == nil && a.HandedOut == nil {
		return none, protocol.Conflict("attempt %d of run %s was not handed out as a payload", attempt, r.ID).
			WithHint("the result of any other attempt comes over its runner's own connection")
	}
	if err != nil {
		return none, err
	}
	if err := mayHold(p, a.HandedOut.By, "deliver the result of "+r.ID); err != nil {
		return none, err
	}
	holder, err := s.cfg.Runners.Get(ctx, r.Tenant, a.Runner)
	if err != nil { // it is forgotten by now; the attempt is not
		holder = protocol.Runner{ID: a.Runner, Label: a.RunnerLabel, Owner: a.HandedOut.By}
	}
	ref := lease.Ref{Job: r.ID, Attempt: attempt}
	if one, out := s.payloads.of(r.ID); out && one.lease.Attempt == attempt {
		ref = one.lease.Ref
	}
	h := Holder{Runner: holder}
	s.shape(ref, h, result)
	done, err := s.finish(ctx, ref, h, result)
	return protocol.PayloadResult{RunID: r.ID, Attempt: attempt, Late: done == Late}, err
}

// keepPause is how soon a look at the payloads is repeated that the queue did not answer.
const keepPause = time.Second

// KeepPayloads renews the leases of the payloads that are out, and ends those whose time
// is over, until ctx ends.
func (s *Service) KeepPayloads(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.payloads.kicked:
		case <-timer.C:
		}
		timer.Reset(s.keep(ctx))
	}
}

// readPayloads finds what is out in the queue and in the records.
func (s *Service) readPayloads(ctx context.Context) error {
	held, err := s.queue.List(ctx)
	if err != nil {
		return fmt.Errorf("run: find the payloads that are out: %w", err)
	}
	for _, l := range held {
		a, err := s.cfg.Store.Attempt(ctx, l.Job, l.Attempt)
		if err != nil {
			return fmt.Errorf("run: find the payloads that are out: %w", err)
		}
		if a.HandedOut != nil {
			s.payloads.put(l, *a.HandedOut)
		}
	}
	return nil
}

// keep looks at every payload once, and says when the next look is due.
func (s *Service) keep(ctx context.Context) time.Duration {
	next := time.Hour
	for _, one := range s.payloads.all() {
		left := one.out.Until.Sub(s.cfg.Now())
		if left <= 0 {
			if err := s.overdue(ctx, one); err != nil && ctx.Err() == nil {
				s.log.Error("payload whose time is over could not be ended", "run", one.lease.Job, "err", err)
				next = min(next, keepPause)
			}
			continue
		}
		standings, err := s.queue.Renew(ctx, one.lease.Runner, []lease.Ref{one.lease.Ref})
		if err != nil {
			next = min(next, keepPause)
			continue
		}
		switch st := standings[0]; st.Verdict {
		case lease.Stale:
			s.payloads.over(one)
		case lease.Stop:
			next = min(next, s.stop(ctx, one, st.Reason))
		default:
			// A third, so that a look may be missed.
			next = min(next, st.TTL/3, left)
		}
	}
	return next
}

// overdue fails the run of a payload that has been out for too long. Nobody tries again:
// what is out may be running.
func (s *Service) overdue(ctx context.Context, one payload) error {
	f := &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonLost, Code: protocol.CodeUpstreamError,
		Message: fmt.Sprintf("the run was handed out as a payload to %s, and there was no result by %s", cmp.Or(one.out.Unit, one.out.By), one.out.Until),
		Hint:    "a result that is found after all is kept as late evidence: everdict runs deliver"}
	if told := s.foretold.at(one.lease.Job, one.lease.Attempt); told != nil {
		f.Message += ": " + told.Message
	}
	return s.end(ctx, one, f)
}

// stop ends the run of a payload that was cancelled, unless its runner is connected and has
// been told; it says when to look again.
func (s *Service) stop(ctx context.Context, one payload, reason string) time.Duration {
	if r, err := s.cfg.Runners.Get(ctx, one.lease.Workspace, one.lease.Runner); err == nil && r.Online {
		return keepPause
	}
	err := s.end(ctx, one, &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonCancelled,
		Code: protocol.CodeCancelled, Message: sentence("the run was cancelled", reason)})
	if err != nil {
		return keepPause
	}
	return time.Hour
}

// end settles the run of a payload without a result. Its attempt stays without one, so
// that a result that comes yet is kept as late evidence.
func (s *Service) end(ctx context.Context, one payload, f *protocol.Failure) error {
	f.RunnerID = one.lease.Runner
	result, outcome := lease.Result{Outcome: lease.Failed, Reason: f.Message}, protocol.AttemptExpired
	if f.Code == protocol.CodeCancelled {
		result.Outcome, outcome = lease.Cancelled, protocol.AttemptCancelled
	}
	err := s.queue.Settle(ctx, one.lease.Ref, result, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		return s.failed(tx, ev, outcome, f)
	}))
	if _, stale := lease.IsStale(err); stale || errors.Is(err, lease.ErrAlreadySettled) || errors.Is(err, lease.ErrUnknownJob) {
		err = nil // it has ended by itself
	}
	if err == nil {
		s.payloads.over(one)
	}
	return err
}
