package grader

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// testsPass runs a command in the workspace: exit code 0 passes.
func testsPass(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.TestsPassConfig)
	r, err := in.run(ctx, job{args: shell(cfg.Cmd), cwd: cfg.Cwd, timeoutSec: cfg.TimeoutSec})
	if err != nil {
		return nil, err
	}
	s := protocol.MeasuredPass(spec.ID, protocol.MetricTestsPass, r.pass())
	s.Detail = r.detail()
	return []protocol.Score{s}, nil
}

// command is testsPass under a metric of the case's own, decided by the exit
// code or, where given, by a pattern in the output.
func command(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.CommandConfig)
	if cfg.ApplyPatch != "" {
		if err := in.applyPatch(ctx, cfg); err != nil {
			return nil, err
		}
	}
	r, err := in.run(ctx, job{args: shell(cfg.Cmd), cwd: cfg.Cwd, timeoutSec: cfg.TimeoutSec})
	if err != nil {
		return nil, err
	}
	pass := r.pass()
	if cfg.PassPattern != "" {
		re, err := regexp.Compile(cfg.PassPattern)
		if err != nil {
			return nil, err
		}
		pass = re.Match(r.out.Bytes())
	}
	s := protocol.MeasuredPass(cfg.ID, cfg.Metric, pass)
	s.Detail = r.detail()
	return []protocol.Score{s}, nil
}

// applyPatch lays a patch over what the agent left. A patch that does not apply as
// a whole says nothing about the agent: the grader has no number then.
func (in *Input) applyPatch(ctx context.Context, cfg *protocol.CommandConfig) error {
	dir, err := in.private("grader/patch")
	if err != nil {
		return err
	}
	defer dir.remove()
	patch := cfg.ApplyPatch
	if !strings.HasSuffix(patch, "\n") {
		patch += "\n"
	}
	if err := dir.write("change.patch", []byte(patch), 0o644); err != nil {
		return err
	}
	file := filepath.Join(dir.path, "change.patch")
	cwd := cfg.Cwd
	if strings.HasPrefix(cwd, "work/") && gitPatch.MatchString(patch) {
		cwd = "work" // such a patch names its files from the top of the repository
	}
	// The agent decides what is a repository here, and in a directory of one git passes over what lies outside of that
	// directory, without an error. So git is to see none, and nothing of the agent's configuration.
	r, err := in.run(ctx, job{args: []string{"git", "--git-dir=/nonexistent", "apply", "--verbose", "--whitespace=nowarn", file}, cwd: cwd, timeoutSec: 120,
		env: []string{"LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}})
	if err != nil {
		return err
	}
	if said := r.out.Bytes(); !r.pass() || !patchApplied.Match(said) || patchSkipped.Match(said) {
		return fmt.Errorf("config.applyPatch does not apply: %s", r.detail())
	}
	return nil
}

// gitPatch is what tells a patch in git's own format; the others are what git apply says of a patch of one file.
var (
	gitPatch     = regexp.MustCompile(`(?m)^diff --git `)
	patchApplied = regexp.MustCompile(`(?m)^Applied patch .* cleanly\.$`)
	patchSkipped = regexp.MustCompile(`(?m)^Skipped patch `)
)

// scriptScore reads a number out of what a command prints. No number is a score
// of 0.
func scriptScore(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.ScriptScoreConfig)
	re, err := regexp.Compile(cfg.ScorePattern)
	if err != nil {
		return nil, err
	}
	r, err := in.run(ctx, job{args: shell(cfg.Cmd), cwd: cfg.Cwd, timeoutSec: cfg.TimeoutSec})
	if err != nil {
		return nil, err
	}
	value, found := firstNumber(re, r.out.Bytes())
	pass := found && value >= *cfg.PassThreshold
	s := protocol.Measured(cfg.ID, cfg.Metric, value)
	s.Pass = &pass
	s.Detail = r.detail()
	if !found {
		s.Detail = clipDetail("no number matches " + cfg.ScorePattern + "\n" + s.Detail)
	}
	return []protocol.Score{s}, nil
}
