package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Ids of the graders that every runner has.
const (
	GraderTestsPass   = "tests-pass"
	GraderCommand     = "command"
	GraderScriptScore = "script-score"
	GraderScript      = "script"
	GraderRewardFile  = "reward-file"
	GraderSteps       = "steps"
	GraderCost        = "cost"
	GraderLatency     = "latency"
	GraderAnswerMatch = "answer-match"
	GraderTextMetric  = "text-metric"
)

// Metrics of the built-in graders.
const (
	MetricTestsPass   = "tests_pass"
	MetricAnswerMatch = "answer_match"
	MetricToolCalls   = "tool_calls"
	MetricCostUSD     = "cost_usd"
	MetricLatencyMs   = "latency_ms"
)

// CanonicalMetric returns the name under which a metric is emitted: existing
// clients also say usd for cost_usd and span for latency_ms.
func CanonicalMetric(name string) string {
	switch name {
	case "usd":
		return MetricCostUSD
	case "span":
		return MetricLatencyMs
	}
	return name
}

// MaxGraderTimeoutSec is the longest timeout of one grader: 24 h.
const MaxGraderTimeoutSec = 24 * 3600

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

// ParseConfig returns the grader's configuration with defaults filled in, as a
// pointer to the config struct of its id. Keys that this version does not know
// are passed over, so that a runner accepts what a newer coordinator accepted.
// The error is a *Problem that names the key.
func (g GraderSpec) ParseConfig() (any, error) { return g.parse(false) }

// ValidateConfig reports what is wrong with a grader spec at submit: an unknown
// id, or a key that is unknown, of the wrong type or out of range. Unknown keys
// are refused because a misspelt one (command for cmd) would make a grader that
// always passes. The error is a *Problem with the key in data.key.
func (g GraderSpec) ValidateConfig() error {
	_, err := g.parse(true)
	return err
}

// graderConfig is a config struct that knows its defaults and its faults.
type graderConfig interface{ check(c *configChecker) }

func (g GraderSpec) parse(strict bool) (any, error) {
	var cfg graderConfig
	switch g.ID {
	case GraderTestsPass:
		cfg = new(TestsPassConfig)
	case GraderCommand:
		cfg = new(CommandConfig)
	case GraderScriptScore:
		cfg = new(ScriptScoreConfig)
	case GraderScript:
		cfg = new(ScriptConfig)
	case GraderRewardFile:
		cfg = new(RewardFileConfig)
	case GraderAnswerMatch:
		cfg = new(AnswerMatchConfig)
	case GraderTextMetric:
		cfg = new(TextMetricConfig)
	case GraderSteps, GraderCost, GraderLatency:
		cfg = new(NoConfig)
	default:
		return nil, BadRequest("unknown grader %q", Clip(g.ID, 80)).
			WithHint("the graders are %s", strings.Join(graderIDs, ", ")).WithData("grader", Clip(g.ID, 200))
	}
	c := &configChecker{grader: g.ID}
	if raw := bytes.TrimSpace(g.Config); len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		c.decode(raw, cfg, strict)
	}
	if c.err == nil {
		cfg.check(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	return cfg, nil
}

var graderIDs = []string{GraderTestsPass, GraderCommand, GraderScriptScore, GraderScript, GraderRewardFile,
	GraderSteps, GraderCost, GraderLatency, GraderAnswerMatch, GraderTextMetric}

// configChecker keeps the first fault of a configuration.
type configChecker struct {
	grader string
	err    error
}

func (c *configChecker) bad(key, format string, args ...any) {
	if c.err == nil {
		c.err = BadRequest("grader %s: config.%s: %s", c.grader, key, fmt.Sprintf(format, args...)).
			WithData("grader", c.grader).WithData("key", key)
	}
}

func (c *configChecker) decode(raw []byte, cfg any, strict bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(cfg)
	if err == nil {
		return
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			c.err = BadRequest("grader %s: config is a JSON object, not a %s", c.grader, wrong.Value).WithData("grader", c.grader)
			return
		}
		c.bad(wrong.Field, "want %s, got a JSON %s", jsonTypeName(wrong.Type.String()), wrong.Value)
		return
	}
	// encoding/json has no error type for an unknown key.
	if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		c.bad(strings.Trim(key, `"`), "this grader has no such key")
		return
	}
	c.err = BadRequest("grader %s: config is not JSON: %v", c.grader, err).WithData("grader", c.grader)
}

func jsonTypeName(goType string) string {
	switch strings.TrimLeft(goType, "*") {
	case "int":
		return "a whole number"
	case "float64":
		return "a number"
	case "map[string]string":
		return "an object of strings"
	default:
		return "a string"
	}
}

func (c *configChecker) text(s *string, byDefault string) {
	if *s == "" {
		*s = byDefault
	}
}

func (c *configChecker) command(s *string) {
	c.text(s, "true")
	if strings.ContainsRune(*s, 0) {
		c.bad("cmd", "contains a NUL byte")
	}
}

func (c *configChecker) dir(s *string) {
	c.text(s, "work")
	if err := CheckFilePath(*s); err != nil {
		c.bad("cwd", "%s", err)
	}
}

func (c *configChecker) timeout(sec *int, byDefault int) {
	if *sec == 0 {
		*sec = byDefault
	}
	if *sec < 0 || *sec > MaxGraderTimeoutSec {
		c.bad("timeoutSec", "want 1 to %d seconds, got %d", MaxGraderTimeoutSec, *sec)
	}
}

func (c *configChecker) threshold(f **float64, byDefault float64) {
	if *f == nil {
		*f = &byDefault
	}
	if math.IsNaN(**f) || math.IsInf(**f, 0) {
		c.bad("passThreshold", "is not a finite number")
	}
}

func (c *configChecker) label(key string, s *string, byDefault string) {
	c.text(s, byDefault)
	if !ValidName(*s, MaxNameBytes) {
		c.bad(key, "want 1 to %d printable characters without / or \\, got %q", MaxNameBytes, Clip(*s, 40))
	}
}

// pattern checks a regular expression and that it has as many groups as are read.
func (c *configChecker) pattern(key, s string, groups int) {
	re, err := regexp.Compile(s)
	if err != nil {
		c.bad(key, "is not a regular expression (RE2, without look-around and back-references): %v", err)
		return
	}
	if re.NumSubexp() < groups {
		c.bad(key, "needs a group around the number, such as (\\d+)")
	}
}

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
