package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// spec is what a run carries out, kept beside its record.
type spec struct {
	Case    protocol.Case        `json:"case"`
	Harness protocol.HarnessSpec `json:"harness"`
	// OwnSecrets says that the harness gets the submitter's own secrets, too.
	OwnSecrets bool `json:"ownSecrets,omitempty"`
	// SubmittedBy is whose run it is. Those from before it was kept have none.
	SubmittedBy string `json:"submittedBy,omitempty"`
	// Params are those of the request where they are too large for the run's record.
	Params map[string]string `json:"params,omitempty"`
}

// recordParams is how many bytes of a harness's params a run's record has: every row of a
// list has them.
const recordParams = 4 << 10

// large says whether params are too many bytes for a run's record.
func large(params map[string]string) bool {
	n := 0
	for k, v := range params {
		n += len(k) + len(v)
	}
	return n > recordParams
}

// asSubmitted gives a run's record the params of its harness that it has no room for.
func (sp *spec) asSubmitted(r *protocol.Run) {
	if sp.Params != nil {
		r.Harness.Params = sp.Params
	}
}

// spec reads back what Submit kept of a run.
func (s *Service) spec(ctx context.Context, runID string) (spec, error) {
	var sp spec
	doc, err := s.cfg.Store.RunSpec(ctx, runID)
	if err == nil {
		err = json.Unmarshal(doc, &sp)
	}
	if err != nil {
		return sp, fmt.Errorf("run: read the spec of %s: %w", runID, err)
	}
	return sp, nil
}

// Submit accepts a run. When it returns, the record and its job are on the disk in
// one transaction (P1). A *protocol.Problem says what is wrong with the request;
// nothing was changed then (P15).
func (s *Service) Submit(ctx context.Context, p auth.Principal, req *protocol.RunRequest) (protocol.Run, error) {
	if err := req.Validate(); err != nil {
		return protocol.Run{}, err
	}
	if err := req.Case.ValidateGraders(); err != nil {
		return protocol.Run{}, err
	}
	h, err := s.cfg.Registry.For(p.Subject).Resolve(ctx, p.Workspace, req.Harness)
	if err != nil {
		return protocol.Run{}, err
	}
	own, err := s.checkSecrets(ctx, p, &h)
	if err != nil {
		return protocol.Run{}, err
	}
	required := Requirements(&req.Case, &h)
	need := needs{Requirements: required, sealed: noSecrets(&h)}
	if n := req.Case.Network; n != nil {
		need.network = n.Mode
	}
	to, err := s.route(ctx, p, req.Target(), need)
	if err != nil {
		return protocol.Run{}, err
	}
	run := s.record(p, req, &h, to)
	sp := spec{Case: req.Case, Harness: h, OwnSecrets: own, SubmittedBy: p.Subject}
	if large(run.Harness.Params) {
		sp.Params, run.Harness.Params = run.Harness.Params, nil
	}
	doc, err := encode(sp)
	if err != nil {
		return protocol.Run{}, fmt.Errorf("run: encode the spec: %w", err)
	}
	if len(doc) > maxSpec {
		return protocol.Run{}, protocol.BadRequest("the run has %d bytes as it is kept and sent to runners, the limit is %d", len(doc), maxSpec).
			WithHint("give large files by a git source or an image")
	}
	job := lease.Job{ID: run.ID, Workspace: p.Workspace, Pool: to.pool.String(), Requirements: required}
	if req.Priority == protocol.ClassBatch {
		job.Class = lease.Batch
	}
	if req.Case.Approval == protocol.ApprovalBeforeStart {
		job.Parked = "waits for approval before it starts"
	}
	err = s.queue.Enqueue(ctx, job, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		if !ev.Deadline.IsZero() {
			at := protocol.At(ev.Deadline)
			run.Placement.QueueDeadline = &at
		}
		return s.cfg.Store.InsertRun(tx, &run, doc)
	}))
	if err != nil {
		return protocol.Run{}, fmt.Errorf("run: accept %s: %w", run.ID, err)
	}
	sp.asSubmitted(&run)
	return run, nil
}

// maxSpec is the longest spec, in bytes, that leaves a job room for what is added when it
// is handed out: the values of its secrets.
const maxSpec = protocol.MaxJobBytes - 2<<20

func (s *Service) record(p auth.Principal, req *protocol.RunRequest, h *protocol.HarnessSpec, to route) protocol.Run {
	now := s.now()
	run := protocol.Run{
		ID:              protocol.NewID(protocol.RunPrefix),
		Tenant:          p.Workspace,
		Status:          protocol.StatusQueued,
		CaseID:          req.Case.ID,
		Harness:         req.Harness,
		ResolvedHarness: &protocol.HarnessRef{ID: h.ID, Version: h.Version},
		Kind:            "eval",
		Class:           req.Priority,
		Runtime:         req.Target(),
		Trigger:         req.Trigger,
		CreatedBy:       p.Subject,
		Origin:          req.Origin,
		Placement:       &protocol.RunPlace{Where: "runtime", Target: req.Target(), Pool: to.pool.String(), Why: to.why, Runtime: to.runtime},
		CreatedAt:       now,
		UpdatedAt:       now,
	}
	if run.Origin == nil {
		run.Origin = &protocol.Origin{}
	}
	if run.Origin.Cause == "" {
		run.Origin.Cause = "api"
	}
	run.Origin.Actor = p.Subject // who it was is known from the credential alone
	if req.Case.Approval == protocol.ApprovalBeforeStart {
		run.Status = protocol.StatusSuspended
		run.Suspended = &protocol.Suspension{Kind: protocol.ApprovalBeforeStart, Since: now}
	}
	return run
}
