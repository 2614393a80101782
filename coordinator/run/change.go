package run

import (
	"fmt"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// OnChange is the queue's hook: it tells the record what has become of the job,
// inside the same transaction. What an operation's own hook has written already
// stays.
func (s *Service) OnChange(tx *sqlite.Tx, ev *lease.Event) error {
	switch ev.Kind {
	case lease.JobLeased:
		at := protocol.At(ev.At)
		err := s.cfg.Store.PutAttempt(tx, ev.Job, protocol.Attempt{Attempt: ev.Attempt, Runner: ev.Runner, Outcome: protocol.AttemptActive, LeasedAt: &at})
		if err != nil {
			return err
		}
		return s.event(tx, ev, protocol.RunLeased, "")
	case lease.JobRequeued:
		return s.requeued(tx, ev)
	case lease.JobParked:
		return s.parked(tx, ev)
	case lease.JobResumed:
		return s.resumed(tx, ev)
	case lease.JobStopping:
		return s.event(tx, ev, protocol.RunCancelling, ev.Reason)
	case lease.JobFenced:
		return s.fenced(tx, ev)
	case lease.JobSettled:
		return s.settled(tx, ev)
	}
	return nil
}

// fenced notes that the run's runner was revoked. The attempt is active until it is given up; a question that it has asked
// is not any more, since nobody would hear the answer.
func (s *Service) fenced(tx *sqlite.Tx, ev *lease.Event) error {
	message := fmt.Sprintf("runner %s was revoked; attempt %d is given up at %s", ev.Runner, ev.Attempt, ev.Deadline.Format(time.RFC3339))
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		if r.Suspended != nil {
			message += fmt.Sprintf("; nobody asks %q any more", protocol.Clip(r.Suspended.Question, 200))
			r.Status, r.Suspended, r.UpdatedAt = protocol.StatusRunning, nil, protocol.At(ev.At)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunRunnerRevoked, message)
}

func (s *Service) event(tx *sqlite.Tx, ev *lease.Event, kind, message string) error {
	return s.cfg.Store.AppendEvent(tx, ev.Job, protocol.RunEvent{At: protocol.At(ev.At), Kind: kind, Attempt: ev.Attempt, Runner: ev.Runner, Message: message})
}

func (s *Service) requeued(tx *sqlite.Tx, ev *lease.Event) error {
	outcome, message := protocol.AttemptReleased, ev.Reason
	if ev.Cause != lease.CauseCaller {
		outcome, message = protocol.AttemptExpired, causeSentence(ev)
		if f := s.foretold.of(ev); f != nil {
			message = f.Message
		}
	}
	if err := s.endAttempt(tx, ev, outcome, message); err != nil {
		return err
	}
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		r.Status, r.StartedAt, r.Suspended, r.Provenance = protocol.StatusQueued, nil, nil, nil
		r.UpdatedAt = protocol.At(ev.At)
		waitsUntil(r, ev)
		return nil
	})
	if err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunRequeued, message)
}

// waitsUntil notes the queue deadline of a run that waits for a runner again.
func waitsUntil(r *protocol.Run, ev *lease.Event) {
	if r.Placement != nil && !ev.Deadline.IsZero() {
		at := protocol.At(ev.Deadline)
		r.Placement.QueueDeadline = &at
	}
}

// causeSentence says why the queue took an attempt away.
func causeSentence(ev *lease.Event) string {
	switch ev.Cause {
	case lease.CauseExpired:
		return fmt.Sprintf("runner %s did not renew its lease in time", ev.Runner)
	case lease.CauseFenced:
		return fmt.Sprintf("runner %s was revoked while it had the run", ev.Runner)
	case lease.CauseRestart:
		return fmt.Sprintf("runner %s did not come back after the coordinator was restarted", ev.Runner)
	case lease.CauseStartTimeout:
		return fmt.Sprintf("runner %s took the run but did not acknowledge its start", ev.Runner)
	}
	return ev.Reason
}

// endAttempt notes how an attempt ended, if it is still noted as active.
func (s *Service) endAttempt(tx *sqlite.Tx, ev *lease.Event, outcome, message string) error {
	if ev.Attempt == 0 {
		return nil
	}
	a, err := s.cfg.Store.ReadAttempt(tx, ev.Job, ev.Attempt)
	if err != nil {
		return err
	}
	if a.Outcome != protocol.AttemptActive {
		return nil
	}
	at := protocol.At(ev.At)
	a.Outcome, a.Message, a.EndedAt, a.Result = outcome, message, &at, nil
	return s.cfg.Store.PutAttempt(tx, ev.Job, *a)
}

