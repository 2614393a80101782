package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// find is the record of a run in the principal's workspace.
func (s *Service) find(ctx context.Context, p auth.Principal, id string) (*protocol.Run, error) {
	r, err := s.cfg.Store.Run(ctx, p.Workspace, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, protocol.NotFound("no run %q in workspace %s", protocol.Clip(id, 80), p.Workspace).
			WithHint("GET /runs lists the runs of this workspace")
	}
	return r, err
}

// List is a page of runs, newest first, and the cursor of the next.
func (s *Service) List(ctx context.Context, p auth.Principal, f store.RunFilter) ([]protocol.Run, string, error) {
	f.Workspace = p.Workspace
	return s.cfg.Store.Runs(ctx, f)
}

// Count is how many runs a filter selects; more says that there are more.
func (s *Service) Count(ctx context.Context, p auth.Principal, f store.RunFilter) (n int64, more bool, err error) {
	f.Workspace = p.Workspace
	return s.cfg.Store.CountRuns(ctx, f)
}

// Get is one run with its case, its result and, while it waits, the reason why.
func (s *Service) Get(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.Run{}, err
	}
	sp, err := s.spec(ctx, r.ID)
	if err != nil {
		return protocol.Run{}, err
	}
	r.CaseSpec = &sp.Case
	sp.asSubmitted(r)
	if !r.Status.Terminal() {
		return *r, s.explain(ctx, r)
	}
	if r.Attempt > 0 {
		r.Result, err = s.result(ctx, r)
	}
	if r.Result == nil {
		r.Result = synthesized(r)
	}
	return *r, err
}

// explain adds what a run waits for, as the matcher that leases says it (P9).
func (s *Service) explain(ctx context.Context, r *protocol.Run) error {
	x, err := s.queue.Explain(ctx, r.ID)
	if errors.Is(err, lease.ErrUnknownJob) {
		return nil
	}
	if err != nil || x.State == lease.Settled || r.Placement == nil {
		return err
	}
	r.Placement.BlockedReason, r.Placement.QueueDeadline = "", nil
	if x.Why == lease.WhyRunning {
		return nil
	}
	r.Placement.BlockedReason = s.why(ctx, r, x)
	if !x.Deadline.IsZero() {
		at := protocol.At(x.Deadline)
		r.Placement.QueueDeadline = &at
	}
	return nil
}

// why is the matcher's sentence. Where it says that nobody serves the pool, whom
// that means is said in the words of the target that was named; what it says of the
// runners of a runtime names the runtime.
func (s *Service) why(ctx context.Context, r *protocol.Run, x lease.Explanation) string {
	if x.Why != lease.WhyNoRunner {
		return s.ofRuntime(r, x)
	}
	var who string
	target := r.Runtime
	if of, ok := runtimeOf(r); ok {
		target = of // of those that were named, or of all, the one that it went to
	}
	switch {
	case target == protocol.TargetAuto:
		who = "no runner that takes runs of " + r.CreatedBy + " is connected" + s.nobodyOf(ctx, r.Tenant)
	case target == protocol.TargetSelf:
		who = "no runner of " + r.CreatedBy + " is connected"
	case target == protocol.TargetSelfWorkspace:
		who = "no runner of the workspace is connected"
	case strings.HasPrefix(target, protocol.TargetSelfPrefix):
		who = "runner " + runnerID(target) + " is not connected"
		runner, err := s.cfg.Runners.Get(ctx, r.Tenant, runnerID(target))
		var gone *protocol.Problem
		switch {
		case err == nil && runner.Online:
			who = fmt.Sprintf("runner %s (%s) takes its owner's runs alone now, which can be changed on that machine", runner.ID, runner.Label)
		case err == nil:
			who = fmt.Sprintf("runner %s (%s) is not connected", runner.ID, runner.Label)
		case errors.As(err, &gone):
			who = "runner " + runnerID(target) + ", which the run names, was revoked and cannot come back: cancel the run"
		}
	default:
		who = s.noRunner(ctx, r.Tenant, target, r.ID)
	}
	return fmt.Sprintf("%s; settles as unschedulable at %s", who, x.Deadline.UTC().Format(time.RFC3339))
}

// nobodyOf says that the registered runtimes have no runner either.
func (s *Service) nobodyOf(ctx context.Context, workspace string) string {
	specs, err := s.cfg.Runtimes.All(ctx, workspace)
	if err != nil || len(specs) == 0 {
		return ""
	}
	ids := make([]string, len(specs))
	for i := range specs {
		ids[i] = specs[i].ID
	}
	return ", and none of runtime " + protocol.Clip(strings.Join(ids, ", "), 200)
}

