package protocol

import (
	"slices"
	"strings"
)

// TestsPassConfig configures tests-pass: the exit code of a command decides.
type TestsPassConfig struct {
	Cmd string `json:"cmd"` // default "true"
	// Cwd is relative to the attempt's root; default "work", the workspace.
	Cwd        string `json:"cwd"`
	TimeoutSec int    `json:"timeoutSec"` // default 600
}

// CommandConfig configures command: as tests-pass, under a metric of one's own.
type CommandConfig struct {
	ID  string `json:"id"`  // the score's graderId; default "command"
	Cmd string `json:"cmd"` // default "true"
	Cwd string `json:"cwd"` // default "work"
	// ApplyPatch is a patch that git applies in Cwd before the command.
	ApplyPatch string `json:"applyPatch"`
	// PassPattern, where given, decides instead of the exit code: it is looked for
	// in stdout and stderr.
	PassPattern string `json:"passPattern"`
	Metric      string `json:"metric"`     // default "command"
	TimeoutSec  int    `json:"timeoutSec"` // default 1800
}

// ScriptScoreConfig configures script-score: a command prints a number.
type ScriptScoreConfig struct {
	ID  string `json:"id"` // default "script-score"
	Cmd string `json:"cmd"`
	Cwd string `json:"cwd"` // default "work"
	// ScorePattern's first group is the number; default SCORE=([-\d.]+).
	ScorePattern  string   `json:"scorePattern"`
	PassThreshold *float64 `json:"passThreshold"` // default 0.6
	TimeoutSec    int      `json:"timeoutSec"`    // default 1800
	Metric        string   `json:"metric"`        // default "score"
}

// ScriptConfig configures script: a program prints scores as JSON.
type ScriptConfig struct {
	ID       string `json:"id"`       // default "script"
	Language string `json:"language"` // python or node
	// Code is the program's text, Entrypoint the path of one in Cwd; exactly one.
	Code       string `json:"code"`
	Entrypoint string `json:"entrypoint"`
	Image      string `json:"image"` // a container of its own
	Cwd        string `json:"cwd"`   // default "work"
	// ContextPath is where in Cwd the evidence is written for the program; default
	// "everdict-grade-context.json".
	ContextPath string `json:"contextPath"`
	TimeoutSec  int    `json:"timeoutSec"` // default 1800
}

// RewardFileConfig configures reward-file: a test script leaves a reward in a
// file. TestsDir and RewardDir are absolute paths of the sandbox's own root.
type RewardFileConfig struct {
	ID            string            `json:"id"`        // default "reward-file"
	Cmd           string            `json:"cmd"`       // default: bash test.sh of TestsDir
	Files         map[string]string `json:"files"`     // written to TestsDir
	TestsDir      string            `json:"testsDir"`  // default "/tests"
	RewardDir     string            `json:"rewardDir"` // default "/logs/verifier"
	Cwd           string            `json:"cwd"`       // default "work"
	Env           map[string]string `json:"env"`
	TimeoutSec    int               `json:"timeoutSec"`    // default 600
	PassThreshold *float64          `json:"passThreshold"` // default 1
}

// AnswerMatchConfig configures answer-match: the last assistant message against
// an expectation, lower-cased and with white space collapsed.
type AnswerMatchConfig struct {
	Expect *string `json:"expect"` // default: the case's expected
	Mode   string  `json:"mode"`   // contains (default) or exact
}

// TextMetricConfig configures text-metric: a number in the last assistant message.
type TextMetricConfig struct {
	ID      string `json:"id"` // default "text-metric"
	Pattern string `json:"pattern"`
	Metric  string `json:"metric"`
}

// NoConfig is the configuration of graders that have none.
type NoConfig struct{}

func (n *NoConfig) check(*configChecker) {}

func (t *TestsPassConfig) check(c *configChecker) {
	c.command(&t.Cmd)
	c.dir(&t.Cwd)
	c.timeout(&t.TimeoutSec, 600)
}

func (t *CommandConfig) check(c *configChecker) {
	c.label("id", &t.ID, GraderCommand)
	c.command(&t.Cmd)
	c.dir(&t.Cwd)
	c.pattern("passPattern", t.PassPattern, 0)
	c.label("metric", &t.Metric, "command")
	c.timeout(&t.TimeoutSec, 1800)
}

