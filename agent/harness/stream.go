package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Stream reads what an agent prints on stdout, in any portions, and emits trace
// events as it understands them. It never fails: what it does not understand, it
// counts.
type Stream interface {
	io.Writer
	// Finished is closed when the agent has reported its final result.
	Finished() <-chan struct{}
	// Hopeless is closed when the agent says that it retries for ever.
	Hopeless() <-chan struct{}
	// Close takes a last line without end and returns what the stream amounts to.
	Close() Report
}

// Report is what an agent said about its own run.
type Report struct {
	// Complete: the final event was there.
	Complete     bool
	FinalMessage *string
	// Usage has sources, and is Partial when the final event is missing.
	Usage *protocol.Usage
	// APIError is the failure of the model API in the agent's words; APIStatus its
	// HTTP status, 0 when unknown.
	APIError  string
	APIStatus int
	// Stopped says why the agent ended early by its own rules (turns, budget).
	Stopped string
	// Version and Model are what the agent says it is.
	Version, Model string
	// Garbage counts lines that were no JSON object, Truncated lines that were too
	// long to read.
	Garbage, Truncated int64
}

// RunStream runs an agent whose stdout is a stream. strict is for agents whose
// stream always ends in a final event: without one they have failed.
func (e Env) RunStream(ctx context.Context, name string, cmd sandbox.Command, stream Stream, strict bool) (Outcome, error) {
	cmd.Stdout = &tee{stream, NewTail(e.Stdout, 0)}
	ended, err := e.Exec(ctx, Execution{Command: cmd, Finished: stream.Finished(), Hopeless: stream.Hopeless()})
	report := stream.Close()
	out := Outcome{Exit: ended.Exit, FinalMessage: report.FinalMessage, Usage: report.Usage, Version: report.Version}
	if err != nil {
		var failure *protocol.Failure
		if errors.As(err, &failure) {
			out.Failure = failure
			return out, nil
		}
		return out, err
	}
	out.Failure = streamFailure(name, ended, report, strict)
	switch {
	case out.Failure != nil: // who records it emits it too
	case ended.Lingered:
		e.Emit(protocol.TraceEvent{Kind: protocol.EventError, Message: name + " did not exit after its result and was ended; the result stands"})
	case !ended.Success():
		e.Emit(ended.ErrorEvent(name))
	}
	return out, nil
}

// OverlongLine is the trace event of a line that was too long to read: begin is
// what was kept of it.
func OverlongLine(begin []byte, dropped int64) protocol.TraceEvent {
	text := fmt.Sprintf("a line of %d bytes was too long to read; it begins: %s", int64(len(begin))+dropped, trace.Ends(string(begin[:min(len(begin), 8<<10)]), 4<<10))
	return protocol.TraceEvent{Kind: protocol.EventLog, Stream: protocol.StreamStdout, Text: &text, Truncated: true}
}

func streamFailure(name string, ended Ended, report Report, strict bool) *protocol.Failure {
	if report.Complete && report.APIError == "" {
		// The agent has said its last word: how its process ended takes nothing from it.
		return nil
	}
	failure := ended.Failure(name)
	if failure != nil && !ended.GivenUp {
		return failure
	}
	base := &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassHarness, Code: protocol.CodeHarnessRunFailed,
		Signal: ended.Signal, LogTail: ended.Stderr}
	if ended.Signal == "" {
		code := ended.Code
		base.ExitCode = &code
	}
	switch {
	case report.APIError != "" || ended.GivenUp:
		base.Reason = protocol.ReasonAPIError
		base.Message = name + " reports: " + protocol.Clip(report.APIError, 2000)
		base.Retryable = retryableStatus(report.APIStatus)
	case strict:
		base.Reason = protocol.ReasonCrashed
		base.Message = fmt.Sprintf("%s exited with code %d and without a final result", name, ended.Code)
		if tail := strings.TrimSpace(ended.Stderr); tail != "" {
			base.Message += ": " + protocol.Clip(tail, 500)
		}
	default:
		return nil
	}
	return base
}

// retryableStatus reports whether an API that answered so can answer otherwise
// later. An unknown status is a connection that broke.
func retryableStatus(status int) bool {
	return status == 0 || status == 408 || status == 429 || status >= 500
}

// ErrorEvent is the trace event of an exit that is no success but no failure of
// the harness either.
func (d Ended) ErrorEvent(name string) protocol.TraceEvent {
	how := fmt.Sprintf("exited with code %d", d.Code)
	if d.Signal != "" {
		how = "was ended by " + d.Signal
	}
	message := name + " " + how
	if tail := strings.TrimSpace(d.Stderr); tail != "" {
		message += "\n" + tail
	}
	return protocol.TraceEvent{Kind: protocol.EventError, Message: message}
}
