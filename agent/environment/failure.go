package environment

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/protocol"
)

// configError is a spec that cannot be carried out, whoever tries it.
func configError(code protocol.Code, reason string, err error, format string, args ...any) *Error {
	return &Error{Err: err, Failure: protocol.Failure{
		Stage: protocol.StageInstall, Class: protocol.ClassConfig, Reason: reason, Code: code, Message: fmt.Sprintf(format, args...),
	}}
}

// LimitPrepare is the name of the limit on a source's fetch and on each line of setup.
const LimitPrepare = "prepareTimeout"

// LateError is a part of the preparation that was ended because it took too long.
type LateError struct{ Configured, Measured time.Duration }

// Error implements error.
func (e *LateError) Error() string {
	return fmt.Sprintf("not done after %.0f s (measured %.1f s) and ended: the limit is the case's timeoutSec, at least 30 minutes",
		e.Configured.Seconds(), e.Measured.Seconds())
}

// on makes the error a failure's reason.
func (e *LateError) on(f *protocol.Failure) {
	f.Reason = protocol.ReasonTimeout
	f.Limit = &protocol.Limit{Name: LimitPrepare, Unit: "s", Configured: e.Configured.Seconds(), Measured: e.Measured.Seconds()}
}

// hostError is a failure of the runner's machine.
func hostError(doing string, err error) *Error {
	e := &Error{Err: err, Failure: protocol.Failure{
		Stage: protocol.StageInstall, Class: protocol.ClassInfra, Reason: protocol.ReasonInternal,
		Code: protocol.CodeDriverProvisionFailed, Retryable: true, Message: fmt.Sprintf("could not %s: %v", doing, err),
	}}
	if diskFull(err) {
		e.Failure.Reason = protocol.ReasonDiskFull
	}
	return e
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// snapshotError is a state that could not be recorded. There is no result then:
// an empty diff would say that the agent did nothing.
func snapshotError(err error) *Error {
	e := &Error{Err: err, Failure: protocol.Failure{
		Stage: protocol.StageCollect, Class: protocol.ClassInfra, Reason: protocol.ReasonSnapshot,
		Code: protocol.CodeDriverSnapshotFailed, Message: fmt.Sprintf("could not record what the agent left: %v", err),
	}}
	var limit *diff.LimitError
	switch {
	case errors.As(err, &limit):
		e.Failure.Class = protocol.ClassAgent
		e.Failure.Limit = &protocol.Limit{
			Name: limit.Limit, Unit: "count", Configured: float64(limit.Configured), Measured: float64(limit.Measured),
		}
		if limit.Limit == diff.LimitPathBytes {
			e.Failure.Limit.Unit = "bytes"
		}
	case diskFull(err):
		e.Failure.Reason, e.Failure.Retryable = protocol.ReasonDiskFull, true
	}
	return e
}

// baselineError sorts the errors of diff.Take and Baseline.WriteRepository.
func baselineError(ctx context.Context, err error) error {
	var limit *diff.LimitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, diff.ErrNoGit):
		return noGit(err)
	case errors.As(err, &limit):
		return configError(protocol.CodeBadRequest, protocol.ReasonSetup, err, "the workspace is too large to be recorded: %v", limit)
	}
	return hostError("record the workspace before the agent starts", err)
}

func noGit(err error) *Error {
	return configError(protocol.CodeNotConfigured, protocol.ReasonUnsupportedByRunner, err,
		"git is not installed on this runner's machine; an environment of kind %q needs it", protocol.EnvRepo)
}
