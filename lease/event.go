package lease

import (
	"time"

	"github.com/everdict/everdict/lease/sqlite"
)

// Kind of a change.
type Kind int8

const (
	// JobEnqueued: a job was accepted; State says queued or parked.
	JobEnqueued Kind = iota
	// JobLeased: an attempt began.
	JobLeased
	// JobStarted: the holder acknowledged the start.
	JobStarted
	// JobRequeued: an attempt is over without a result and the job waits again; Cause says why.
	JobRequeued
	// JobParked: the job, or the held attempt, waits for a person.
	JobParked
	// JobResumed: it does not any more.
	JobResumed
	// JobStopping: the holder is to end the attempt with the outcome Stop.
	JobStopping
	// JobFenced: the holder is not trusted any more ([Queue.Fence]). The attempt is given up at Deadline, unless the queue
	// finds that it did not run itself, and lengthens every lease.
	JobFenced
	// JobSettled: the job is over with Outcome.
	JobSettled
)

func (k Kind) String() string {
	return [...]string{"enqueued", "leased", "started", "requeued", "parked", "resumed", "stopping", "fenced", "settled"}[k]
}

// Cause of a change.
type Cause string

const (
	// CauseCaller: an operation of the caller, with its Reason.
	CauseCaller Cause = ""
	// CauseExpired: the lease was not renewed within its TTL.
	CauseExpired Cause = "expired"
	// CauseFenced: the runner was fenced, or its lease has run out after that.
	CauseFenced Cause = "fenced"
	// CauseRestart: the lease was not renewed within the TTL that it got when the coordinator started.
	CauseRestart Cause = "coordinator_restart"
	// CauseStartTimeout: the lease was not acknowledged as started in time. Its runner is degraded.
	CauseStartTimeout Cause = "start_timeout"
	// CauseQueueDeadline: the job waited too long.
	CauseQueueDeadline Cause = "queue_deadline"
)

// Event is one change of one job.
type Event struct {
	Kind      Kind
	Job       string
	Workspace string
	Pool      string
	Class     Class
	// State after the change.
	State State
	// Attempt is the epoch that the change concerns, 0 before the first.
	Attempt int64
	// Runner that holds or held that attempt.
	Runner string
	// Started says whether that attempt had been acknowledged as started.
	Started bool
	// Failures are the attempts so far that count against MaxAttempts, the job's maximum; Unstarted those that no runner
	// acknowledged as started, which count against MaxUnstarted. A job is Exhausted when either has reached its maximum.
	Failures, MaxAttempts   int
	Unstarted, MaxUnstarted int
	// Stop is the outcome that was asked of the holder: a cancel came before this change.
	Stop Outcome
	// Outcome of a settled job.
	Outcome Outcome
	// Cause and Reason say why, to programs and to people.
	Cause  Cause
	Reason string
	// Deadline of being queued, on the coordinator's clock, or of a lease that was fenced; zero in any other change.
	Deadline time.Time
	// RetryAt is when a requeued job can be leased again; zero if that is now.
	RetryAt time.Time
	// At is the coordinator's time of the change.
	At time.Time
}

// Hook runs inside the transaction of a change, after the queue's own statements. Its error undoes the change and itself,
// and nothing else. It may not call the queue or wait for the database.
type Hook func(tx *sqlite.Tx, ev *Event) error

// Option of an operation that changes state.
type Option func(*options)

type options struct {
	hook   Hook
	proven bool
}

// With runs hook in the same transaction as the operation: both are on the disk, or neither.
func With(hook Hook) Option {
	return func(o *options) { o.hook = hook }
}

// Proven says that the caller knows by itself, and not by the word of the holder, that nothing of the attempt runs any
// more: Settle, GiveBack and Retry end a fenced lease, too.
func Proven() Option {
	return func(o *options) { o.proven = true }
}

func hookOf(opts []Option) Hook { return optionsOf(opts).hook }

func optionsOf(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
