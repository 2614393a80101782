package grader

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// Variables that tell a reward-file command where its directories are.
const (
	EnvTestsDir  = "EVERDICT_TESTS_DIR"
	EnvRewardDir = "EVERDICT_REWARD_DIR"
)

// rewardFile puts test files in place, runs a command and reads the reward that
// it leaves: reward.json (a flat object of numbers) or else reward.txt (one
// number).
//
// testsDir and rewardDir are absolute paths of the sandbox's own root. In a
// sandbox that shares the host's file system they would be the host's /tests and
// /logs, so they lie below the attempt's own directory instead. The command
// finds them in EVERDICT_TESTS_DIR and EVERDICT_REWARD_DIR; where its own text
// names the configured paths, they are replaced. Paths inside the test files
// are left as they are: write them with the variables.
func rewardFile(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.RewardFileConfig)
	tests, err := in.private(strings.TrimPrefix(cfg.TestsDir, "/"))
	if err != nil {
		return nil, err
	}
	defer tests.close()
	reward, err := in.private(strings.TrimPrefix(cfg.RewardDir, "/"))
	if err != nil {
		return nil, err
	}
	defer reward.close()
	if err := reward.world(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Files)) {
		if err := tests.write(name, []byte(cfg.Files[name]), 0o755); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	line := cfg.Cmd
	if line == "" {
		line = `bash "$` + EnvTestsDir + `/test.sh"`
	}
	line = replaceDir(line, cfg.TestsDir, tests.path)
	line = replaceDir(line, cfg.RewardDir, reward.path)
	env := []string{EnvTestsDir + "=" + tests.path, EnvRewardDir + "=" + reward.path}
	for _, name := range slices.Sorted(maps.Keys(cfg.Env)) {
		env = append(env, name+"="+cfg.Env[name])
	}
	r, err := in.run(ctx, job{args: shell(line), cwd: cfg.Cwd, env: env, timeoutSec: cfg.TimeoutSec})
	if err != nil {
		return nil, err
	}
	rewards, err := readReward(reward)
	if err != nil {
		return nil, err
	}
	if rewards == nil {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: fmt.Sprintf(
			"the command left neither reward.json nor reward.txt in %s (exit code %d)\n%s", cfg.RewardDir, r.exit.Code, r.detail())}
	}
	return rewardScores(cfg, rewards, r.detail())
}

func rewardScores(cfg *protocol.RewardFileConfig, rewards map[string]float64, detail string) ([]protocol.Score, error) {
	primary, ok := rewards["reward"]
	if !ok && len(rewards) == 1 {
		for _, v := range rewards {
			primary, ok = v, true
		}
	}
	if !ok {
		return nil, &Unmeasured{Reason: protocol.ReasonUnsupported, Detail: fmt.Sprintf(
			"reward.json has the keys %s: one of several has to be named reward", strings.Join(slices.Sorted(maps.Keys(rewards)), ", "))}
	}
	pass := primary >= *cfg.PassThreshold
	s := protocol.Measured(cfg.ID, protocol.MetricTestsPass, primary)
	s.Pass, s.Detail = &pass, detail
	scores := []protocol.Score{s}
	if len(rewards) > 1 {
		for _, key := range slices.Sorted(maps.Keys(rewards)) {
			scores = append(scores, protocol.Measured(cfg.ID, "reward:"+key, rewards[key]))
		}
	}
	return scores, nil
}

// readReward returns nil when there is no reward file.
func readReward(dir *private) (map[string]float64, error) {
	b, err := dir.read("reward.json")
	if err != nil {
		return nil, err
	}
	if b != nil {
		return parseRewards(b)
	}
	b, err = dir.read("reward.txt")
	if err != nil || b == nil {
		return nil, err
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("reward.txt is not one number: %.200q", b)
	}
	return map[string]float64{"reward": v}, nil
}

// parseRewards reads reward.json. A null is a reward that is not known, and is no 0.
func parseRewards(b []byte) (map[string]float64, error) {
	var read map[string]*float64
	if err := json.Unmarshal(b, &read); err != nil || len(read) == 0 {
		return nil, fmt.Errorf("reward.json is not a flat object of numbers: %.200q", b)
	}
	rewards := make(map[string]float64, len(read))
	for key, value := range read {
		if value != nil {
			rewards[key] = *value
		}
	}
	if _, named := read["reward"]; len(rewards) == 0 || named && read["reward"] == nil {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: fmt.Sprintf("reward.json says that the reward is not known: %.200q", b)}
	}
	return rewards, nil
}

// replaceDir replaces the path dir in a command line where it stands as a whole
// path or as the beginning of one.
func replaceDir(line, dir, by string) string {
	var out strings.Builder
	for {
		i := strings.Index(line, dir)
		if i < 0 {
			out.WriteString(line)
			return out.String()
		}
		end := i + len(dir)
		whole := end == len(line) || !isPathByte(line[end]) || line[end] == '/'
		if i > 0 && isPathByte(line[i-1]) {
			whole = false
		}
		out.WriteString(line[:i])
		if whole {
			out.WriteString(filepath.ToSlash(by))
		} else {
			out.WriteString(dir)
		}
		line = line[end:]
	}
}

func isPathByte(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || c == '~' || c == '}' ||
		'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
