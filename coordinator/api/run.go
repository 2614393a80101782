package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Runs is what the API needs of runs. The API has checked the principal's role
// and decoded the request; whether it is valid, what it names exists, is the
// principal's to see and is in the right state is for Runs to say, with a
// *protocol.Problem. A run of another workspace is a 404. Any other error is a 500
// whose text stays in the log.
type Runs interface {
	// Submit accepts a run. When it returns, the run is on the disk.
	Submit(ctx context.Context, p auth.Principal, req *protocol.RunRequest) (protocol.Run, error)
	// Get is one run with Result and CaseSpec.
	Get(ctx context.Context, p auth.Principal, id string) (protocol.Run, error)
	// List is a page of p's workspace, whatever f.Workspace says, and the
	// cursor of the next page, empty at the end.
	List(ctx context.Context, p auth.Principal, f store.RunFilter) ([]protocol.Run, string, error)
	// Count is how many runs f selects, or that there are more than is cheap to count.
	Count(ctx context.Context, p auth.Principal, f store.RunFilter) (n int64, more bool, err error)
	// Cancel, Approve and Reject answer the run as it is then.
	Cancel(ctx context.Context, p auth.Principal, id string) (protocol.Run, error)
	Approve(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error)
	Reject(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error)
	// Again submits a new run with the request of one that is over.
	Again(ctx context.Context, p auth.Principal, id string) (protocol.Run, error)
	// Summary is p's workspace now, and its last day.
	Summary(ctx context.Context, p auth.Principal) (protocol.Summary, error)
	// HandOut makes a payload of a queued run's next attempt, TakeBack ends one, and
	// Deliver takes the result that somebody brings.
	HandOut(ctx context.Context, p auth.Principal, id string, req protocol.PayloadRequest) (*protocol.Payload, error)
	TakeBack(ctx context.Context, p auth.Principal, id string) error
	Deliver(ctx context.Context, p auth.Principal, id string, attempt int64, result *protocol.CaseResult) (protocol.PayloadResult, error)
	Events(ctx context.Context, p auth.Principal, id string) ([]protocol.RunEvent, error)
	Attempts(ctx context.Context, p auth.Principal, id string) ([]protocol.Attempt, error)
	Placement(ctx context.Context, p auth.Principal, id string) (protocol.PlacementView, error)

	// Logs opens a run's log as bytes. The view says Status, Found and Bytes,
	// the length of the whole; its Text is empty. body is nil if not Found.
	Logs(ctx context.Context, p auth.Principal, id string, q protocol.LogQuery) (body io.ReadCloser, view protocol.LogView, err error)
	// SearchLog looks for a text in a run's log.
	SearchLog(ctx context.Context, p auth.Principal, id string, q protocol.LogSearch) (protocol.LogMatches, error)
	// Trace is at most limit events after cursor, which is empty at the start.
	Trace(ctx context.Context, p auth.Principal, id string, q protocol.TraceQuery) (protocol.TracePage, error)
	// Diff opens what the run changed; a run without a snapshot is a 404.
	Diff(ctx context.Context, p auth.Principal, id string, attempt int64) (io.ReadCloser, error)
	// Live sends what happens to a run, from q.After on, as it happens, and
	// ends with an event of the kind end. The channel closes after that, when
	// ctx ends, or when the reader is too slow: it then resumes by the last id.
	Live(ctx context.Context, p auth.Principal, id string, q protocol.LiveQuery) (<-chan protocol.LiveEvent, error)

	// Follow sends what changes in the workspace, from after on, the id of the last
	// event that was seen; empty: from now on. The channel closes when ctx ends.
	Follow(ctx context.Context, p auth.Principal, after string) (<-chan protocol.FeedEvent, error)

	// Pools are the pools of the workspace's registered runtimes, by id.
	Pools(ctx context.Context, p auth.Principal) ([]protocol.Pool, error)
}

// runID is the path of a run.
type runID struct {
	ID string `path:"id" description:"the run's id"`
}

// runAttempt is the path of an attempt below its run.
type runAttempt struct {
	Attempt int64 `path:"attempt" description:"number of the attempt"`
}

