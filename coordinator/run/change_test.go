package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestP8_QueueFailures checks that a run that the queue ended says why, and with
// which limit.
func TestP8_QueueFailures(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		ev   lease.Event
		want protocol.Failure
	}{
		"cancelled while it waited": {
			lease.Event{Outcome: lease.Cancelled, Reason: "by ann"},
			protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonCancelled,
				Code: protocol.CodeCancelled, Message: "the run was cancelled: by ann"},
		},
		"rejected": {
			lease.Event{Outcome: lease.Rejected, Reason: "by ann: too dear"},
			protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonRejected,
				Code: protocol.CodeCancelled, Message: "a person rejected the run: by ann: too dear"},
		},
		"nobody took it": {
			lease.Event{Outcome: lease.Unschedulable, Cause: lease.CauseQueueDeadline},
			protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonUnschedulable,
				Code: protocol.CodeUpstreamError, Message: "no runner took the run before its queue deadline", Retryable: true},
		},
		"lost too often": {
			lease.Event{Outcome: lease.Exhausted, Cause: lease.CauseExpired, Runner: "rnr_1", Started: true, Failures: 3, MaxAttempts: 3, Unstarted: 1, MaxUnstarted: 10},
			protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonLost, RunnerID: "rnr_1",
				Code: protocol.CodeUpstreamError, Message: "runner rnr_1 did not renew its lease in time; attempts lost: 3, the limit is 3",
				Limit: &protocol.Limit{Name: "maxAttempts", Unit: "attempts", Configured: 3, Measured: 3}},
		},
		"never started": {
			lease.Event{Outcome: lease.Exhausted, Cause: lease.CauseStartTimeout, Runner: "rnr_1", Failures: 1, MaxAttempts: 3, Unstarted: 10, MaxUnstarted: 10},
			protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonLost, RunnerID: "rnr_1",
				Code: protocol.CodeUpstreamError, Message: "runner rnr_1 took the run but did not acknowledge its start; attempts never started: 10, the limit is 10",
				Limit: &protocol.Limit{Name: "maxUnstarted", Unit: "attempts", Configured: 10, Measured: 10}},
		},
		"lost with a restart": {
			lease.Event{Outcome: lease.Exhausted, Cause: lease.CauseRestart, Runner: "rnr_1", Failures: 1, MaxAttempts: 1, MaxUnstarted: 10},
			protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonCoordinatorRestart, RunnerID: "rnr_1",
				Code: protocol.CodeUpstreamError, Message: "runner rnr_1 did not come back after the coordinator was restarted; attempts lost: 1, the limit is 1",
				Limit: &protocol.Limit{Name: "maxAttempts", Unit: "attempts", Configured: 1, Measured: 1}},
		},
	} {
		if d := cmp.Diff(row.want, failureOf(&row.ev)); d != "" {
			t.Errorf("%s (-want):\n%s", name, d)
		}
	}
}
