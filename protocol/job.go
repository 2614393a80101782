package protocol

// MaxJobBytes bounds the JSON of a Job: what a runner can be sent.
const MaxJobBytes = 20 << 20

// Job is what a runner gets with a lease: everything that it needs to carry out
// one attempt. Env holds resolved values, secrets among them; it exists only on
// the wire and in memory.
type Job struct {
	RunID     string `json:"runId"`
	Workspace string `json:"workspace"`
	// SubmittedBy is whose run it is: a machine that takes its owner's runs alone looks at
	// it.
	SubmittedBy string            `json:"submittedBy,omitempty"`
	Case        Case              `json:"case"`
	Harness     HarnessSpec       `json:"harness"`
	Env         map[string]string `json:"env,omitempty"`
}

// Validate checks what a runner relies on.
func (j *Job) Validate() error {
	var k checker
	k.name("runId", j.RunID)
	j.Case.check(&k, "case")
	j.Harness.check(&k, "harness")
	return k.err()
}

// ResultSentinel begins a line of a launched runner's output that holds the result of
// its run, as JSON: one that it could not deliver over its connection.
const ResultSentinel = "__EVERDICT_RESULT__"
