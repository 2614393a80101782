package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// Cancel ends a run. One that nobody works on is settled when it returns; else its
// runner is told, and the run is settled with the evidence so far when it has
// ended the job, or when its lease has run out.
func (s *Service) Cancel(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	run, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.Run{}, err
	}
	if run.Status.Terminal() {
		if run.Error != nil && run.Error.Code == protocol.CodeCancelled {
			return *run, nil // cancelling again is no mistake
		}
		return protocol.Run{}, protocol.Conflict("run %s has %s already", run.ID, run.Status).
			WithHint("GET /runs/%s has what came of it", run.ID)
	}
	_, err = s.queue.Cancel(ctx, run.ID, "by "+p.Subject)
	var state *lease.StateError
	if err != nil && !errors.As(err, &state) { // it has settled meanwhile: answer what it is
		return protocol.Run{}, fmt.Errorf("run: cancel %s: %w", id, err)
	}
	return s.Get(ctx, p, id)
}

// Approve lets a suspended run go on: it is queued, or its job's question is
// answered with yes.
func (s *Service) Approve(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error) {
	return s.decide(ctx, p, id, d, true)
}

// Reject refuses: a run that waited to start fails, a job that asked hears no and
// goes on as it thinks right.
func (s *Service) Reject(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error) {
	return s.decide(ctx, p, id, d, false)
}

var errOtherQuestion = errors.New("run: waits for another decision")

func (s *Service) decide(ctx context.Context, p auth.Principal, id string, d protocol.Decision, approved bool) (protocol.Run, error) {
	if err := d.Validate(); err != nil {
		return protocol.Run{}, err
	}
	run, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.Run{}, err
	}
	if run.Suspended == nil {
		return protocol.Run{}, protocol.Conflict("run %s does not wait for a decision: it is %s", run.ID, run.Status).
			WithHint("a run that waits is suspended; GET /runs/%s/events says what has become of this one", run.ID)
	}
	asked := *run.Suspended
	// Who decides has seen one question: another one, asked while they thought, is
	// not answered by it.
	same := func(tx *sqlite.Tx) error {
		return s.cfg.Store.UpdateRun(tx, run.ID, func(r *protocol.Run) error {
			if r.Suspended == nil || r.Suspended.Kind != asked.Kind || r.Suspended.ID != asked.ID {
				return errOtherQuestion
			}
			return nil
		})
	}
	verb := "rejected"
	if approved {
		verb = "approved"
	}
	if asked.Kind == protocol.ApprovalBeforeStart && !approved {
		_, err = s.queue.Reject(ctx, run.ID, sentence("by "+p.Subject, d.Comment), lease.With(func(tx *sqlite.Tx, _ *lease.Event) error {
			return same(tx)
		}))
	} else {
		err = s.queue.Resume(ctx, run.ID, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
			if err := same(tx); err != nil {
				return err
			}
			ev.Reason = sentence(verb+" by "+p.Subject, d.Comment)
			if asked.Kind != protocol.SuspendedAsk {
				return nil
			}
			a, err := s.cfg.Store.ReadAttempt(tx, ev.Job, ev.Attempt)
			if err != nil {
				return err
			}
			a.Result = nil
			a.Answers = append(a.Answers, protocol.Answered{ID: asked.ID, Question: asked.Question, Approved: approved,
				Comment: d.Comment, By: p.Subject, At: protocol.At(ev.At)})
			return s.cfg.Store.PutAttempt(tx, ev.Job, *a)
		}))
	}
	var state *lease.StateError
	if errors.As(err, &state) {
		return protocol.Run{}, protocol.Conflict("run %s does not wait for a decision any more: it is %s", run.ID, state.State).
			WithHint("GET /runs/%s/events says what happened meanwhile", run.ID)
	}
	if errors.Is(err, errOtherQuestion) {
		return protocol.Run{}, protocol.Conflict("run %s does not wait for this decision any more", run.ID).
			WithHint("read the run again: it may ask something else by now")
	}
	if err != nil {
		return protocol.Run{}, fmt.Errorf("run: decide %s: %w", id, err)
	}
	return s.Get(ctx, p, id)
}

// Withdraw lets a job go on that was suspended with a question and does not wait for
// the answer any more. Of any other job, and of one that asks something else by now,
// it changes nothing.
func (s *Service) Withdraw(ctx context.Context, ref lease.Ref, questionID string) error {
	err := s.queue.Resume(ctx, ref.Job, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		if ev.Attempt != ref.Attempt {
			return errOtherQuestion
		}
		ev.Reason = "the job withdrew its question"
		return s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
			if r.Suspended == nil || r.Suspended.Kind != protocol.SuspendedAsk || r.Suspended.ID != questionID {
				return errOtherQuestion
			}
			return nil
		})
	}))
	var state *lease.StateError
	if errors.As(err, &state) || errors.Is(err, errOtherQuestion) {
		return nil
	}
	return err
}

// errAnswered undoes a suspension whose question was answered after Ask had
// read the answers.
var errAnswered = errors.New("run: the question has been answered")

// Ask suspends a running job with a question and waits until a person has
// answered it. The answer is kept with the attempt: asked again with the same
// question id, after a lost session or a restart, it is given again. A job that
// asks has begun, also when the acknowledgement of its start is still on its way.
func (s *Service) Ask(ctx context.Context, ref lease.Ref, h Holder, questionID, question string) (protocol.Answered, error) {
	if err := s.Started(ctx, ref, h); err != nil {
		return protocol.Answered{}, err
	}
	leave := func() {}
	defer func() { leave() }()
	for {
		leave()
		var changed <-chan struct{}
		changed, leave = s.watch.changed(ref.Job)
		a, err := s.cfg.Store.Attempt(ctx, ref.Job, ref.Attempt)
		if err != nil {
			return protocol.Answered{}, err
		}
		for _, answer := range a.Answers {
			if answer.ID == questionID {
				return answer, nil
			}
		}
		// Another question of the same job may be open: then this one waits for
		// its turn, since parking a parked attempt changes nothing.
		err = s.queue.ParkLease(ctx, ref, question, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
			a, err := s.cfg.Store.ReadAttempt(tx, ev.Job, ev.Attempt)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(a.Answers, func(given protocol.Answered) bool { return given.ID == questionID }) {
				return errAnswered
			}
			return s.cfg.Store.UpdateRun(tx, ev.Job, func(r *protocol.Run) error {
				r.Suspended = &protocol.Suspension{Kind: protocol.SuspendedAsk, ID: questionID, Question: question, Since: protocol.At(ev.At)}
				return nil
			})
		}))
		if errors.Is(err, errAnswered) {
			continue
		}
		if err != nil {
			return protocol.Answered{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return protocol.Answered{}, ctx.Err()
		}
	}
}