func (t *ScriptScoreConfig) check(c *configChecker) {
	c.label("id", &t.ID, GraderScriptScore)
	if strings.TrimSpace(t.Cmd) == "" {
		c.bad("cmd", "is missing: give the command that prints SCORE=<number>")
	}
	c.command(&t.Cmd)
	c.dir(&t.Cwd)
	c.text(&t.ScorePattern, `SCORE=([-\d.]+)`)
	c.pattern("scorePattern", t.ScorePattern, 1)
	c.threshold(&t.PassThreshold, 0.6)
	c.timeout(&t.TimeoutSec, 1800)
	c.label("metric", &t.Metric, "score")
}

func (t *ScriptConfig) check(c *configChecker) {
	c.label("id", &t.ID, GraderScript)
	if !slices.Contains([]string{"python", "node"}, t.Language) {
		c.bad("language", "want python or node, got %q", Clip(t.Language, 40))
	}
	if (t.Code == "") == (t.Entrypoint == "") {
		c.bad("code", "want exactly one of code and entrypoint")
	}
	if t.Entrypoint != "" {
		if err := CheckFilePath(t.Entrypoint); err != nil {
			c.bad("entrypoint", "%s", err)
		}
	}
	c.dir(&t.Cwd)
	c.text(&t.ContextPath, "everdict-grade-context.json")
	if err := CheckFilePath(t.ContextPath); err != nil {
		c.bad("contextPath", "%s", err)
	}
	c.timeout(&t.TimeoutSec, 1800)
}

func (t *RewardFileConfig) check(c *configChecker) {
	c.label("id", &t.ID, GraderRewardFile)
	c.text(&t.TestsDir, "/tests")
	c.text(&t.RewardDir, "/logs/verifier")
	for _, d := range []struct{ key, path string }{{"testsDir", t.TestsDir}, {"rewardDir", t.RewardDir}} {
		rel, absolute := strings.CutPrefix(d.path, "/")
		if err := CheckFilePath(rel); !absolute || err != nil {
			c.bad(d.key, "want an absolute path below /, such as /tests, got %q", Clip(d.path, 80))
		}
		if first, _, _ := strings.Cut(rel, "/"); first == "work" {
			c.bad(d.key, "lies in the workspace, which belongs to the agent")
		}
	}
	if t.TestsDir == t.RewardDir || strings.HasPrefix(t.TestsDir, t.RewardDir+"/") || strings.HasPrefix(t.RewardDir, t.TestsDir+"/") {
		c.bad("rewardDir", "and testsDir lie in each other")
	}
	for _, p := range slices.Sorted(mapKeys(t.Files)) {
		if err := CheckFilePath(p); err != nil {
			c.bad("files", "%s", err)
		}
	}
	for _, name := range slices.Sorted(mapKeys(t.Env)) {
		if !validEnvName(name) || strings.ContainsRune(t.Env[name], 0) {
			c.bad("env", "%q is not a variable with a value without NUL bytes", Clip(name, 40))
		}
	}
	if strings.ContainsRune(t.Cmd, 0) {
		c.bad("cmd", "contains a NUL byte")
	}
	c.dir(&t.Cwd)
	c.timeout(&t.TimeoutSec, 600)
	c.threshold(&t.PassThreshold, 1)
}

func (t *AnswerMatchConfig) check(c *configChecker) {
	c.text(&t.Mode, "contains")
	if t.Mode != "contains" && t.Mode != "exact" {
		c.bad("mode", "want contains or exact, got %q", Clip(t.Mode, 40))
	}
}

func (t *TextMetricConfig) check(c *configChecker) {
	c.label("id", &t.ID, GraderTextMetric)
	if t.Pattern == "" {
		c.bad("pattern", "is missing: give a regular expression whose first group is the number")
	}
	c.pattern("pattern", t.Pattern, 1)
	if t.Metric == "" {
		c.bad("metric", "is missing: give the name of the metric")
	}
	c.label("metric", &t.Metric, "")
}
