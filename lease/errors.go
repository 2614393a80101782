package lease

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by everything after Run has returned or the database was closed.
	ErrClosed = errors.New("lease: queue is closed")
	// ErrUnknownJob says that the queue has no job of that id, or not any more ([Config.Retention]).
	ErrUnknownJob = errors.New("lease: unknown job")
	// ErrExists says that a job of that id is known already; nothing was changed.
	ErrExists = errors.New("lease: job exists")
	// ErrAlreadySettled answers a repeated Settle: this very attempt has settled the job before. Nothing was changed, and
	// the sender's result can be acknowledged.
	ErrAlreadySettled = errors.New("lease: already settled by this attempt")
	// ErrSuperseded ends a Pull when the same runner asks again with the same request id.
	ErrSuperseded = errors.New("lease: pull superseded by a newer one with its request id")
	// ErrFenced ends and refuses what a runner asks whose trust has ended ([Queue.Fence]).
	ErrFenced = errors.New("lease: the runner was revoked")
)

// StaleError refuses an operation of an attempt that does not stand any more. What came with it is late evidence: keep
// it, and let it change nothing.
type StaleError struct {
	// Ref is what the caller held.
	Ref Ref
	// Attempt is the job's newest attempt; equal to Ref.Attempt if that one is over or fenced, or the token was wrong.
	Attempt int64
	// State and Outcome of the job now.
	State   State
	Outcome Outcome
}

func (e *StaleError) Error() string {
	if e.State == Settled {
		return fmt.Sprintf("lease: attempt %d of %s is stale: the job has settled as %s", e.Ref.Attempt, e.Ref.Job, e.Outcome)
	}
	return fmt.Sprintf("lease: attempt %d of %s is stale: the job is %s at attempt %d", e.Ref.Attempt, e.Ref.Job, e.State, e.Attempt)
}

// StateError says that an operation does not apply to a job in its state (resuming a queued job); nothing was changed.
type StateError struct {
	Job    string
	Action string
	State  State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("lease: cannot %s %s: it is %s", e.Action, e.Job, e.State)
}

// JobError says what is wrong with a job that was refused.
type JobError struct {
	ID      string
	Problem string
}

func (e *JobError) Error() string {
	if e.ID == "" {
		return "lease: bad job: " + e.Problem
	}
	return fmt.Sprintf("lease: bad job %.64q: %s", e.ID, e.Problem)
}
