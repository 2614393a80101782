package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/verdict"
)

// Holder is the runner that speaks for an attempt.
type Holder struct {
	Runner protocol.Runner
	// Local says that it runs inside this process.
	Local bool
}

func (h Holder) provenance(attempt int64) *protocol.Provenance {
	p := &protocol.Provenance{RanOn: "self-hosted", Runner: h.Runner.ID, RunnerLabel: h.Runner.Label, Hostname: h.Runner.Hostname,
		By: h.Runner.Owner, Attestation: "self_reported", Attempt: attempt}
	if h.Local {
		p.RanOn, p.Attestation = "local", "managed"
	}
	return p
}

// Started acknowledges that a runner has begun: the run is running from here.
func (s *Service) Started(ctx context.Context, ref lease.Ref, h Holder) error {
	return s.started(ctx, ref, h, nil)
}

// started is Started; out is set if the attempt is handed out as a payload.
func (s *Service) started(ctx context.Context, ref lease.Ref, h Holder, out *protocol.HandedOut) error {
	return s.queue.Started(ctx, ref, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		at := protocol.At(ev.At)
		err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
			r.Status, r.StartedAt, r.UpdatedAt, r.Attempt = protocol.StatusRunning, &at, at, ev.Attempt
			r.Provenance = h.provenance(ev.Attempt)
			if r.Placement != nil {
				r.Placement.QueueDeadline = nil
			}
			return nil
		})
		if err != nil {
			return err
		}
		a, err := s.cfg.Store.ReadAttempt(tx, ev.Job, ev.Attempt)
		if err != nil {
			return err
		}
		a.RunnerLabel, a.StartedAt = h.Runner.Label, &at
		if out != nil {
			a.HandedOut = out
		}
		if err := s.cfg.Store.PutAttempt(tx, ev.Job, *a); err != nil {
			return err
		}
		message := ""
		if out != nil {
			message = "handed out as a payload to " + cmp.Or(out.Unit, out.By)
		}
		return s.event(tx, ev, protocol.RunStarted, message)
	}))
}

// GiveBack returns an attempt whose runner does not go on with it.
func (s *Service) GiveBack(ctx context.Context, ref lease.Ref, reason string) error {
	_, err := s.queue.GiveBack(ctx, ref, lease.Return{Reason: reason})
	return err
}

// Lost returns an attempt that ran and whose result will never come. It uses up
// one of the run's attempts.
func (s *Service) Lost(ctx context.Context, ref lease.Ref, reason string) error {
	_, err := s.queue.Retry(ctx, ref, reason)
	return err
}

// Ungiven returns an attempt whose job its runner cannot be given. counts says that it
// uses up one of the run's attempts: a job that can never be read must come to an end.
// One that has begun stays, with ErrBegun: its runner has the job.
func (s *Service) Ungiven(ctx context.Context, ref lease.Ref, reason string, counts bool) error {
	waits := lease.With(func(_ *sqlite.Tx, ev *lease.Event) error {
		if ev.Started {
			return ErrBegun
		}
		return nil
	})
	var err error
	if counts {
		_, err = s.queue.Retry(ctx, ref, reason, waits)
	} else {
		_, err = s.queue.GiveBack(ctx, ref, lease.Return{Reason: reason}, waits)
	}
	return err
}

// Finished is what became of a result.
type Finished int8

const (
	// Accepted: the run is settled with it, or is tried again because of it.
	Accepted Finished = iota
	// Late: the attempt had been superseded; the result is kept and changed nothing.
	Late
)

// Finish takes the result of an attempt. The evidence is on the disk before the
// run is settled, and the run is settled once: a repeated result is Accepted
// again, one of a superseded attempt is Late. A failure that a retry can help
// brings the run back into the queue, as often as its job may be tried.
func (s *Service) Finish(ctx context.Context, ref lease.Ref, h Holder, doc []byte) (Finished, error) {
	return s.finish(ctx, ref, h, s.decode(ref, h, doc))
}

func (s *Service) finish(ctx context.Context, ref lease.Ref, h Holder, result *protocol.CaseResult, opts ...lease.Option) (Finished, error) {
	if err := s.seal(ctx, ref); err != nil {
		return 0, fmt.Errorf("run: finish %s: %w", ref.Job, err)
	}
	var err error
	if f := result.Failure; f != nil && f.Retryable && f.Class == protocol.ClassInfra {
		_, err = s.queue.Retry(ctx, ref, f.Message, append(opts, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
			return s.retried(tx, ev, result)
		}))...)
	} else {
		err = s.settle(ctx, ref, result, opts...)
	}
	switch {
	case err == nil, errors.Is(err, lease.ErrAlreadySettled):
		return Accepted, nil
	case errors.Is(err, lease.ErrUnknownJob):
		return s.late(ctx, ref, h, result)
	}
	if _, stale := lease.IsStale(err); stale {
		return s.late(ctx, ref, h, result)
	}
	return 0, fmt.Errorf("run: finish %s: %w", ref.Job, err)
}

func (s *Service) seal(ctx context.Context, ref lease.Ref) error {
	a, err := s.cfg.Evidence.Attempt(ref.Job, ref.Attempt)
	if err != nil {
		return err
	}
	return errors.Join(a.Seal(ctx), a.Close())
}

// decode reads a result. One that cannot be read is a failure of its own: the attempt
// is over all the same.
func (s *Service) decode(ref lease.Ref, h Holder, doc []byte) *protocol.CaseResult {
	var r *protocol.CaseResult
	if err := json.Unmarshal(doc, &r); err != nil || r == nil { // null is no result
		r = &protocol.CaseResult{Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt},
			Failure: malformed(protocol.StageCollect, "the runner sent a result that cannot be read")}
		if err != nil {
			r.Failure.Message += ": " + protocol.Clip(err.Error(), 200)
		}
	}
	s.shape(ref, h, r)
	return r
}