// noRunner says that the pool of a runtime has no runner for a run, and how that
// changes.
func (s *Service) noRunner(ctx context.Context, workspace, runtime, run string) string {
	if launcher := s.launched(); launcher != nil {
		if sentence, ok := launcher.Why(workspace, runtime, run); ok {
			return "runtime " + runtime + ": " + sentence
		}
		if launcher.Launches(workspace, runtime) {
			return "runtime " + runtime + ": a runner is launched for it when those before it have theirs"
		}
	}
	if _, err := s.cfg.Runtimes.Latest(ctx, workspace, runtime); err != nil {
		return "no runner of runtime " + runtime + " is connected"
	}
	return fmt.Sprintf("runtime %s has no runner online: start some with everdict runner --pool-token, with a token of everdict pools token create --runtime %[1]s", runtime)
}

// ofRuntime is the matcher's sentence with the runtime that it is about.
func (s *Service) ofRuntime(r *protocol.Run, x lease.Explanation) string {
	switch x.Why {
	case lease.WhyCapabilities, lease.WhyPlatform, lease.WhyTooLarge, lease.WhyPaused, lease.WhySlots, lease.WhyMemory, lease.WhyCPU, lease.WhyBehind, lease.WhyBusy:
	default:
		return x.Sentence
	}
	if of, ok := runtimeOf(r); ok {
		return "runtime " + of + ": " + x.Sentence
	}
	return x.Sentence
}

// runtimeOf is the runtime in whose pool a run is.
func runtimeOf(r *protocol.Run) (string, bool) {
	if r.Placement == nil {
		return "", false
	}
	p, ok := parsePool(r.Placement.Pool)
	return p.of, ok && p.kind == poolRuntime
}

// synthesized is the result of a run that never produced one, in the shape that
// clients of a failed run expect.
func synthesized(r *protocol.Run) *protocol.CaseResult {
	f := r.Failure
	if f == nil {
		return nil
	}
	return &protocol.CaseResult{
		CaseID: r.CaseID, Harness: r.Harness.String(), EvidenceVersion: protocol.EvidenceVersion,
		Trace:    []protocol.TraceEvent{{Kind: protocol.EventError, T: float64(r.UpdatedAt.UnixMilli()), Message: f.Message}},
		Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt},
		Scores: []protocol.Score{protocol.Unmeasured(f.Stage, "error", protocol.ReasonMissingEvidence, f.Retryable,
			"["+f.Class+"] "+f.Message)},
		Failure: f, Provenance: r.Provenance,
	}
}

// Events is the run's life so far.
func (s *Service) Events(ctx context.Context, p auth.Principal, id string) ([]protocol.RunEvent, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.RunEvents(ctx, r.ID)
}

// Attempts are the run's attempts with their results, late ones included.
func (s *Service) Attempts(ctx context.Context, p auth.Principal, id string) ([]protocol.Attempt, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.Attempts(ctx, r.ID)
}

// Placement says where a run is and why it waits.
func (s *Service) Placement(ctx context.Context, p auth.Principal, id string) (protocol.PlacementView, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.PlacementView{}, err
	}
	view := protocol.PlacementView{Status: r.Status, Found: true, Placement: &protocol.CasePlacement{
		Phase: "dead", Events: []protocol.PlacementEvent{}, AgeSeconds: s.cfg.Now().Sub(r.CreatedAt.Time).Round(time.Millisecond).Seconds(),
	}}
	pl := view.Placement
	if r.Provenance != nil {
		pl.Unit, pl.Node = r.Provenance.Runner, r.Provenance.Hostname
	}
	if !r.Status.Terminal() {
		if err := s.placementOf(ctx, r, pl); err != nil {
			return protocol.PlacementView{}, err
		}
	}
	events, err := s.cfg.Store.RunEvents(ctx, r.ID)
	if err != nil {
		return protocol.PlacementView{}, err
	}
	for _, e := range events {
		message := e.Message
		if message == "" {
			message = e.Kind
		}
		pl.Events = append(pl.Events, protocol.PlacementEvent{Type: e.Kind, Message: message, At: e.At.String()})
	}
	return view, nil
}

func (s *Service) placementOf(ctx context.Context, r *protocol.Run, pl *protocol.CasePlacement) error {
	x, err := s.queue.Explain(ctx, r.ID)
	if errors.Is(err, lease.ErrUnknownJob) {
		return nil
	}
	if err != nil {
		return err
	}
	switch x.Why {
	case lease.WhyStarting:
		pl.Phase, pl.Unit = "starting", x.Runner
	case lease.WhyRunning, lease.WhyStopping:
		pl.Phase, pl.Unit = "running", x.Runner
	case lease.WhyAway, lease.WhyFenced:
		pl.Phase, pl.Unit, pl.BlockedReason = "running", x.Runner, x.Sentence
		if r.Status == protocol.StatusQueued {
			pl.Phase = "starting"
		}
	case lease.WhyParked, lease.WhyNoRunner, lease.WhyCapabilities, lease.WhyPlatform, lease.WhyTooLarge, lease.WhyPaused:
		pl.Phase, pl.BlockedReason = "blocked", s.why(ctx, r, x)
	case lease.WhySettled:
	default:
		pl.Phase, pl.BlockedReason = "queued", s.why(ctx, r, x)
	}
	if !x.Deadline.IsZero() {
		at := protocol.At(x.Deadline)
		pl.QueueDeadline = &at
	}
	return nil
}
