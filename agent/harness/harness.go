// Package harness holds the role of the thing that is evaluated: a Harness
// installs and runs an agent inside a sandbox and reports what it did as trace
// events and an Outcome. The agents live in packages of their own (scripted,
// command, claudecode, codex); package builtin finds the one that a spec names.
//
// What every implementation keeps:
//
//   - The agent's standard input is closed, or fed and then closed.
//   - What the agent prints goes to Env.Stdout and Env.Stderr byte for byte, with
//     nothing added; memory stays flat whatever it prints.
//   - A number that the agent did not report is unknown (nil), never 0.
//   - An agent that exits non-zero has run: that is an error event, and its work
//     is graded. A Failure is only what kept the harness from doing its work.
package harness

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Harness runs one agent for one run. A value is used once: Install, then Run.
type Harness interface {
	// Install prepares the agent: it runs set-up lines and finds the program. It
	// returns a *protocol.Failure of stage install for what is wrong with the
	// harness or the machine, and any other error for what could not be
	// observed, such as an ended ctx.
	Install(ctx context.Context, env Env) error
	// Run starts the agent and returns when it has ended. When ctx ends first the
	// agent is stopped by its ladder, SIGINT first, and the error is ctx's cause;
	// the Outcome then still holds what is known. ErrKilled says that somebody
	// else (ComputeHandle.Kill, Release) ended it. With a nil error,
	// Outcome.Failure says whether there is a result to judge.
	Run(ctx context.Context, env Env) (Outcome, error)
}

// ErrKilled is returned by Run when the sandbox was killed or released under
// the agent: whoever did that knows why.
var ErrKilled = errors.New("harness: the sandbox was ended under the agent")

// Env is what a harness gets to work with.
type Env struct {
	RunID   string
	Case    *protocol.Case
	Spec    *protocol.HarnessSpec
	Compute sandbox.ComputeHandle
	// Root is the attempt's own directory on the host; WorkDir is the workspace
	// in it. Both are absolute.
	Root    string
	WorkDir string
	// Files is Root, opened before anything of the job ran: through it alone a
	// harness reads what the agent left.
	Files *os.Root
	// Environ is added to the sandbox's environment, "K=V": the job's resolved
	// values. It wins over the spec's literal values and over a harness's own
	// defaults.
	Environ []string
	// Base is the sandbox's own environment, "K=V": what a command sees where
	// neither the job nor the spec sets a name.
	Base []string
	// Emit receives the trace, in order, from one goroutine at a time. An event
	// without T happened now.
	Emit func(protocol.TraceEvent)
	// Stdout and Stderr receive the run's log; nil discards. Each gets one Write at
	// a time, but the two at the same time. A writer that fails gets nothing more;
	// its owner knows of it, the agent goes on.
	Stdout, Stderr io.Writer
	// Started is called once, when the agent's process has started, with its pid
	// (0 when the driver does not know it). It may be nil.
	Started func(pid int)
	// Timeout bounds the agent's running time, IdleTimeout its silence; zero is
	// no limit.
	Timeout, IdleTimeout time.Duration
}

// Timeouts returns the limits on time that a case declares, for Env.
func Timeouts(c *protocol.Case) (timeout, idle time.Duration) {
	return time.Duration(c.TimeoutSec) * time.Second, time.Duration(c.IdleTimeoutSec) * time.Second
}

// Outcome is how an agent's run ended.
type Outcome struct {
	// Exit is how the main process ended.
	Exit sandbox.Exit
	// FinalMessage is the agent's last assistant message, nil when it said none.
	FinalMessage *string
	// Usage is what the run used, with sources; nil when nothing is known.
	Usage *protocol.Usage
	// Path and Version are the program as resolved on the machine; empty when
	// unknown.
	Path, Version string
	// Failure is why there is nothing to judge; nil when the run is to be graded. The
	// executor tells it in the trace.
	Failure *protocol.Failure
}

// Literals returns the spec's environment values that are plain strings;
// references to secrets come resolved in Env.Environ.
func (e Env) Literals() []string {
	var out []string
	for name, v := range e.Spec.Env {
		if v.Secret == nil {
			out = append(out, name+"="+v.Value)
		}
	}
	return out
}

// Environment puts a command's environment together, weakest first: defaults,
// the spec's literal values, the job's resolved values, and the facts of the run.
func (e Env) Environment(defaults ...string) []string {
	out := append([]string(nil), defaults...)
	out = append(out, e.Literals()...)
	out = append(out, e.Environ...)
	return append(out, "EVERDICT_RUN_ID="+e.RunID, "EVERDICT_CASE_ID="+e.Case.ID)
}

// Lookup returns the value that a command would see of a variable.
func (e Env) Lookup(name string) (string, bool) {
	env := append(append([]string(nil), e.Base...), e.Environment()...)
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, _ := strings.Cut(env[i], "="); k == name {
			return v, true
		}
	}
	return "", false
}
