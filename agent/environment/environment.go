// Package environment prepares what an agent works in and records what it left:
// kind "repo" is a directory with files and a fresh git repository around them,
// kind "prompt" is nothing but the task.
//
// The agent sees Attempt.Root/work. Beside it lies Attempt.Private, which holds
// the baseline's own object store and is never mounted into a sandbox. The
// repository in the workspace is one commit without parents in a new object
// store: no remote, tag, stash, reflog, alternate or unreachable object of the
// source comes along, so that no answer is in the history (F47). The baseline is
// taken after setup has run and before the agent starts.
package environment

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/protocol"
)

// WorkDir is the name of the workspace under Attempt.Root.
const WorkDir = "work"

// Environment is one kind of environment.
type Environment interface {
	// Kind is the kind of the specs that it prepares: "repo".
	Kind() string
	// Prepare makes the environment of an attempt. It returns a *Error when the
	// spec cannot be carried out, ctx's error when that has ended. What it has made is
	// removed again after an error; where that fails too, the *Error says so (Leftover).
	Prepare(ctx context.Context, a Attempt) (Prepared, error)
}

// Prepared is the environment of one attempt. It is used by one goroutine at a
// time.
type Prepared interface {
	// Dir is the absolute path of the directory that the agent works in.
	Dir() string
	// Baseline is the id of the commit that the workspace starts from, "" without one.
	Baseline() string
	// Snapshot records the state of the environment. It can be called repeatedly,
	// also while the agent runs. Its error is a *Error of stage collect.
	Snapshot(ctx context.Context) (*Snapshot, error)
	// Cleanup removes everything that Prepare made, links inside never followed,
	// and is idempotent. After an error something is left: the slot's
	// directory must not be used again and has to be reported.
	Cleanup(ctx context.Context) error
}

// Attempt is what Prepare needs to know of an attempt.
type Attempt struct {
	// Root is the attempt's directory on the host, absolute. It exists; WorkDir
	// below it does not.
	Root string
	// Files is Root, opened before anything of the attempt ran: what a job can have
	// changed is reached through it alone. It stays open until after Cleanup.
	Files *os.Root
	// Private is a directory that no sandbox of this attempt can reach. It must
	// not exist nor lie in WorkDir; it is created when it is needed. Empty is Root/private, for
	// a caller that mounts no more of Root than WorkDir.
	Private string
	Spec    protocol.EnvSpec
	// Token authenticates the fetch of Spec.Source.Git over HTTP; empty for
	// none. It reaches git by its environment alone (P12).
	Token string
	// Exec runs a command of Spec.Setup inside the sandbox; it is needed only
	// when there are any.
	Exec Exec
	// Limit bounds the fetch of Spec.Source.Git; what Exec runs it bounds itself, in
	// running time. 0 is no limit.
	Limit time.Duration
	// Progress receives lines for the run's log: what is fetched, setup's output.
	// Nil discards them.
	Progress io.Writer
	// Redact masks secrets in what a snapshot carries and names; nil masks nothing.
	Redact *redact.Redactor
}

// Exec runs one line with the sandbox's shell in dir, an absolute path on the
// host, writes what it prints to output, and returns its exit code. The error is about a
// command that could not be run or watched to its end; a *LateError about one that took too long.
type Exec func(ctx context.Context, line, dir string, output io.Writer) (exitCode int, err error)

// Snapshot is the state of an environment after an agent.
type Snapshot struct {
	// Document is the snapshot as the result carries it. Its Diff is empty: the
	// diff can be large and travels as evidence, from Diff. The Output of a prompt
	// environment is filled by the executor, who knows the agent's last message.
	Document protocol.Snapshot
	// Diff is nil for environments without a workspace.
	Diff *diff.Snapshot
}

// Config has what all environments of a runner share. The zero value works.
type Config struct {
	// Git is the git program; empty looks up "git" in PATH.
	Git string
	// MachineGit lets the fetch of a source use the machine's own git
	// configuration, SSH keys and credential helpers. It is for a runner that acts as its owner;
	// without it only Attempt.Token authenticates.
	MachineGit bool
	// Hidden tells the files and directories of this machine that no source may be,
	// hold or lie in, such as the runner's state. It is asked for each source that
	// is read from the disk. What does not exist is passed over. Nil tells none.
	Hidden func() []string
	// Limits bound what a snapshot carries.
	Limits diff.Limits
	// Logger receives what went wrong beside the result; nil discards.
	Logger *slog.Logger
}

// Set has the environments of a runner, by kind.
type Set struct{ kinds map[string]Environment }

// NewSet returns the environments that this package has: repo and prompt.
func NewSet(c Config) *Set {
	return SetOf(NewRepo(c), Prompt{})
}

// SetOf returns a set of the given environments.
func SetOf(all ...Environment) *Set {
	s := &Set{kinds: make(map[string]Environment, len(all))}
	for _, e := range all {
		s.kinds[e.Kind()] = e
	}
	return s
}

// Prepare prepares the environment that a.Spec names.
func (s *Set) Prepare(ctx context.Context, a Attempt) (Prepared, error) {
	e, ok := s.kinds[a.Spec.Kind]
	if !ok {
		return nil, &Error{Failure: protocol.Failure{
			Stage: protocol.StageInstall, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner,
			Code:    protocol.CodeBadRequest,
			Message: fmt.Sprintf("this runner has no environment of kind %q", protocol.Clip(a.Spec.Kind, 40)),
		}}
	}
	return e.Prepare(ctx, a)
}

// Error is an environment that could not be prepared or recorded, as the run's
// failure will say it.
type Error struct {
	// Failure is complete but for what the executor adds (RunnerID).
	Failure protocol.Failure
	// Err is the cause, if it has one.
	Err error
	// Leftover is why what Prepare had made could not be removed; nil when
	// nothing is left.
	Leftover error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Leftover != nil {
		return fmt.Sprintf("environment: %s (and cleaning up failed: %v)", e.Failure.Message, e.Leftover)
	}
	return "environment: " + e.Failure.Message
}

// Unwrap returns the causes.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Err, e.Leftover}, func(err error) bool { return err == nil })
}
