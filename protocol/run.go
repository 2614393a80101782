package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Status of a run.
type Status string

// The statuses. Succeeded means that there is a result, not that it passed; a
// cancelled run is failed with the code CANCELLED. Suspended waits for a person.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusSuspended Status = "suspended"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
)

// Terminal reports whether a run in this status never changes again.
func (s Status) Terminal() bool { return s == StatusSucceeded || s == StatusFailed }

// Scheduling classes of a run.
const (
	ClassInteractive = "interactive"
	ClassBatch       = "batch"
)

// RunRequest is the body of POST /runs.
type RunRequest struct {
	Harness HarnessRef `json:"harness"`
	Case    Case       `json:"case"`
	// Runtime is where to run: a runtime id, self, self:ws, self:<runner id>,
	// auto or nothing (auto).
	Runtime string `json:"runtime,omitempty"`
	Trigger string `json:"trigger,omitempty"`
	// Priority is the scheduling class: interactive (default) or batch.
	Priority string  `json:"priority,omitempty"`
	Origin   *Origin `json:"origin,omitempty"`

	// The rest is what clients of this API may send and this coordinator does not do.
	// WebhookURL is refused: nobody would be called. The others change nothing that a run
	// is judged by; Warnings says so.
	WebhookURL string          `json:"webhookUrl,omitempty"`
	MeterUsage *bool           `json:"meterUsage,omitempty"`
	Judge      json.RawMessage `json:"judge,omitempty"`
	TeamID     string          `json:"teamId,omitempty"`
}

// Warnings are sentences about what the request asks for and does not get.
func (r *RunRequest) Warnings() []string {
	var all []string
	if r.MeterUsage != nil && *r.MeterUsage {
		all = append(all, "meterUsage: nothing is metered beside the harness; usage is what its own trace says")
	}
	if len(r.Judge) > 0 && string(r.Judge) != "null" {
		all = append(all, "judge: is not used, because no grader here asks a model")
	}
	if r.TeamID != "" {
		all = append(all, "teamId: there are no teams, and the run belongs to the workspace")
	}
	if len(r.Case.Milestones) > 0 {
		all = append(all, "case.milestones: are kept with the case, and nothing scores them")
	}
	if p := r.Case.Placement; p != nil && p.Isolation != "" {
		all = append(all, "case.placement.isolation: is kept with the case and chooses nothing; name a runtime whose isolation you know")
	}
	if r.Harness.ID == AdapterScripted {
		for _, name := range slices.Sorted(maps.Keys(r.Harness.Params)) {
			if !slices.Contains(ScriptedParams(), name) {
				all = append(all, fmt.Sprintf("harness.params.%s: the scripted agent knows %s", Clip(name, 40), strings.Join(ScriptedParams(), " and ")))
			}
		}
	}
	return all
}

// Causes are what an Origin can name.
func Causes() []string { return []string{"member", "schedule", "event", "run", "ci", "api"} }

// maxOrigin bounds what is said of where a run comes from, which each row of a list has.
const maxOrigin = 512

// Validate fills defaults and reports everything that is wrong as one
// BAD_REQUEST.
func (r *RunRequest) Validate() error {
	var k checker
	if r.Harness.Version == "" {
		r.Harness.Version = Latest
	}
	k.name("harness.id", r.Harness.ID)
	k.name("harness.version", r.Harness.Version)
	k.texts("harness.params", r.Harness.Params)
	r.Case.Normalize()
	r.Case.check(&k, "case")
	if r.Runtime != "" {
		k.name("runtime", r.Runtime)
	}
	if r.Trigger != "" {
		k.name("trigger", r.Trigger)
	}
	if r.Priority == "" {
		r.Priority = ClassInteractive
	}
	k.oneOf("priority", r.Priority, ClassInteractive, ClassBatch)
	if r.WebhookURL != "" {
		k.add("webhookUrl", "nobody would be called: webhooks are not supported, so leave it out and watch the run")
	}
	if o := r.Origin; o != nil {
		if o.Cause != "" {
			k.oneOf("origin.cause", o.Cause, Causes()...)
		}
		for path, s := range map[string]string{"actor": o.Actor, "executor": o.Executor, "scheduleId": o.ScheduleID, "eventId": o.EventID,
			"eventKind": o.EventKind, "causedByRunId": o.CausedByRunID} {
			if len(s) > maxOrigin {
				k.add("origin."+path, "want at most %d bytes, got %d", maxOrigin, len(s))
			}
		}
	}
	return k.err()
}

