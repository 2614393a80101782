package harness

import (
	"fmt"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Failure says why a main process that ended so left nothing to judge: a limit
// that fired, memory or processes that ran out, a signal that nobody of us sent.
// It is nil for every other exit of the process's own, whatever the code. name is
// what the sentence calls the agent.
func (d Ended) Failure(name string) *protocol.Failure {
	f := &protocol.Failure{
		Stage: protocol.StageRun, Class: protocol.ClassHarness, Code: protocol.CodeHarnessRunFailed,
		Signal: d.Signal, LogTail: d.Stderr,
	}
	if d.Signal == "" {
		code := d.Code
		f.ExitCode = &code
	}
	switch {
	case d.Reason != sandbox.ReasonNone && d.Reason != sandbox.ReasonTimeout && d.Reason != sandbox.ReasonIdle:
		return nil
	// Before the exit code and the timers: a parent that survives its child's death
	// by the limit may well exit 0, or wait for it for ever, and what it did is no
	// measure of the agent (F15, F44).
	case d.usage.OOMKills != nil && *d.usage.OOMKills > 0:
		f.Class, f.Reason, f.Code = protocol.ClassInfra, protocol.ReasonOOM, protocol.CodeOOMKilled
		f.Limit = d.memoryLimit()
		f.Hint = d.hint("memory", "memory", "resources.memoryMb declares more")
		f.Message = fmt.Sprintf("%s ran out of memory: the kernel killed %d of its processes", name, *d.usage.OOMKills)
	case d.usage.PIDsHits != nil && *d.usage.PIDsHits > 0:
		f.Class, f.Reason, f.Code = protocol.ClassInfra, protocol.ReasonPIDsExhausted, protocol.CodeComputeExecFailed
		f.Limit = d.pidsLimit()
		f.Hint = d.hint("pids", "processes", "a runner with fewer slots (--max-concurrent) gives each more")
		f.Message = fmt.Sprintf("%s could not start more processes: the limit refused %d of them", name, *d.usage.PIDsHits)
	case d.Reason == sandbox.ReasonTimeout:
		f.Reason = protocol.ReasonTimeout
		f.Limit = timeLimit("timeoutSec", d.Fired, d.Ran)
		f.Message = fmt.Sprintf("%s was still running after %s of running time (timeoutSec) and was ended", name, seconds(f.Limit.Configured))
	case d.Reason == sandbox.ReasonIdle:
		f.Reason = protocol.ReasonStalled
		f.Limit = timeLimit("idleTimeoutSec", d.Fired, d.Ran)
		f.Message = fmt.Sprintf("%s printed nothing for %s (idleTimeoutSec) and was ended", name, seconds(f.Limit.Configured))
	case d.Success():
		return nil
	case d.Signal != "":
		f.Reason = protocol.ReasonCrashed
		f.Message = fmt.Sprintf("%s was ended by %s, which Everdict did not send", name, d.Signal)
	default:
		return nil
	}
	return f
}

func timeLimit(name string, fired *sandbox.Timer, ran time.Duration) *protocol.Limit {
	l := &protocol.Limit{Name: name, Unit: "s", Measured: ran.Seconds()}
	if fired != nil {
		l.Configured, l.Measured = fired.Configured.Seconds(), fired.Measured.Seconds()
	}
	return l
}

func seconds(s float64) string { return fmt.Sprintf("%g s", s) }

// hint says of a limit that nobody declared where it comes from and what helps.
func (d Ended) hint(limit, of, helps string) string {
	for _, l := range d.info.Limits {
		if l.Name == limit && l.Default && l.Slots > 0 {
			return fmt.Sprintf("nothing is declared, so the limit is the share that one of the runner's %d slots has of the machine's %s; %s", l.Slots, of, helps)
		}
	}
	return ""
}

func (d Ended) memoryLimit() *protocol.Limit {
	for _, l := range d.info.Limits {
		if l.Name == "memory" && d.usage.PeakMemory != nil {
			return &protocol.Limit{Name: "memoryMb", Unit: "MiB", Configured: float64(l.Value) / (1 << 20), Measured: float64(*d.usage.PeakMemory) / (1 << 20)}
		}
	}
	return nil
}

func (d Ended) pidsLimit() *protocol.Limit {
	for _, l := range d.info.Limits {
		if l.Name == "pids" && d.usage.PeakPIDs != nil {
			return &protocol.Limit{Name: "pids", Unit: "processes", Configured: float64(l.Value), Measured: float64(*d.usage.PeakPIDs)}
		}
	}
	return nil
}
