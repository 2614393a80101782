// Package command runs a harness that is data: a command line with placeholders,
// set-up lines, and a description of where its trace is.
//
// Placeholders are {{task}} (a quoted shell literal), {{model}}, {{run_id}} and
// the names of the spec's parameters, which are put in as they are. The result is
// one pass: what a value contains is not looked at again. Other {{names}} stay.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/claudecode"
	"github.com/everdict/everdict/agent/harness/codex"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// How much of the output becomes trace events, as existing clients expect.
const (
	maxAnswer    = 32000
	maxStderrLog = 16000
)

// maxArgument is how long a command line may be to be an argument of sh; Linux
// allows 128 KiB. Longer ones are fed through a pipe.
const maxArgument = 96 << 10

// Harness runs a command harness.
type Harness struct{}

var _ harness.Harness = (*Harness)(nil)

// ladder signals every process from the start: the main process is a shell,
// which does not pass a signal on to the agent that it waits for.
var ladder = sandbox.Ladder{
	{Signal: syscall.SIGINT, Grace: 5 * time.Second, Tree: true},
	{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Tree: true},
}

// New returns the harness.
func New() *Harness { return &Harness{} }

// Install runs the set-up lines in order; one that exits non-zero ends it.
func (h *Harness) Install(ctx context.Context, env harness.Env) error {
	for i, line := range env.Spec.Setup {
		if err := h.setup(ctx, env, i, line); err != nil {
			return err
		}
	}
	return nil
}

func (h *Harness) setup(ctx context.Context, env harness.Env, i int, line string) error {
	out := harness.NewTail(env.Stdout, 2000)
	quiet := env
	quiet.Started = nil
	ended, err := quiet.Exec(ctx, harness.Execution{Command: sandbox.Command{
		Args: []string{"sh", "-c", line}, Dir: dir(env), Env: environment(env), Stdout: out, Ladder: ladder,
	}})
	var failure *protocol.Failure
	switch {
	case errors.As(err, &failure):
	case err != nil:
		return err
	default:
		failure = ended.Failure(fmt.Sprintf("setup line %d (%s)", i+1, protocol.Clip(line, 80)))
		if failure == nil && ended.Success() {
			return nil
		}
	}
	if failure == nil {
		code := ended.Code
		failure = &protocol.Failure{Class: protocol.ClassHarness, Reason: protocol.ReasonSetup, ExitCode: &code,
			Message: fmt.Sprintf("setup line %d exited with code %d: %s", i+1, ended.Code, protocol.Clip(line, 200))}
	}
	failure.Stage = protocol.StageInstall
	if failure.Class == protocol.ClassHarness {
		failure.Code = protocol.CodeHarnessInstallFailed
	}
	failure.LogTail = strings.TrimSpace(out.String() + "\n" + ended.Stderr)
	return failure
}

// Run implements harness.Harness.
func (h *Harness) Run(ctx context.Context, env harness.Env) (harness.Outcome, error) {
	env.EmitTask()
	cmd := sandbox.Command{Dir: dir(env), Env: environment(env), Ladder: ladder}
	line := Expand(env.Spec.Command, env)
	cmd.Args = []string{"sh", "-c", line}
	if len(line) > maxArgument {
		// The shell reads the line from the pipe and leaves the agent an input that
		// has ended.
		cmd.Args = []string{"sh", "-c", `eval "$(cat)"`}
		cmd.Stdin = strings.NewReader(line)
	}
	switch traceKind(env.Spec) {
	case protocol.TraceClaudeCode:
		return h.runStream(ctx, env, cmd, line, claudecode.NewStream(env.Emit))
	case protocol.TraceCodex:
		return h.runStream(ctx, env, cmd, line, codex.NewStream(env.Emit))
	}
	return h.runPlain(ctx, env, cmd, line)
}

func (h *Harness) runStream(ctx context.Context, env harness.Env, cmd sandbox.Command, line string, s harness.Stream) (harness.Outcome, error) {
	out, err := env.RunStream(ctx, env.Spec.ID, cmd, s, false)
	env.Emit(exitEvent(line, out.Exit))
	return out, err
}