// runsQuery is the query of GET /runs, for its description; listRuns reads it.
type runsQuery struct {
	Status       string `query:"status" enum:"queued,running,suspended,succeeded,failed"`
	Verdict      bool   `query:"verdict" description:"runs that passed, or that did not"`
	Harness      string `query:"harness" description:"id, or id@version"`
	Runtime      string `query:"runtime"`
	Runner       string `query:"runner" description:"id of the runner that took the run"`
	Cause        string `query:"cause" enum:"member,schedule,event,run,ci,api" description:"what caused it (origin.cause)"`
	Trigger      string `query:"trigger"`
	FailureClass string `query:"failureClass" enum:"infra,config,harness,agent"`
	Class        string `query:"class" enum:"interactive,batch" description:"the scheduling class"`
	ID           string `query:"id" description:"the beginning of an id"`
	Count        bool   `query:"count" description:"say in the header X-Everdict-Total how many there are, as far as that is cheap: 1234, or 20000+"`
	Since        string `query:"since" description:"accepted at or after: RFC 3339, or a duration before now such as 24h"`
	Until        string `query:"until" description:"accepted before: as since"`
	Limit        int    `query:"limit" minimum:"1" maximum:"1000" description:"size of a page; without it, up to 1000"`
	Cursor       string `query:"cursor" description:"where the page before ended, from its Link header"`
	Offset       int    `query:"offset" description:"rows to pass over; a cursor is faster and stable"`
}

func (s *Server) runRoutes() []route {
	return []route{
		submit("/runs", "submitRun", "Submit a run", (*Server).submitRun).action(auth.RunsSubmit),
		get("/runs", "listRuns", "List runs, newest first", (*Server).listRuns).action(auth.RunsRead).with(runsQuery{}),
		get("/runs/{id}", "getRun", "Read one run", (*Server).getRun).action(auth.RunsRead).with(runID{}),
		postEmpty("/runs/{id}/cancel", "cancelRun", "Cancel a run", (*Server).cancelRun).action(auth.RunsSubmit).with(runID{}),
		postOptional("/runs/{id}/approve", "approveRun", "Let a suspended run go on", (*Server).approveRun).action(auth.RunsSubmit).with(runID{}),
		postOptional("/runs/{id}/reject", "rejectRun", "Refuse what a suspended run asks for", (*Server).rejectRun).action(auth.RunsSubmit).with(runID{}),
		answering(http.MethodPost, "/runs/{id}/retry", "retryRun", "Submit the request of a run that is over once more, as a new run", http.StatusAccepted, (*Server).retryRun).
			action(auth.RunsSubmit).with(runID{}),
		get("/summary", "getSummary", "The workspace now, why runs wait, and how those of the last day ended", (*Server).summary).action(auth.RunsRead),
		postOptional("/runs/{id}/payload", "handOutRun", "Hand the next attempt of a queued run out as a file, for job-runner", (*Server).handOutRun).action(auth.RunsSubmit).with(runID{}),
		remove("/runs/{id}/payload", "takeBackRun", "Take a payload back that nobody runs, or will", (*Server).takeBackRun).action(auth.RunsSubmit).with(runID{}),
		post("/runs/{id}/attempts/{attempt}/result", "deliverRun", "Bring the result of an attempt that was handed out as a payload", (*Server).deliverRun).action(auth.RunsSubmit).with(runID{}, runAttempt{}),
		get("/runs/{id}/events", "listRunEvents", "The steps of a run's life", (*Server).runEvents).action(auth.RunsRead).with(runID{}),
		get("/runs/{id}/attempts", "listRunAttempts", "Each attempt, with late evidence of superseded ones", (*Server).runAttempts).action(auth.RunsRead).with(runID{}),
		get("/runs/{id}/placement", "getRunPlacement", "Where a run is, and why it waits", (*Server).runPlacement).action(auth.RunsRead).with(runID{}),
	}
}

func (s *Server) submitRun(c *call, req *protocol.RunRequest) (protocol.SubmittedRun, error) {
	run, err := s.cfg.Runs.Submit(c.r.Context(), c.principal, req)
	if err != nil {
		return protocol.SubmittedRun{}, err
	}
	return protocol.SubmittedRun{RunID: run.ID, Run: run, Warnings: req.Warnings()}, nil
}

