package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
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

// ValidateGraders reports everything that is wrong with the graders of a case as
// one *Problem, for a coordinator at submit.
func (c *Case) ValidateGraders() error {
	var k checker
	var first *Problem
	for i, g := range c.Graders {
		var p *Problem
		if err := g.ValidateConfig(); errors.As(err, &p) {
			k.add(indexed("case.graders", i), "%s", p.Message)
			if first == nil {
				first = p
			}
		}
	}
	if first == nil {
		return nil
	}
	p := *first
	p.Message = strings.Join(k.faults, "; ")
	return p.WithData("faults", k.faults)
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
