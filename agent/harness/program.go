package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// FindProgram returns where the sandbox finds a program, or a *protocol.Failure
// of stage install with a hint when it does not.
func (e Env) FindProgram(ctx context.Context, name, hint string, defaults ...string) (string, error) {
	found := NewTail(nil, 4096)
	p, err := e.Compute.Exec(ctx, sandbox.Command{
		Args:    []string{"sh", "-c", `command -v -- "$1"`, "sh", name},
		Dir:     e.WorkDir,
		Env:     e.Environment(defaults...),
		Stdout:  found,
		Timeout: 30 * time.Second,
	})
	if err != nil {
		return "", e.startError(ctx, protocol.StageInstall, "sh", err)
	}
	exit, _, _, err := attend(ctx, p, Execution{})
	if err != nil {
		return "", err
	}
	if exit.Reason == sandbox.ReasonKilled || exit.Reason == sandbox.ReasonStopped {
		return "", ErrKilled
	}
	path := strings.TrimSpace(found.String())
	if !exit.Success() || path == "" {
		return "", &protocol.Failure{
			Stage: protocol.StageInstall, Class: protocol.ClassHarness, Reason: protocol.ReasonMissing, Code: protocol.CodeHarnessInstallFailed,
			Message: fmt.Sprintf("the program %s is not on this machine's PATH: %s", name, hint),
		}
	}
	return path, nil
}

// EmitTask begins a trace with what the agent is asked to do.
func (e Env) EmitTask() {
	e.Emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "user", Text: &e.Case.Task})
}

// Quote is s as one literal word of a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