// Target is the placement target: Runtime, else the case's own.
func (r *RunRequest) Target() string {
	if r.Runtime != "" {
		return r.Runtime
	}
	if r.Case.Placement != nil && r.Case.Placement.Target != "" {
		return r.Case.Placement.Target
	}
	return TargetAuto
}

// Targets that are not the id of a runtime.
const (
	TargetAuto = "auto"
	// TargetSelf is all of the submitter's own runners, TargetSelfWorkspace all
	// of the workspace's.
	TargetSelf          = "self"
	TargetSelfWorkspace = "self:ws"
	// TargetSelfPrefix precedes the id of one runner.
	TargetSelfPrefix = "self:"
)

// Run is the record of a run, small enough to list by the million. Heavy
// evidence is read apart; Result is set when one run is read.
type Run struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Status Status `json:"status"`
	CaseID string `json:"caseId"`
	// Harness is as submitted, in lists without params that are large; ResolvedHarness has
	// the version that ran.
	Harness         HarnessRef  `json:"harness"`
	ResolvedHarness *HarnessRef `json:"resolvedHarness,omitempty"`
	Kind            string      `json:"kind"`
	Class           string      `json:"class"`
	Runtime         string      `json:"runtime,omitempty"`
	Trigger         string      `json:"trigger,omitempty"`
	CreatedBy       string      `json:"createdBy,omitempty"`
	Origin          *Origin     `json:"origin,omitempty"`
	Placement       *RunPlace   `json:"placement,omitempty"`
	Attempt         int64       `json:"attempt,omitempty"`
	CreatedAt       Time        `json:"createdAt"`
	UpdatedAt       Time        `json:"updatedAt"`
	StartedAt       *Time       `json:"startedAt,omitempty"`
	FinishedAt      *Time       `json:"finishedAt,omitempty"`

	Verdict      *bool         `json:"verdict,omitempty"`
	VerdictBasis *VerdictBasis `json:"verdictBasis,omitempty"`
	Usage        *Usage        `json:"usage,omitempty"`
	Scores       []Score       `json:"scores,omitempty"`
	Error        *RunError     `json:"error,omitempty"`
	Failure      *Failure      `json:"failure,omitempty"`
	Provenance   *Provenance   `json:"provenance,omitempty"`
	Suspended    *Suspension   `json:"suspended,omitempty"`

	CaseSpec *Case       `json:"caseSpec,omitempty"`
	Result   *CaseResult `json:"result,omitempty"`
}

// SubmittedRun is the answer of POST /runs: the record and its id as runId.
type SubmittedRun struct {
	RunID string `json:"runId"`
	Run
	// Warnings are RunRequest.Warnings.
	Warnings []string `json:"warnings,omitempty"`
}

// RunError is the short form of a failure that existing clients read.
type RunError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// RunPlace is where a run goes and, while it waits, why.
type RunPlace struct {
	// Where is runtime, driver or inline.
	Where  string `json:"where"`
	Target string `json:"target,omitempty"`
	// Pool is the pool that took the run; Why says in a sentence why.
	Pool string `json:"pool,omitempty"`
	Why  string `json:"why,omitempty"`
	// Runtime is the version of the registered runtime that was named, which was the
	// latest when the run was submitted.
	Runtime *RuntimeRef `json:"runtime,omitempty"`
	// BlockedReason says, while the run is queued or suspended, what it waits for, and of a running one that its runner
	// is not connected.
	BlockedReason string `json:"blockedReason,omitempty"`
	// QueueDeadline is when a run that nobody took fails as unschedulable.
	QueueDeadline *Time `json:"queueDeadline,omitempty"`
}