func (s *Server) listRuns(c *call) ([]protocol.Run, error) {
	q := c.query()
	f := store.RunFilter{
		Workspace:    c.principal.Workspace,
		Status:       protocol.Status(q.oneOf("status", "queued", "running", "suspended", "succeeded", "failed")),
		Verdict:      q.bool("verdict"),
		Harness:      q.name("harness"),
		Runtime:      q.name("runtime"),
		Runner:       q.name("runner"),
		Cause:        q.oneOf("cause", protocol.Causes()...),
		Trigger:      q.name("trigger"),
		FailureClass: q.oneOf("failureClass", protocol.ClassInfra, protocol.ClassConfig, protocol.ClassHarness, protocol.ClassAgent),
		Class:        q.oneOf("class", protocol.ClassInteractive, protocol.ClassBatch),
		ID:           q.name("id"),
		Since:        q.instant("since", s.cfg.Now()),
		Until:        q.instant("until", s.cfg.Now()),
		Limit:        int(q.number("limit", 1, protocol.MaxListed)),
		Cursor:       q.get("cursor"),
	}
	offset := int(q.number("offset", 0, protocol.MaxListed))
	count := q.bool("count")
	if err := q.err(); err != nil {
		return nil, err
	}
	if q.get("scorecardId") != "" {
		return []protocol.Run{}, nil // no run here belongs to one
	}
	if offset > 0 {
		return s.runsAt(c, f, offset)
	}
	runs, next, err := s.cfg.Runs.List(c.r.Context(), c.principal, f)
	if err != nil {
		return nil, badCursor(err)
	}
	c.next(next)
	if count != nil && *count {
		n, more, err := s.cfg.Runs.Count(c.r.Context(), c.principal, f)
		if err != nil {
			return nil, err
		}
		total := strconv.FormatInt(n, 10)
		if more {
			total += "+"
		}
		c.w.Header().Set(totalHeader, total)
	}
	return runs, nil
}

// runsAt serves clients that page by offset, as far as one page reaches.
func (s *Server) runsAt(c *call, f store.RunFilter, offset int) ([]protocol.Run, error) {
	if f.Limit == 0 {
		f.Limit = protocol.MaxListed - offset
	}
	f.Limit += offset
	if f.Limit > protocol.MaxListed {
		return nil, protocol.BadRequest("offset: offset and limit reach past row %d", protocol.MaxListed).
			WithHint("follow the Link header, which pages by cursor")
	}
	runs, _, err := s.cfg.Runs.List(c.r.Context(), c.principal, f)
	if err != nil {
		return nil, badCursor(err)
	}
	return runs[min(offset, len(runs)):], nil
}

func badCursor(err error) error {
	if errors.Is(err, store.ErrBadCursor) {
		return protocol.BadRequest("cursor: not one that this list has given").WithHint("leave it out to begin at the newest")
	}
	return err
}

func (s *Server) getRun(c *call) (protocol.Run, error) {
	return s.cfg.Runs.Get(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) cancelRun(c *call) (protocol.Run, error) {
	return s.cfg.Runs.Cancel(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) retryRun(c *call) (protocol.SubmittedRun, error) {
	run, err := s.cfg.Runs.Again(c.r.Context(), c.principal, c.path("id"))
	return protocol.SubmittedRun{RunID: run.ID, Run: run}, err
}

func (s *Server) summary(c *call) (protocol.Summary, error) {
	return s.cfg.Runs.Summary(c.r.Context(), c.principal)
}

func (s *Server) approveRun(c *call, d *protocol.Decision) (protocol.Run, error) {
	return s.cfg.Runs.Approve(c.r.Context(), c.principal, c.path("id"), *d)
}

func (s *Server) rejectRun(c *call, d *protocol.Decision) (protocol.Run, error) {
	return s.cfg.Runs.Reject(c.r.Context(), c.principal, c.path("id"), *d)
}

func (s *Server) runEvents(c *call) ([]protocol.RunEvent, error) {
	return s.cfg.Runs.Events(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) runAttempts(c *call) ([]protocol.Attempt, error) {
	return s.cfg.Runs.Attempts(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) runPlacement(c *call) (protocol.PlacementView, error) {
	return s.cfg.Runs.Placement(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) handOutRun(c *call, req *protocol.PayloadRequest) (*protocol.Payload, error) {
	p, err := s.cfg.Runs.HandOut(c.r.Context(), c.principal, c.path("id"), *req)
	if err == nil {
		c.w.Header().Set("Cache-Control", "no-store")
	}
	return p, err
}

func (s *Server) takeBackRun(c *call) error {
	return s.cfg.Runs.TakeBack(c.r.Context(), c.principal, c.path("id"))
}

func (s *Server) deliverRun(c *call, d *protocol.PayloadDelivery) (protocol.PayloadResult, error) {
	attempt, err := strconv.ParseInt(c.path("attempt"), 10, 64)
	if err != nil || attempt < 1 {
		return protocol.PayloadResult{}, protocol.BadRequest("attempt: want a number from 1 on, got %q", protocol.Clip(c.path("attempt"), 40))
	}
	result, err := d.CaseResult()
	if err != nil {
		return protocol.PayloadResult{}, err
	}
	return s.cfg.Runs.Deliver(c.r.Context(), c.principal, c.path("id"), attempt, result)
}
