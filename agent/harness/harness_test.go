package harness

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

func ptr[T any](v T) *T { return &v }

func TestP8_FailuresByFacts(t *testing.T) {
	t.Parallel()
	limits := sandbox.Info{Limits: []sandbox.Limit{{Name: "memory", Value: 512 << 20}, {Name: "pids", Value: 64}}}
	shares := sandbox.Info{Limits: []sandbox.Limit{{Name: "memory", Value: 512 << 20, Default: true, Slots: 40}, {Name: "pids", Value: 64, Default: true, Slots: 40}}}
	oom := sandbox.Usage{OOMKills: ptr[int64](2), PeakMemory: ptr[int64](511 << 20)}
	tests := []struct {
		name  string
		ended Ended
		want  *protocol.Failure
	}{
		{"success", Ended{}, nil},
		{"an OOM kill among its children, which it survived", Ended{usage: oom, info: limits}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonOOM, Code: protocol.CodeOOMKilled, ExitCode: ptr(0),
			Message: "it ran out of memory: the kernel killed 2 of its processes",
			Limit:   &protocol.Limit{Name: "memoryMb", Unit: "MiB", Configured: 512, Measured: 511},
		}},
		{"an OOM kill for a share that nobody declared", Ended{usage: oom, info: shares}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonOOM, Code: protocol.CodeOOMKilled, ExitCode: ptr(0),
			Message: "it ran out of memory: the kernel killed 2 of its processes",
			Hint:    "nothing is declared, so the limit is the share that one of the runner's 40 slots has of the machine's memory; resources.memoryMb declares more",
			Limit:   &protocol.Limit{Name: "memoryMb", Unit: "MiB", Configured: 512, Measured: 511},
		}},
		{"a non-zero exit", Ended{Exit: sandbox.Exit{Code: 1}}, nil},
		{"137 alone is no OOM", Ended{Exit: sandbox.Exit{Code: 137}}, nil},
		{"137 with unknown facts is no OOM", Ended{Exit: sandbox.Exit{Code: 137}, usage: sandbox.Usage{OOMKills: ptr[int64](0)}}, nil},
		{"137 and OOM kills", Ended{Exit: sandbox.Exit{Code: 137}, usage: oom, info: limits}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonOOM, Code: protocol.CodeOOMKilled, ExitCode: ptr(137),
			Message: "it ran out of memory: the kernel killed 2 of its processes",
			Limit:   &protocol.Limit{Name: "memoryMb", Unit: "MiB", Configured: 512, Measured: 511}}},
		{"SIGKILL and OOM kills, peak unknown", Ended{Exit: sandbox.Exit{Code: -1, Signal: "SIGKILL"}, usage: sandbox.Usage{OOMKills: ptr[int64](1)}, info: limits}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonOOM, Code: protocol.CodeOOMKilled, Signal: "SIGKILL",
			Message: "it ran out of memory: the kernel killed 1 of its processes"}},
		{"forks refused", Ended{Exit: sandbox.Exit{Code: 2}, usage: sandbox.Usage{PIDsHits: ptr[int64](9), PeakPIDs: ptr[int64](64)}, info: limits}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonPIDsExhausted, Code: protocol.CodeComputeExecFailed, ExitCode: ptr(2),
			Message: "it could not start more processes: the limit refused 9 of them",
			Limit:   &protocol.Limit{Name: "pids", Unit: "processes", Configured: 64, Measured: 64}}},
		{"forks refused for a share", Ended{Exit: sandbox.Exit{Code: 2}, usage: sandbox.Usage{PIDsHits: ptr[int64](9), PeakPIDs: ptr[int64](64)}, info: shares}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonPIDsExhausted, Code: protocol.CodeComputeExecFailed, ExitCode: ptr(2),
			Message: "it could not start more processes: the limit refused 9 of them",
			Hint:    "nothing is declared, so the limit is the share that one of the runner's 40 slots has of the machine's processes; a runner with fewer slots (--max-concurrent) gives each more",
			Limit:   &protocol.Limit{Name: "pids", Unit: "processes", Configured: 64, Measured: 64}}},
		{"a signal", Ended{Exit: sandbox.Exit{Code: -1, Signal: "SIGABRT"}, Stderr: "core"}, &protocol.Failure{
			Class: protocol.ClassHarness, Reason: protocol.ReasonCrashed, Code: protocol.CodeHarnessRunFailed, Signal: "SIGABRT", LogTail: "core",
			Message: "it was ended by SIGABRT, which Everdict did not send"}},
		{"a timeout with exit code 0", Ended{Exit: sandbox.Exit{Reason: sandbox.ReasonTimeout, Fired: &sandbox.Timer{Name: "timeout", Configured: time.Minute, Measured: 61 * time.Second}}}, &protocol.Failure{
			Class: protocol.ClassHarness, Reason: protocol.ReasonTimeout, Code: protocol.CodeHarnessRunFailed, ExitCode: ptr(0),
			Message: "it was still running after 60 s of running time (timeoutSec) and was ended",
			Limit:   &protocol.Limit{Name: "timeoutSec", Unit: "s", Configured: 60, Measured: 61}}},
		{"a limit that was met wins over the timer", Ended{Exit: sandbox.Exit{Code: -1, Signal: "SIGKILL", Reason: sandbox.ReasonTimeout, Fired: &sandbox.Timer{Configured: 5 * time.Second, Measured: 5 * time.Second}},
			usage: sandbox.Usage{PIDsHits: ptr[int64](3), PeakPIDs: ptr[int64](64)}, info: limits}, &protocol.Failure{
			Class: protocol.ClassInfra, Reason: protocol.ReasonPIDsExhausted, Code: protocol.CodeComputeExecFailed, Signal: "SIGKILL",
			Message: "it could not start more processes: the limit refused 3 of them",
			Limit:   &protocol.Limit{Name: "pids", Unit: "processes", Configured: 64, Measured: 64}}},
		{"a timer wins over the signal that it sent", Ended{Exit: sandbox.Exit{Code: -1, Signal: "SIGKILL", Reason: sandbox.ReasonIdle, Fired: &sandbox.Timer{Configured: 5 * time.Second, Measured: 5 * time.Second}}}, &protocol.Failure{
			Class: protocol.ClassHarness, Reason: protocol.ReasonStalled, Code: protocol.CodeHarnessRunFailed, Signal: "SIGKILL",
			Message: "it printed nothing for 5 s (idleTimeoutSec) and was ended",
			Limit:   &protocol.Limit{Name: "idleTimeoutSec", Unit: "s", Configured: 5, Measured: 5}}},
		{"stopped by us", Ended{Exit: sandbox.Exit{Code: -1, Signal: "SIGKILL", Reason: sandbox.ReasonStopped}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.want != nil {
				tt.want.Stage = protocol.StageRun
			}
			if d := cmp.Diff(tt.want, tt.ended.Failure("it")); d != "" {
				t.Errorf("failure (-want +got):\n%s", d)
			}
		})
	}
}