// shape brings what came from outside into shape.
func (s *Service) shape(ref lease.Ref, h Holder, r *protocol.CaseResult) {
	r.Trace = []protocol.TraceEvent{}
	if r.Scores == nil {
		r.Scores = []protocol.Score{}
	}
	bound(r)
	r.Provenance = h.provenance(ref.Attempt)
	if r.Failure != nil {
		r.Failure.RunnerID = h.Runner.ID
	}
}

func (s *Service) settle(ctx context.Context, ref lease.Ref, result *protocol.CaseResult, opts ...lease.Option) error {
	res := lease.Result{Outcome: lease.Succeeded}
	attempt := protocol.AttemptSettled
	if f := result.Failure; f != nil {
		res = lease.Result{Outcome: lease.Failed, Reason: f.Message}
		if f.Code == protocol.CodeCancelled {
			res.Outcome, attempt = lease.Cancelled, protocol.AttemptCancelled
		}
	}
	return s.queue.Settle(ctx, ref, res, append(opts, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		return s.conclude(tx, ev, attempt, result)
	}))...)
}

// retried writes what a result with a failure that a retry can help has led to.
func (s *Service) retried(tx *sqlite.Tx, ev *lease.Event, result *protocol.CaseResult) error {
	switch {
	case ev.Kind != lease.JobSettled: // another attempt follows
		return s.putResult(tx, ev, protocol.AttemptReleased, result.Failure.Message, result)
	case ev.Outcome == lease.Exhausted: // this was the last
		return s.conclude(tx, ev, protocol.AttemptSettled, result)
	}
	// A person has asked for the end meanwhile: that is why nobody tries again.
	f := failureOf(ev)
	f.LogTail = result.Failure.LogTail
	result.Failure = &f
	return s.conclude(tx, ev, protocol.AttemptCancelled, result)
}

// conclude writes the end of a run with the result of its last attempt.
func (s *Service) conclude(tx *sqlite.Tx, ev *lease.Event, outcome string, result *protocol.CaseResult) error {
	message := ""
	if result.Failure != nil {
		message = result.Failure.Message
	}
	// First the record: apply completes the result.
	err := s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
		apply(r, result, protocol.At(ev.At))
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.putResult(tx, ev, outcome, message, result); err != nil {
		return err
	}
	return s.event(tx, ev, protocol.RunSettled, message)
}

// apply writes the result into the record: what lists show.
func apply(r *protocol.Run, result *protocol.CaseResult, at protocol.Time) {
	if result.Failure != nil {
		fail(r, result.Failure, at)
	} else {
		end(r, protocol.StatusSucceeded, at)
	}
	if result.Harness == "" && r.ResolvedHarness != nil {
		result.Harness = r.ResolvedHarness.String()
	}
	result.CaseID = r.CaseID
	r.Scores, r.Usage, r.Provenance = result.Scores, result.Usage, result.Provenance
	r.Attempt = result.Provenance.Attempt
	if f := result.Failure; f != nil && f.Reason == protocol.ReasonMalformed {
		return // what is left of such a result is no ground for a verdict
	}
	r.Verdict, r.VerdictBasis = verdict.Decide(result.Scores, result.Failure)
}

func (s *Service) putResult(tx *sqlite.Tx, ev *lease.Event, outcome, message string, result *protocol.CaseResult) error {
	a, err := s.cfg.Store.ReadAttempt(tx, ev.Job, ev.Attempt)
	if err != nil {
		return err
	}
	at := protocol.At(ev.At)
	a.Outcome, a.Message, a.EndedAt, a.Result = outcome, message, &at, result
	return s.cfg.Store.PutAttempt(tx, ev.Job, *a)
}

// late keeps the result of an attempt that does not stand any more, beside the
// record and without touching it (P2).
func (s *Service) late(ctx context.Context, ref lease.Ref, h Holder, result *protocol.CaseResult) (Finished, error) {
	done := Late
	err := s.cfg.Store.DB().Write(ctx, func(tx *sqlite.Tx) error {
		a, err := s.cfg.Store.ReadAttempt(tx, ref.Job, ref.Attempt)
		if err != nil {
			return err
		}
		if a.Runner != h.Runner.ID {
			return store.ErrNotFound // somebody else's attempt
		}
		if a.Result != nil { // a repeat
			if a.LateAt == nil { // of what led to another attempt, or was the last
				done = Accepted
			}
			return nil
		}
		at := s.now()
		a.LateAt, a.Result = &at, result
		if err := s.cfg.Store.PutAttempt(tx, ref.Job, *a); err != nil {
			return err
		}
		return s.cfg.Store.AppendEvent(tx, ref.Job, protocol.RunEvent{At: at, Kind: protocol.RunLateResult, Attempt: ref.Attempt,
			Runner: h.Runner.ID, Message: "the result of a superseded attempt arrived; it is kept as evidence and changes nothing"})
	})
	if errors.Is(err, store.ErrNotFound) {
		return 0, protocol.NotFound("attempt %d of %s is not known, or not this runner's", ref.Attempt, ref.Job)
	}
	if err != nil {
		return 0, fmt.Errorf("run: keep the late result of %s: %w", ref.Job, err)
	}
	s.watch.wake(ref.Job)
	return done, nil
}

// AttemptRunner is the runner that an attempt was leased to, or store.ErrNotFound.
func (s *Service) AttemptRunner(ctx context.Context, runID string, attempt int64) (string, error) {
	a, err := s.cfg.Store.Attempt(ctx, runID, attempt)
	if err != nil {
		return "", err
	}
	return a.Runner, nil
}
