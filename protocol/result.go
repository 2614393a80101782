package protocol

import "encoding/json"

// EvidenceVersion is the version of the CaseResult shape that this project
// writes.
const EvidenceVersion = 2

// CaseResult is what an attempt produced. The runner sends it without Trace and
// with a Snapshot whose Diff is empty: trace, log and diff travel as evidence
// channels and are joined when the run is read.
type CaseResult struct {
	CaseID          string       `json:"caseId"`
	Harness         string       `json:"harness"`
	EvidenceVersion int          `json:"evidenceVersion"`
	Trial           *int         `json:"trial,omitempty"`
	Trace           []TraceEvent `json:"trace"`
	// TraceTruncated says that Trace holds only the beginning: the whole is at
	// /runs/{id}/trace.
	TraceTruncated bool        `json:"traceTruncated,omitempty"`
	Snapshot       Snapshot    `json:"snapshot"`
	Scores         []Score     `json:"scores"`
	Usage          *Usage      `json:"usage,omitempty"`
	Failure        *Failure    `json:"failure,omitempty"`
	Provenance     *Provenance `json:"provenance,omitempty"`
	Execution      *Execution  `json:"execution,omitempty"`
	Timing         *Timing     `json:"timing,omitempty"`
	Evidence       *Evidence   `json:"evidence,omitempty"`
}

// Snapshot is the state of the environment after the harness ended. Kind repo:
// Diff (against the baseline, applies with git apply), ChangedFiles, HeadSHA,
// Omitted. Kind prompt: Output.
type Snapshot struct {
	Kind string `json:"kind"`
	Diff string `json:"diff,omitzero"`
	// DiffBytes is the size of the whole diff; DiffTruncated says that Diff
	// holds only its beginning: the whole is at /runs/{id}/diff.
	DiffBytes     int64         `json:"diffBytes,omitempty"`
	DiffTruncated bool          `json:"diffTruncated,omitempty"`
	ChangedFiles  []string      `json:"changedFiles,omitzero"`
	HeadSHA       string        `json:"headSha,omitempty"`
	Baseline      string        `json:"baseline,omitempty"`
	Omitted       []OmittedFile `json:"omitted,omitempty"`
	Output        string        `json:"output,omitzero"`
	// Redacted says that secrets were taken out of what the diff carries, or left
	// out with their files: it applies, but to what the workspace was without them.
	Redacted bool `json:"redacted,omitempty"`
}

// MarshalJSON writes what a snapshot of its kind always has, be it empty: clients
// read it without asking.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot
	switch s.Kind {
	case EnvRepo:
		if s.ChangedFiles == nil {
			s.ChangedFiles = []string{}
		}
		return json.Marshal(struct {
			plain
			Diff    string `json:"diff"`
			HeadSHA string `json:"headSha"`
		}{plain(s), s.Diff, s.HeadSHA})
	case EnvPrompt:
		return json.Marshal(struct {
			plain
			Output string `json:"output"`
		}{plain(s), s.Output})
	}
	return json.Marshal(plain(s))
}

// OmittedFile is something in the workspace that the diff does not carry. Reason is
// over_limit, special, unreadable, nested_git, ignored (by the baseline's rules),
// unportable_name, too_deep, secret (a name or a binary file that holds a secret),
// or list_cut (the rest of a list that is too long).
type OmittedFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// Provenance says where a run ran and whose logins it used. The coordinator
// stamps it.
type Provenance struct {
	// RanOn is self-hosted, managed or local.
	RanOn       string `json:"ranOn"`
	Runner      string `json:"runner,omitempty"`
	RunnerLabel string `json:"runnerLabel,omitempty"`
	Hostname    string `json:"hostname,omitempty"`
	By          string `json:"by,omitempty"`
	// Attestation is managed or self_reported.
	Attestation string `json:"attestation,omitempty"`
	Attempt     int64  `json:"attempt,omitempty"`
}

// Execution says what enclosed the run.
type Execution struct {
	OS string `json:"os"`
	// OSResolved is declared or defaulted.
	OSResolved string `json:"osResolved"`
	Arch       string `json:"arch,omitempty"`
	Driver     string `json:"driver,omitempty"`
	// Enclosure is how the process tree is held: cgroup2, subreaper, container.
	Enclosure string `json:"enclosure,omitempty"`
	// ActsAsYou says that the job ran as the runner's own user, with its logins.
	ActsAsYou bool `json:"actsAsYou,omitempty"`
	// Image is what the job ran in, ImageDigest what the engine resolved it to.
	Image       string `json:"image,omitempty"`
	ImageDigest string `json:"imageDigest,omitempty"`
	Platform    string `json:"platform,omitempty"`
	// Emulated says that the image was built for another kind of machine than ran
	// it: times and limits mean something else then.
	Emulated bool `json:"emulated,omitempty"`
	// Limits in force, by name, the sandbox's defaults included.
	Limits map[string]any `json:"limits,omitempty"`
	// DefaultLimits names those of Limits that nobody declared.
	DefaultLimits []string `json:"defaultLimits,omitempty"`
	// Notes say what is weaker on this machine than elsewhere.
	Notes []string `json:"notes,omitempty"`
	// HarnessPath and HarnessVersion are the program that ran, as resolved on
	// the machine.
	HarnessPath    string `json:"harnessPath,omitempty"`
	HarnessVersion string `json:"harnessVersion,omitempty"`
	PeakMemoryMB   *int64 `json:"peakMemoryMb,omitempty"`
	CPUMs          *int64 `json:"cpuMs,omitempty"`
}

// Timing is how long each phase took, in milliseconds of the runner's clock.
type Timing struct {
	PrepareMs  float64 `json:"prepareMs"`
	InstallMs  float64 `json:"installMs"`
	RunMs      float64 `json:"runMs"`
	SnapshotMs float64 `json:"snapshotMs"`
	GradeMs    float64 `json:"gradeMs"`
	// FrozenMs is how long the harness was frozen or suspended; it does not
	// count as run time.
	FrozenMs float64 `json:"frozenMs,omitempty"`
}

// Evidence says how large each evidence channel is and what is missing from it.
type Evidence struct {
	LogBytes    int64 `json:"logBytes"`
	TraceEvents int64 `json:"traceEvents"`
	DiffBytes   int64 `json:"diffBytes"`
	// Redactions is how many times a secret was replaced by a marker, in all
	// channels and in the result document.
	Redactions int64 `json:"redactions,omitempty"`
	// Gaps lists bytes that are missing from a channel and why.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Gap is a hole in an evidence channel.
type Gap struct {
	Channel string `json:"channel"`
	// Offset is where in the produced stream the hole begins.
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}
