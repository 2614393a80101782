package fleet

import (
	"fmt"
	"time"

	"github.com/everdict/everdict/protocol"
)

// failure is what trouble of a unit means for its attempt. fresh says that no runner
// has taken the run yet.
func failure(u *Unit, t *Trouble, n Needs, fresh bool) protocol.Failure {
	f := protocol.Failure{
		Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonLost, Code: protocol.CodeUpstreamError,
		Retryable: true, ExitCode: t.ExitCode,
	}
	if fresh {
		f.Stage = protocol.StageDispatch
	}
	what := "ended"
	switch t.Cause {
	case CauseImage:
		what = "has no image"
		f.Reason, f.Code = protocol.ReasonImage, protocol.CodeDriverProvisionFailed
		f.Class, f.Retryable = final(t)
	case CauseStart, CausePolicy:
		what = "cannot start"
		f.Reason, f.Code = protocol.ReasonStart, protocol.CodeDriverProvisionFailed
		f.Class, f.Retryable = final(t)
	case CauseUnschedulable, CauseQuota:
		what = "found no place"
		f.Reason = protocol.ReasonUnschedulable
	case CauseOOM:
		what = "ran out of memory"
		f.Reason, f.Code, f.Retryable = protocol.ReasonOOM, protocol.CodeOOMKilled, false
		if n.MemoryMB > 0 {
			f.Limit = &protocol.Limit{Name: "memoryMb", Unit: "MiB", Configured: float64(n.MemoryMB), Measured: float64(n.MemoryMB)}
		}
	case CauseEvicted:
		what = "was evicted"
		f.Reason = protocol.ReasonEvicted
	case CauseDeadline:
		what = "met its deadline"
		f.Reason, f.Retryable = protocol.ReasonTimeout, false
		deadline := backstop(n, u.Note == payloadNote)
		if noteOf(u) != nil {
			deadline = standingDeadline // the unit's, whatever job it had
		}
		f.Limit = &protocol.Limit{Name: "deadline", Unit: "s", Configured: deadline.Seconds(), Measured: deadline.Seconds()}
	case CauseNodeLost:
		what = "is on a node that does not answer"
	case CauseExited:
		what = "ended without a result"
		if fresh {
			what = "ended before its runner took the run"
		}
	}
	f.Message = fmt.Sprintf("unit %s %s: %s", u.Name, what, protocol.Clip(t.Message, 1000))
	return f
}

// final is the class of trouble that the request has caused, if waiting does not help,
// and whether another attempt can.
func final(t *Trouble) (class string, retryable bool) {
	if t.Final {
		return protocol.ClassConfig, false
	}
	return protocol.ClassInfra, true
}

// unsupported is the failure of a run that its image lacks something for.
func unsupported(u *Unit, why string) protocol.Failure {
	return protocol.Failure{
		Stage: protocol.StageDispatch, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner, Code: protocol.CodeUpstreamMisconfigured,
		Message: fmt.Sprintf("the runner of unit %s cannot take the run: %s", u.Name, protocol.Clip(why, 1000)),
	}
}

// overdue is the failure of a unit that was in trouble for too long.
func overdue(f protocol.Failure, waited, most time.Duration) protocol.Failure {
	f.Message = fmt.Sprintf("%s; waited %v for it", f.Message, waited.Round(time.Second))
	f.Limit = &protocol.Limit{Name: "pendingTimeout", Unit: "s", Configured: most.Seconds(), Measured: waited.Seconds()}
	return f
}