func (s *Service) parked(tx *sqlite.Tx, ev *lease.Event) error {
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		at := protocol.At(ev.At)
		r.Status, r.UpdatedAt = protocol.StatusSuspended, at
		if ev.State == lease.Parked && r.Placement != nil {
			r.Placement.QueueDeadline = nil
		}
		if r.Suspended == nil { // else Ask has written the question
			r.Suspended = &protocol.Suspension{Kind: protocol.ApprovalBeforeStart, Since: at}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunSuspended, ev.Reason)
}

func (s *Service) resumed(tx *sqlite.Tx, ev *lease.Event) error {
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		r.Status, r.UpdatedAt, r.Suspended = protocol.StatusQueued, protocol.At(ev.At), nil
		if ev.State == lease.Leased {
			r.Status = protocol.StatusRunning
		}
		waitsUntil(r, ev)
		return nil
	})
	if err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunResumed, ev.Reason)
}

// settled writes the end of a run that the queue decided. What ended with a
// result has been written by Finish.
func (s *Service) settled(tx *sqlite.Tx, ev *lease.Event) error {
	if ev.Outcome == lease.Succeeded || ev.Outcome == lease.Failed {
		return nil
	}
	failure := failureOf(ev)
	if f := s.foretold.of(ev); f != nil && ev.Outcome == lease.Exhausted {
		failure = spent(*f, ev)
	}
	outcome := protocol.AttemptExpired
	switch {
	case ev.Outcome == lease.Cancelled || ev.Outcome == lease.Rejected:
		outcome = protocol.AttemptCancelled
	case ev.Cause == lease.CauseCaller:
		outcome = protocol.AttemptReleased
	}
	if err := s.endAttempt(tx, ev, outcome, failure.Message); err != nil {
		return err
	}
	done := false
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		if r.Status.Terminal() { // Finish has written it
			done = true
			return nil
		}
		fail(r, &failure, protocol.At(ev.At))
		return nil
	})
	if err != nil || done {
		return err
	}
	return s.event(tx, ev, protocol.RunSettled, failure.Message)
}

// failed writes the end of a run whose last attempt has no result.
func (s *Service) failed(tx *sqlite.Tx, ev *lease.Event, outcome string, f *protocol.Failure) error {
	if err := s.endAttempt(tx, ev, outcome, f.Message); err != nil {
		return err
	}
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		fail(r, f, protocol.At(ev.At))
		return nil
	})
	if err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunSettled, f.Message)
}

// fail ends a record without a result.
func fail(r *protocol.Run, f *protocol.Failure, at protocol.Time) {
	end(r, protocol.StatusFailed, at)
	r.Failure = f
	r.Error = &protocol.RunError{Code: f.Code, Message: f.Message}
	r.Verdict, r.VerdictBasis = nil, nil
}

// end takes from a record what it waited for.
func end(r *protocol.Run, status protocol.Status, at protocol.Time) {
	r.Status, r.UpdatedAt, r.FinishedAt, r.Suspended = status, at, &at, nil
	if r.Placement != nil {
		r.Placement.QueueDeadline = nil
	}
}

func failureOf(ev *lease.Event) protocol.Failure {
	f := protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, RunnerID: ev.Runner}
	if ev.Started {
		f.Stage = protocol.StageRun
	}
	switch ev.Outcome {
	case lease.Cancelled:
		f.Reason, f.Code, f.Message = protocol.ReasonCancelled, protocol.CodeCancelled, sentence("the run was cancelled", ev.Reason)
	case lease.Rejected:
		f.Reason, f.Code, f.Message = protocol.ReasonRejected, protocol.CodeCancelled, sentence("a person rejected the run", ev.Reason)
	case lease.Unschedulable:
		f.Reason, f.Code, f.Message = protocol.ReasonUnschedulable, protocol.CodeUpstreamError, sentence("no runner took the run before its queue deadline", ev.Reason)
		f.Retryable = true
	default:
		what, limit := "lost", protocol.Limit{Name: "maxAttempts", Unit: "attempts", Configured: float64(ev.MaxAttempts), Measured: float64(ev.Failures)}
		if ev.Failures < ev.MaxAttempts {
			what = "never started"
			limit = protocol.Limit{Name: "maxUnstarted", Unit: "attempts", Configured: float64(ev.MaxUnstarted), Measured: float64(ev.Unstarted)}
		}
		f.Reason, f.Code, f.Limit = protocol.ReasonLost, protocol.CodeUpstreamError, &limit
		f.Message = fmt.Sprintf("%s; attempts %s: %g, the limit is %g", causeSentence(ev), what, limit.Measured, limit.Configured)
		if ev.Cause == lease.CauseRestart {
			f.Reason = protocol.ReasonCoordinatorRestart
		}
	}
	return f
}

func sentence(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
