// Package grader judges what an agent did: each grader of a case looks at the
// workspace, the trace or the answer and says scores about it.
//
// Graders that need compute run their commands in the attempt's sandbox, after
// the agent has ended; their own files are put in place only then. A grader that
// fails, panics or takes too long yields an unmeasured score, never an error and
// never a number. Patterns are Go regular expressions (RE2): linear in time, no
// look-around and no back-references.
package grader

import (
	"context"
	"io"
	"os"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Grader produces the scores of one grader spec. An error becomes an unmeasured
// grader_error; a *Unmeasured chooses another reason.
type Grader interface {
	Grade(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error)
}

// Func is a function as a Grader.
type Func func(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error)

// Grade implements Grader.
func (f Func) Grade(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	return f(ctx, in, spec)
}

// Input is what graders look at.
type Input struct {
	RunID string
	Case  *protocol.Case
	// Harness is the spec of what ran; nil when unknown.
	Harness *protocol.HarnessSpec
	// Compute is the attempt's sandbox. Nil: graders that need it are unmeasured.
	Compute sandbox.ComputeHandle
	// Root is the attempt's own directory on the host, WorkDir the workspace.
	Root, WorkDir string
	// Files is Root, opened before anything of the job ran: a grader reaches the attempt's files through it alone. Graders
	// without compute do without it.
	Files *os.Root
	// Environ is added to the sandbox's environment for grader commands, "K=V".
	Environ []string
	// Snapshot is the state of the environment after the agent ended.
	Snapshot protocol.Snapshot
	// Trace is the summary of the trace.
	Trace trace.Summary
	// OpenTrace opens the recorded trace (JSON lines); nil: there is none.
	OpenTrace func() (io.ReadCloser, error)
	// FinalMessage is the agent's last assistant message; nil takes the trace's.
	FinalMessage *string
	// Usage is what the harness reported; nil takes what the trace sums up to.
	Usage *protocol.Usage
	// Log receives what grader commands print, one Write at a time; nil discards.
	Log io.Writer
}

// Registry maps grader ids to graders.
type Registry map[string]Grader
