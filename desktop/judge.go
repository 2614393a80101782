package desktop

import (
	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/verdict"
)

// judged completes the entry of a job with how it ended. The verdict is the one that the coordinator comes to.
func judged(entry control.Entry, e agent.AttemptEnded) control.Entry {
	entry.EndedAt = protocol.At(e.At)
	entry.DurationMs = max(0, e.At.Sub(entry.StartedAt.Time).Milliseconds())
	r := e.Result
	entry.Verdict, _ = verdict.Decide(r.Scores, r.Failure)
	if r.Usage != nil {
		entry.CostUSD = r.Usage.USD
	}
	if f := r.Failure; f != nil {
		entry.Failure = &control.EntryFailure{Stage: f.Stage, Class: f.Class, Reason: f.Reason, Message: f.Message}
	}
	switch {
	case e.Stopped != nil:
		entry.Outcome = map[executor.StopReason]control.Outcome{
			executor.StopCancelled: control.OutcomeCancelled, executor.StopStale: control.OutcomeLost, executor.StopLost: control.OutcomeLost,
			executor.StopDrained: control.OutcomeReturned, executor.StopPaused: control.OutcomeReturned,
		}[e.Stopped.Reason]
	case entry.Verdict != nil && *entry.Verdict:
		entry.Outcome = control.OutcomePassed
	case entry.Verdict != nil:
		entry.Outcome = control.OutcomeFailed
	case r.Failure != nil:
		entry.Outcome = control.OutcomeError
	default:
		entry.Outcome = control.OutcomeUnjudged
	}
	return entry
}