// Origin says what caused a run.
type Origin struct {
	Cause         string `json:"cause,omitempty"`
	Actor         string `json:"actor,omitempty"`
	Executor      string `json:"executor,omitempty"`
	ScheduleID    string `json:"scheduleId,omitempty"`
	EventID       string `json:"eventId,omitempty"`
	EventKind     string `json:"eventKind,omitempty"`
	CausedByRunID string `json:"causedByRunId,omitempty"`
}

// Suspension is what a suspended run waits for.
type Suspension struct {
	// Kind is before-start or ask.
	Kind string `json:"kind"`
	// ID names the question of an ask.
	ID       string `json:"id,omitempty"`
	Question string `json:"question,omitempty"`
	Since    Time   `json:"since"`
}

// SuspendedAsk is the Kind of a Suspension in which a running job waits for a
// person's answer; the other one is ApprovalBeforeStart.
const SuspendedAsk = "ask"

// Answered is a question that a running job asked and what a person said.
type Answered struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Approved bool   `json:"approved"`
	Comment  string `json:"comment,omitempty"`
	By       string `json:"by,omitempty"`
	At       Time   `json:"at"`
}

// Decision is the body of approve and reject, and the answer to an ask.
type Decision struct {
	Comment string `json:"comment,omitempty"`
}

// MaxComment bounds the comment of a decision, in bytes.
const MaxComment = 4000

// Validate reports a comment that is too long for a record as a BAD_REQUEST.
func (d Decision) Validate() error {
	var k checker
	if n := len(d.Comment); n > MaxComment {
		k.add("comment", "want at most %d bytes, got %d", MaxComment, n)
	}
	return k.err()
}

// VerdictBasis says which scores decided a verdict.
type VerdictBasis struct {
	Authority   string    `json:"authority"`
	Aggregation string    `json:"aggregation"`
	Deciders    []Decider `json:"deciders"`
}

// Decider is one score that decided.
type Decider struct {
	Metric   string `json:"metric"`
	GraderID string `json:"graderId"`
	Pass     bool   `json:"pass"`
}

// CasePlacement is the answer of GET /runs/{id}/placement.
type CasePlacement struct {
	// Phase is queued, blocked, starting, running or dead.
	Phase         string           `json:"phase"`
	Unit          string           `json:"unit,omitempty"`
	Node          string           `json:"node,omitempty"`
	BlockedReason string           `json:"blockedReason,omitempty"`
	QueueDeadline *Time            `json:"queueDeadline,omitempty"`
	AgeSeconds    float64          `json:"ageSeconds,omitempty"`
	Events        []PlacementEvent `json:"events"`
}

// PlacementEvent is one entry of a placement's history.
type PlacementEvent struct {
	Type    string `json:"type,omitempty"`
	Message string `json:"message"`
	At      string `json:"at,omitempty"`
}

// RunEvent is one step of a run's life.
type RunEvent struct {
	Seq     int64  `json:"seq"`
	At      Time   `json:"at"`
	Kind    string `json:"kind"`
	Attempt int64  `json:"attempt,omitempty"`
	Runner  string `json:"runner,omitempty"`
	Message string `json:"message,omitempty"`
}

// Kinds of RunEvent.
const (
	RunSubmitted  = "submitted"
	RunLeased     = "leased"
	RunStarted    = "started"
	RunRequeued   = "requeued"
	RunSuspended  = "suspended"
	RunResumed    = "resumed"
	RunCancelling = "cancelling"
	// RunRunnerRevoked: the runner that has the attempt is not trusted any more. The attempt is given up when its lease ends.
	RunRunnerRevoked = "runner_revoked"
	RunSettled       = "settled"
	RunLateResult    = "late_result"
)
