package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Class says how soon somebody waits for a job. The zero value is Interactive.
type Class int8

const (
	// Interactive jobs go before batch jobs.
	Interactive Class = iota
	// Batch jobs go after interactive ones until they have waited for [Config.Aging]; then they count as interactive.
	Batch
)

func (c Class) String() string {
	if c == Batch {
		return "batch"
	}
	return "interactive"
}

// Requirements are what a runner must offer. The zero value is met by every runner.
type Requirements struct {
	// Capabilities that the runner must have, all of them: "docker", "git", "gpu". Order and repetition do not matter.
	Capabilities []string
	// OS and Arch in Go's words ("linux", "arm64"); empty means any.
	OS, Arch string
	// MemoryMB is the declared memory in MiB, counted against the pool's budget and the runner's memory while leased.
	MemoryMB int64
	// CPU is what it declares in thousandths of a core, counted against the pool's budget while leased.
	CPU int64
}

// Job is an entry of the queue. The queue does not look into Payload.
type Job struct {
	// ID names the job; unique among all jobs that the queue still knows.
	ID string
	// Workspace shares the runners fairly with the other workspaces.
	Workspace string
	// Pool is the one target: a runner takes the job if it serves this name.
	Pool string
	// Class is Interactive or Batch.
	Class Class
	// Payload comes back with the lease, byte for byte. The queue keeps the slice: do not change it afterwards.
	Payload []byte
	// Requirements narrow the runners.
	Requirements Requirements
	// QueueDeadline is how long the job may be queued before it settles as Unschedulable. 0 means
	// [Config.QueueDeadline]. Time parked or running does not count, and a started attempt begins a new wait.
	QueueDeadline time.Duration
	// MaxAttempts bounds the attempts that end in a lost lease or a counted return. 0 means [Config.MaxAttempts].
	MaxAttempts int
	// Parked enqueues the job parked, with this reason; it waits for Resume or Reject. Empty means queued.
	Parked string
}

// maxName bounds ids and names, so that a row stays a row.
const maxName = 512

func (j *Job) check() error {
	switch {
	case j.ID == "":
		return &JobError{Problem: "it has no id"}
	case j.Pool == "":
		return &JobError{ID: j.ID, Problem: "it names no pool"}
	case len(j.ID) > maxName || len(j.Pool) > maxName || len(j.Workspace) > maxName:
		return &JobError{ID: j.ID, Problem: fmt.Sprintf("a name is longer than %d bytes", maxName)}
	case j.Class != Interactive && j.Class != Batch:
		return &JobError{ID: j.ID, Problem: fmt.Sprintf("unknown class %d", j.Class)}
	case j.Requirements.MemoryMB < 0 || j.Requirements.CPU < 0 || j.QueueDeadline < 0 || j.MaxAttempts < 0:
		return &JobError{ID: j.ID, Problem: "memory, CPU, deadline and attempts cannot be negative"}
	}
	for _, c := range j.Requirements.Capabilities {
		if c == "" || strings.Contains(c, ",") || len(c) > maxName {
			return &JobError{ID: j.ID, Problem: fmt.Sprintf("bad capability %q", c)}
		}
	}
	return nil
}

// Runner is who pulls. Two values are the same runner if their IDs are equal; the newest value stands.
type Runner struct {
	// ID names the runner.
	ID string
	// Home is the pool whose admission limits its leases count against. Empty means the first of Serves.
	Home string
	// Serves are the pools whose jobs it takes.
	Serves []string
	// Capabilities that it offers.
	Capabilities []string
	// OS and Arch that it runs, in Go's words; empty meets only jobs that ask for none.
	OS, Arch string
	// MemoryMB is what it can give to all its jobs together; 0 means unknown, and is not checked.
	MemoryMB int64
	// Job is the one job that it takes, for a runner that was launched for it; empty: any of the pools that it serves.
	Job string
	// Paused says why it takes no job for now, for people; empty: it takes some.
	Paused string
}

func (r *Runner) home() string {
	if r.Home == "" && len(r.Serves) > 0 {
		return r.Serves[0]
	}
	return r.Home
}

func (r *Runner) equal(o *Runner) bool {
	return r.ID == o.ID && r.Home == o.Home && r.OS == o.OS && r.Arch == o.Arch && r.MemoryMB == o.MemoryMB && r.Job == o.Job && r.Paused == o.Paused &&
		slices.Equal(r.Serves, o.Serves) && slices.Equal(r.Capabilities, o.Capabilities)
}

// Ref is a proof of holding a lease: the job, the attempt's epoch, and the token that only its holder was told.
type Ref struct {
	Job     string
	Attempt int64
	Token   string
}

// Lease is the right to run one attempt of a job until its deadline, as long as it is renewed.
type Lease struct {
	Ref
	// Runner that holds it, Workspace, Pool and Class of the job.
	Runner    string
	Workspace string
	Pool      string
	Class     Class
	// Payload of the job. Leases answered by List have none.
	Payload []byte
	// TTL is how long the lease stands from now without a renewal. A holder counts it from the moment at which it sent the
	// request, on its own monotonic clock, and never compares Deadline with a clock of its own.
	TTL time.Duration
	// StartWithin is how long the holder has to acknowledge the start; 0 when it has.
	StartWithin time.Duration
	// Deadline is now plus TTL on the coordinator's clock.
	Deadline time.Time
	// Started says that the start has been acknowledged.
	Started bool
	// Parked says that its process waits for a person.
	Parked bool
	// Stop is the outcome that the holder has been asked to end with, OutcomeNone if none.
	Stop Outcome
}

// State of a job.
type State int8

const (
	// Queued jobs wait for a runner.
	Queued State = iota
	// Leased jobs are held by a runner.
	Leased
	// Parked jobs wait for a person and have no holder.
	Parked
	// Settled jobs are over for good.
	Settled
)

func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Leased:
		return "leased"
	case Parked:
		return "parked"
	case Settled:
		return "settled"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Outcome is how a job settled.
type Outcome int8

const (
	// OutcomeNone is the outcome of a job that has not settled.
	OutcomeNone Outcome = iota
	// Succeeded and Failed are said by the holder.
	Succeeded
	Failed
	// Cancelled jobs were cancelled before a holder settled them.
	Cancelled
	// Rejected jobs were parked, and a person said no.
	Rejected
	// Unschedulable jobs met their queue deadline.
	Unschedulable
	// Exhausted jobs lost their last attempt.
	Exhausted
)

func (o Outcome) String() string {
	switch o {
	case OutcomeNone:
		return "none"
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Cancelled:
		return "cancelled"
	case Rejected:
		return "rejected"
	case Unschedulable:
		return "unschedulable"
	case Exhausted:
		return "exhausted"
	}
	return fmt.Sprintf("outcome %d", int(o))
}
