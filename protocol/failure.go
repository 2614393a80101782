package protocol

// Stages of an attempt in which a failure can arise.
const (
	StageDispatch = "dispatch"
	StageInstall  = "install"
	StageRun      = "run"
	StageCollect  = "collect"
	StageGrade    = "grade"
)

// Failure classes (closed).
const (
	ClassInfra   = "infra"
	ClassConfig  = "config"
	ClassHarness = "harness"
	ClassAgent   = "agent"
)

// Failure reasons.
const (
	ReasonOOM           = "oom"
	ReasonTimeout       = "timeout"
	ReasonStalled       = "stalled"
	ReasonPIDsExhausted = "pids_exhausted"
	ReasonImage         = "image"
	ReasonEvicted       = "evicted"
	ReasonDiskFull      = "disk_full"
	// ReasonOverLimit is a result that is too large to be kept.
	ReasonOverLimit = "over_limit"
	// ReasonCoordinatorRestart: the coordinator was restarted and the runner did
	// not come back.
	ReasonCoordinatorRestart  = "coordinator_restart"
	ReasonLost                = "lost"
	ReasonCancelled           = "cancelled"
	ReasonRejected            = "rejected"
	ReasonUnschedulable       = "unschedulable"
	ReasonSetup               = "setup"
	ReasonSnapshot            = "snapshot"
	ReasonStart               = "start"
	ReasonUnsupportedByRunner = "unsupported_by_runner"
	ReasonDrained             = "drained"
	ReasonMalformed           = "malformed_job"
	ReasonInternal            = "internal"
	// ReasonCrashed is a harness that a signal ended which nobody of us sent, or
	// that ended without its final report.
	ReasonCrashed = "crashed"
	// ReasonAPIError is a model API that failed, in the harness's own words.
	ReasonAPIError = "api_error"
	// ReasonSecret is a secret that the harness needs and that was deleted, or
	// cannot be read, since the run was accepted.
	ReasonSecret = "secret"
	// ReasonMissing is a harness program that is not on the machine.
	ReasonMissing = "missing"
)

// Failure is the one reason why a run produced no result to judge.
type Failure struct {
	Stage  string `json:"stage"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
	// Code is the problem code that existing clients match on.
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Hint says what would help, where that is known.
	Hint string `json:"hint,omitempty"`
	// Retryable says whether the same run can succeed when it is tried again.
	Retryable bool `json:"retryable"`
	// Limit is the timer or limit that fired, if one did.
	Limit *Limit `json:"limit,omitempty"`
	// Signal and ExitCode are how the main process ended, if that is known.
	Signal   string `json:"signal,omitempty"`
	ExitCode *int   `json:"exitCode,omitempty"`
	RunnerID string `json:"runnerId,omitempty"`
	LogTail  string `json:"logTail,omitempty"`
}

// Limit names a timer or limit with its configured and its measured value.
type Limit struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Configured float64 `json:"configured"`
	Measured   float64 `json:"measured"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }
