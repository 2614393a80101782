// Package codex runs the Codex CLI (`codex exec`) as a harness and reads its
// JSON stream.
//
// The login of the machine is used as it is ($CODEX_HOME or ~/.codex). With
// OPENAI_BASE_URL in the job's environment, which the CLI itself ignores, a
// provider of that address is configured, with the key in OPENAI_API_KEY.
package codex

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
)

// Harness runs Codex. Parameters: bin (the program, default "codex") and
// config.<key>, each of which becomes -c <key>=<value>.
type Harness struct {
	path string
}

var _ harness.Harness = (*Harness)(nil)

// New returns the harness.
func New() *Harness { return &Harness{} }

// ladder: on SIGINT the CLI ends its children and exits within 0.1 s; on SIGTERM
// it leaves them.
var ladder = sandbox.Ladder{
	{Signal: syscall.SIGINT, Grace: 5 * time.Second},
	{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Tree: true},
}

// Install finds the program.
func (h *Harness) Install(ctx context.Context, env harness.Env) (err error) {
	h.path, err = env.FindProgram(ctx, bin(env), "install it with: npm install -g @openai/codex")
	return err
}

// Run implements harness.Harness.
func (h *Harness) Run(ctx context.Context, env harness.Env) (harness.Outcome, error) {
	env.EmitTask()
	cmd := sandbox.Command{
		Args:   arguments(env),
		Dir:    env.WorkDir,
		Env:    environment(env),
		Stdin:  strings.NewReader(env.Case.Task),
		Ladder: ladder,
	}
	stream := NewStream(env.Emit)
	out, err := env.RunStream(ctx, "codex", cmd, stream, true)
	out.Path = h.path
	if err == nil && out.Usage == nil {
		if u := rollout(ctx, env, stream.thread); u != nil {
			out.Usage = u.total("codex:rollout.token_count")
			out.Usage.Partial = true
			env.Emit(u.aggregate(&usage{}))
		}
	}
	return out, err
}

func bin(env harness.Env) string {
	if b := env.Spec.Params["bin"]; b != "" {
		return b
	}
	return "codex"
}

func environment(env harness.Env) []string {
	// `codex exec` reads the built-in provider's key from CODEX_API_KEY only.
	if key, ok := env.Lookup("OPENAI_API_KEY"); ok {
		return env.Environment("CODEX_API_KEY=" + key)
	}
	return env.Environment()
}

// fixed settings: nothing but the model's API is spoken to, and a connection is
// retried for seconds. The sandbox around the agent is Everdict's.
var fixed = []string{
	"exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
	"-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
	"-c", "features.plugins=false", "-c", "features.apps=false",
}

func arguments(env harness.Env) []string {
	args := append([]string{bin(env)}, fixed...)
	if base, ok := env.Lookup("OPENAI_BASE_URL"); ok && base != "" {
		args = append(args, "-c", `model_provider="everdict"`, "-c",
			`model_providers.everdict={name="everdict",base_url=`+strconv.Quote(base)+
				`,env_key="OPENAI_API_KEY",wire_api="responses",request_max_retries=2,stream_max_retries=2}`)
	}
	if m := env.Spec.Model.String(); m != "" {
		args = append(args, "-m", m)
	}
	for _, param := range slices.Sorted(maps.Keys(env.Spec.Params)) {
		if key, ok := strings.CutPrefix(param, "config."); ok {
			args = append(args, "-c", key+"="+env.Spec.Params[param])
		}
	}
	return append(args, "-")
}