// runPlain takes stdout as the answer, or the trace from a file.
func (h *Harness) runPlain(ctx context.Context, env harness.Env, cmd sandbox.Command, line string) (harness.Outcome, error) {
	stdout := harness.NewTail(env.Stdout, maxAnswer)
	stderr := harness.NewTail(env.Stderr, maxStderrLog)
	cmd.Stdout = stdout
	env.Stderr = stderr
	ended, err := env.Exec(ctx, harness.Execution{Command: cmd})
	out := harness.Outcome{Exit: ended.Exit}
	var failure *protocol.Failure
	if errors.As(err, &failure) {
		out.Failure = failure
		return out, nil
	}
	env.Emit(exitEvent(line, ended.Exit))
	if out.Failure = ended.Failure(env.Spec.ID); out.Failure == nil && err == nil && !ended.Success() {
		env.Emit(ended.ErrorEvent(env.Spec.ID))
		out.Failure = missing(ended, line)
	}
	if traceKind(env.Spec) == protocol.TraceFile {
		h.fileTrace(env, ended.Started, &out)
	}
	h.output(env, stdout, stderr, &out)
	return out, err
}

// notFound is the exit code of a shell that found no such program (POSIX).
const notFound = 127

// missing is the failure of a command line whose program is not there: nothing has
// run, and nothing is to be judged. A shell says so by its exit code and by name;
// the code alone may be the agent's own.
func missing(ended harness.Ended, line string) *protocol.Failure {
	program, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if ended.Code != notFound || !strings.Contains(ended.Stderr, program+": ") || !strings.Contains(ended.Stderr, "not found") {
		return nil
	}
	code := notFound
	return &protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassHarness, Reason: protocol.ReasonMissing,
		Code: protocol.CodeHarnessRunFailed, ExitCode: &code, LogTail: ended.Stderr,
		Message: fmt.Sprintf("the shell found no %s on the machine that ran it", protocol.Clip(program, 80))}
}

// output emits what the command printed: the answer, where the trace has none.
func (h *Harness) output(env harness.Env, stdout, stderr *harness.Tail, out *harness.Outcome) {
	if text := strings.TrimSpace(stdout.String()); text != "" {
		ev := protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stdout", Text: &text, Truncated: stdout.Cut()}
		if out.FinalMessage == nil {
			ev.Kind, ev.Stream, ev.Role = protocol.EventMessage, "", "assistant"
			out.FinalMessage = &text
		}
		env.Emit(ev)
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		env.Emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stderr", Text: &text, Truncated: stderr.Cut()})
	}
}

func exitEvent(line string, exit sandbox.Exit) protocol.TraceEvent {
	detail := map[string]any{
		"command": protocol.Clip(line, 4000), "exitCode": exit.Code, "durationMs": exit.Ran.Seconds() * 1000,
	}
	if exit.Signal != "" {
		detail["signal"] = exit.Signal
	}
	b, _ := json.Marshal(detail)
	return protocol.TraceEvent{Kind: protocol.EventEnvAction, Action: "command.exit", Detail: b}
}

func traceKind(spec *protocol.HarnessSpec) string {
	if spec.Trace == nil || spec.Trace.Kind == "" {
		return protocol.TraceNone
	}
	return spec.Trace.Kind
}

// dir is the command's working directory: the workspace, or the spec's workDir
// below the attempt's root.
func dir(env harness.Env) string {
	switch wd := env.Spec.WorkDir; {
	case wd == "" || wd == "work":
		return env.WorkDir
	case strings.HasPrefix(wd, "work/"):
		return filepath.Join(env.WorkDir, filepath.FromSlash(strings.TrimPrefix(wd, "work/")))
	default:
		return filepath.Join(env.Root, filepath.FromSlash(wd))
	}
}

func environment(env harness.Env) []string {
	var facts []string
	if traceKind(env.Spec) != protocol.TraceNone {
		facts = []string{"OTEL_RESOURCE_ATTRIBUTES=everdict.run_id=" + env.RunID, "TRACEPARENT=" + traceparent(env.RunID)}
	}
	return env.Environment(facts...)
}

var placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}`)

// Expand puts the values of a run into a command line.
func Expand(line string, env harness.Env) string {
	return placeholder.ReplaceAllStringFunc(line, func(found string) string {
		switch name := placeholder.FindStringSubmatch(found)[1]; name {
		case "task":
			return harness.Quote(env.Case.Task)
		case "model":
			return env.Spec.Model.String()
		case "run_id":
			return env.RunID
		default:
			if v, ok := env.Spec.Params[name]; ok {
				return v
			}
			return found
		}
	})
}