func TestEnvironmentOrder(t *testing.T) {
	t.Parallel()
	e := Env{
		RunID: "r", Case: &protocol.Case{ID: "c"},
		Spec:    &protocol.HarnessSpec{Env: map[string]protocol.EnvValue{"A": {Value: "spec"}, "B": {Value: "spec"}, "S": {Secret: &protocol.SecretRef{SecretRef: "s"}}}},
		Environ: []string{"B=job", "S=resolved=value", "EVERDICT_RUN_ID=forged"},
	}
	last := map[string]string{}
	for _, kv := range e.Environment("A=default", "D=default") {
		k, v, _ := strings.Cut(kv, "=")
		last[k] = v
	}
	want := map[string]string{"A": "spec", "B": "job", "D": "default", "S": "resolved=value", "EVERDICT_RUN_ID": "r", "EVERDICT_CASE_ID": "c"}
	if d := cmp.Diff(want, last); d != "" {
		t.Errorf("values that count (-want +got):\n%s", d)
	}
	if v, ok := e.Lookup("S"); !ok || v != "resolved=value" {
		t.Errorf("Lookup: %q, %v", v, ok)
	}
	if _, ok := e.Lookup("D"); ok {
		t.Error("Lookup finds what nobody set")
	}
}

type failing struct{ calls int }

func (f *failing) Write(p []byte) (int, error) { f.calls++; return 0, errors.New("disk full") }

func TestTail(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	tail := NewTail(&all, 10)
	for _, s := range []string{"ab", "cdefghij", "k", "", strings.Repeat("x", 100) + "0123456789"} {
		tail.Write([]byte(s))
	}
	if tail.String() != "0123456789" || !tail.Cut() || all.Len() != 121 {
		t.Errorf("tail %q, cut %v, %d bytes passed on", tail.String(), tail.Cut(), all.Len())
	}
	f := &failing{}
	tail = NewTail(f, 4)
	for range 3 {
		if n, err := tail.Write([]byte("ab")); n != 2 || err != nil {
			t.Errorf("Write: %d, %v: a log that fails must not end the agent", n, err)
		}
	}
	if tail.String() != "abab" || f.calls != 1 {
		t.Errorf("tail %q after %d calls of a failed writer", tail.String(), f.calls)
	}
}

func TestRetryableStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{0: true, 400: false, 401: false, 403: false, 408: true, 413: false, 429: true, 500: true, 529: true} {
		if got := retryableStatus(status); got != want {
			t.Errorf("status %d: retryable %v, want %v", status, got, want)
		}
	}
}
