package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// A unit is what the fleet launches on a cluster for one attempt of a run: its runner
// takes that run and no other. What the cluster says of it reaches the run here.

// Launcher says what becomes of the runs of a runtime whose runners are launched.
type Launcher interface {
	// Why is, in one sentence, what a queued run of a runtime waits for; false: this
	// runtime's runners are not launched, or nothing is known yet. Without a run it is what
	// every further one would wait for.
	Why(workspace, runtime, run string) (sentence string, ok bool)
	// Refuses says why the units of a launched runtime cannot be as it says, or do not
	// hold the network mode of a case; a *protocol.Problem.
	Refuses(workspace string, spec *protocol.RuntimeSpec, network string) error
	// Launches says whether runners are launched for a runtime.
	Launches(workspace, runtime string) bool
}

// OnLaunch sets who launches runners.
func (s *Service) OnLaunch(l Launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launcher = l
}

// launched is the launcher; nil: nothing is launched.
func (s *Service) launched() Launcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launcher
}

// toLaunched is the route of a run without a runtime to one that launches a runner for it;
// nil: there is none, or it is not to go there, because a machine that takes it is free, or
// because none of those runtimes has room and such a machine is there.
func (s *Service) toLaunched(ctx context.Context, p auth.Principal, runtimes []offer, needs needs) (*route, error) {
	launcher := s.launched()
	if launcher == nil || s.cfg.Local {
		return nil, nil
	}
	there, free, err := s.machines(ctx, p, needs)
	if free || err != nil {
		return nil, err
	}
	runs, err := s.runsIn(ctx, p.Workspace)
	if err != nil {
		return nil, err
	}
	var all, roomy []route
	for _, o := range runtimes {
		if !launcher.Launches(p.Workspace, o.spec.ID) || s.refusal(p.Workspace, &o, needs) != nil {
			continue
		}
		r := route{pool: RuntimePool(p.Workspace, o.spec.ID), runtime: &protocol.RuntimeRef{ID: o.spec.ID, Version: o.spec.Version}}
		all = append(all, r)
		most := o.spec.Limits().MaxConcurrent
		if _, stuck := launcher.Why(p.Workspace, o.spec.ID, ""); !stuck && (most == 0 || runs(r) < most) {
			roomy = append(roomy, r)
		}
	}
	switch {
	case len(roomy) > 0:
		all = roomy
	case len(all) == 0, there:
		return nil, nil
	}
	to := s.fewest(all, runs)
	to.why = fmt.Sprintf("no runtime was named, and no runner that could take it is free: runtime %s launches one", to.pool.of)
	if len(all) > 1 {
		to.why += ", of " + runtimesOf(all) + " the one with the fewest runs"
	}
	return &to, nil
}

// machines says whether runners are there, none of them launched for one run, that could
// take a run without a runtime, and whether one of these is free.
func (s *Service) machines(ctx context.Context, p auth.Principal, needs needs) (there, free bool, err error) {
	roster, err := s.cfg.Runners.Roster(ctx, p.Workspace)
	if err != nil {
		return false, false, err
	}
	ready, err := s.queue.Ready(ctx, needs.Requirements)
	if err != nil {
		return false, false, err
	}
	for _, r := range roster {
		takes := r.Runtime != "" || r.Owner == p.Subject || r.Owner == pairing.WorkspaceOwner(p.Workspace) || r.Scope == protocol.RunnerScopeWorkspace
		if !r.Online || r.Paused != "" || r.Job != "" || r.Unit != "" || !takes || slices.ContainsFunc(needs.Capabilities, func(n string) bool { return !slices.Contains(r.Capabilities, n) }) {
			continue
		}
		there = true
		if _, found := slices.BinarySearch(ready, r.ID); found {
			return true, true, nil
		}
	}
	return there, false, nil
}

// Unplaced ends an attempt of a queued run that no runner came for, because of what
// the cluster said. before is the epoch of the attempt before it. A failure that a
// retry can help brings the run back into the queue, as often as it may be tried. A
// run that has gone on meanwhile is left alone, which is no error.
func (s *Service) Unplaced(ctx context.Context, run string, before int64, f protocol.Failure) error {
	_, err := s.queue.Unplaced(ctx, run, before, lease.Unplaced{Reason: f.Message, Final: !f.Retryable}, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		at := protocol.At(ev.At)
		err := s.cfg.Store.PutAttempt(tx, run, protocol.Attempt{Attempt: ev.Attempt, Outcome: protocol.AttemptReleased, Message: f.Message, EndedAt: &at})
		if err != nil || ev.Kind != lease.JobSettled {
			return err
		}
		last := spent(f, ev)
		err = s.cfg.Store.UpdateRun(tx, run, func(r *protocol.Run) error {
			fail(r, &last, at)
			return nil
		})
		if err != nil {
			return err
		}
		return s.event(tx, ev, protocol.RunSettled, last.Message)
	}))
	if lease.Moved(err) {
		return nil
	}
	return err
}

// spent is the failure that ended the last attempt of a run.
func spent(f protocol.Failure, ev *lease.Event) protocol.Failure {
	if ev.Outcome != lease.Exhausted {
		return f
	}
	f.Message = fmt.Sprintf("%s; attempts lost: %d, the limit is %d", f.Message, ev.Failures, ev.MaxAttempts)
	if f.Limit == nil {
		f.Limit = &protocol.Limit{Name: "maxAttempts", Unit: "attempts", Configured: float64(ev.MaxAttempts), Measured: float64(ev.Failures)}
	}
	return f
}

