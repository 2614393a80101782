// Package claudecode runs Claude Code (`claude -p`) as a harness and reads its
// JSON stream.
//
// The login of the machine is used as it is: the CLI finds it in the job's HOME,
// or a key in ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN.
package claudecode

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
)

// Harness runs Claude Code. Parameters: maxTurns, maxBudgetUsd,
// appendSystemPrompt, bin (the program, default "claude").
type Harness struct {
	path string
}

var _ harness.Harness = (*Harness)(nil)

// New returns the harness.
func New() *Harness { return &Harness{} }

// defaults are overridden by whatever the job sets.
var defaults = []string{
	// Without it the CLI refuses --dangerously-skip-permissions as root.
	"IS_SANDBOX=1",
	// Nothing but the model's API is spoken to.
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1",
	// By itself it retries for three minutes, a refused key included.
	"CLAUDE_CODE_MAX_RETRIES=2",
}

// ladder: on SIGINT the CLI prints its result with cost and exits within 0.2 s;
// on SIGTERM it leaves its children.
var ladder = sandbox.Ladder{
	{Signal: syscall.SIGINT, Grace: 5 * time.Second},
	{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Tree: true},
}

// Install finds the program.
func (h *Harness) Install(ctx context.Context, env harness.Env) (err error) {
	h.path, err = env.FindProgram(ctx, bin(env), "install it with: npm install -g @anthropic-ai/claude-code", defaults...)
	return err
}

// Run implements harness.Harness.
func (h *Harness) Run(ctx context.Context, env harness.Env) (harness.Outcome, error) {
	env.EmitTask()
	cmd := sandbox.Command{
		Args: arguments(env),
		Dir:  env.WorkDir,
		Env:  env.Environment(defaults...),
		// As an argument the prompt would be limited to 128 KiB.
		Stdin:  strings.NewReader(env.Case.Task),
		Ladder: ladder,
	}
	out, err := env.RunStream(ctx, "claude", cmd, NewStream(env.Emit), true)
	out.Path = h.path
	return out, err
}

func bin(env harness.Env) string {
	if b := env.Spec.Params["bin"]; b != "" {
		return b
	}
	return "claude"
}

func arguments(env harness.Env) []string {
	args := []string{bin(env), "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"}
	if m := env.Spec.Model.String(); m != "" {
		args = append(args, "--model", m)
	}
	for _, p := range []struct{ param, flag string }{
		{"maxTurns", "--max-turns"}, {"maxBudgetUsd", "--max-budget-usd"}, {"appendSystemPrompt", "--append-system-prompt"},
	} {
		if v := env.Spec.Params[p.param]; v != "" {
			args = append(args, p.flag, v)
		}
	}
	return args
}