// Ended ends the attempt that holds a lease, because the cluster says that its process
// is over: nothing of it runs any more. A result that the runner has sent before goes
// before this.
func (s *Service) Ended(ctx context.Context, l lease.Lease, f protocol.Failure) error {
	h := Holder{Runner: protocol.Runner{ID: l.Runner}}
	if r, err := s.cfg.Runners.Get(ctx, l.Workspace, l.Runner); err == nil {
		h.Runner = r
	}
	f.RunnerID = l.Runner
	if !l.Started {
		f.Stage = protocol.StageDispatch
	}
	result := &protocol.CaseResult{
		EvidenceVersion: protocol.EvidenceVersion, Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt},
		Trace: []protocol.TraceEvent{}, Scores: []protocol.Score{}, Failure: &f, Provenance: h.provenance(l.Attempt),
	}
	bound(result)
	_, err := s.finish(ctx, l.Ref, h, result, lease.Proven()) // also when the runner was revoked meanwhile
	return err
}

// Adopt takes the result that the holder of a lease could not deliver and has left in its
// unit's output; the unit is over. It is Finish by that holder.
func (s *Service) Adopt(ctx context.Context, l lease.Lease, result []byte) error {
	r, err := s.cfg.Runners.Get(ctx, l.Workspace, l.Runner)
	if err != nil {
		return err
	}
	done, err := s.Finish(ctx, l.Ref, Holder{Runner: r}, result)
	if err == nil && done == Late {
		err = errLate
	}
	return err
}

// Recover keeps a result that a unit has left in its output as late evidence of an attempt
// (P2), if its runner had that and no result of it came. Only then output is asked for one;
// nil: there is none.
func (s *Service) Recover(ctx context.Context, workspace, run string, attempt int64, unit string, output func(context.Context) []byte) error {
	a, err := s.cfg.Store.Attempt(ctx, run, attempt)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || a.RunnerLabel != unit || a.Result != nil {
		return err
	}
	result := output(ctx)
	if result == nil {
		return nil
	}
	r, err := s.cfg.Runners.Get(ctx, workspace, a.Runner)
	if err != nil { // it is forgotten by now; the attempt is not
		r = protocol.Runner{ID: a.Runner, Label: a.RunnerLabel}
	}
	_, err = s.Finish(ctx, lease.Ref{Job: run, Attempt: attempt}, Holder{Runner: r}, result)
	return err
}

// errLate: the result is kept, and has ended nothing.
var errLate = protocol.Conflict("the result came too late: its runner was revoked, or the attempt is over")

// Foretell says why the lease of an attempt will end without a result, where the
// cluster does not know whether its process is over: then the lease has to run out. A
// failure without a reason takes that back.
func (s *Service) Foretell(run string, attempt int64, f protocol.Failure) {
	s.foretold.put(run, attempt, f)
}

// foretold are the failures that leases which run out will have had, by run.
type foretold struct {
	mu   sync.Mutex
	runs map[string]foretelling
}

type foretelling struct {
	attempt int64
	failure protocol.Failure
}

func (f *foretold) put(run string, attempt int64, failure protocol.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = map[string]foretelling{}
	}
	if failure.Reason == "" {
		delete(f.runs, run)
		return
	}
	f.runs[run] = foretelling{attempt, failure}
}

// of is what was foretold of the attempt that an event ends by the coordinator's clock;
// nil: nothing.
func (f *foretold) of(ev *lease.Event) *protocol.Failure {
	if ev.Cause != lease.CauseExpired && ev.Cause != lease.CauseRestart {
		return nil
	}
	failure := f.at(ev.Job, ev.Attempt)
	if failure != nil {
		failure.RunnerID = ev.Runner
	}
	return failure
}

// at is what was foretold of an attempt; nil: nothing.
func (f *foretold) at(run string, attempt int64) *protocol.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	told, ok := f.runs[run]
	if !ok || told.attempt != attempt {
		return nil
	}
	failure := told.failure
	return &failure
}

// over forgets what concerned an attempt that is over.
func (f *foretold) over(ev *lease.Event) {
	if ev.Kind != lease.JobSettled && ev.Kind != lease.JobRequeued {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.runs, ev.Job)
}

// Declared is what the case and the harness of a run declare: the image, the resources
// (the case wins), the network's mode, and how long the harness may take.
func (s *Service) Declared(ctx context.Context, run string) (image string, r protocol.Resources, network string, timeout time.Duration, err error) {
	sp, err := s.spec(ctx, run)
	if err != nil {
		return "", r, "", 0, err
	}
	for _, d := range []*protocol.Resources{sp.Harness.Resources, sp.Case.Resources} {
		if d == nil {
			continue
		}
		r.CPU, r.MemoryMB, r.GPU = cmp.Or(d.CPU, r.CPU), cmp.Or(d.MemoryMB, r.MemoryMB), cmp.Or(d.GPU, r.GPU)
	}
	if n := sp.Case.Network; n != nil {
		network = n.Mode
	}
	return cmp.Or(sp.Case.Image, sp.Harness.Image), r, network, time.Duration(sp.Case.TimeoutSec) * time.Second, nil
}
