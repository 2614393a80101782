package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestP15_GraderConfigurations(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, id, config string
		key              string // the bad key; empty: valid
		message          string
	}{
		{"no config", GraderTestsPass, "", "", ""},
		{"null", GraderCost, "null", "", ""},
		{"an empty object", GraderSteps, " {} ", "", ""},
		{"tests-pass", GraderTestsPass, `{"cmd":"make test","cwd":"work/sub","timeoutSec":60}`, "", ""},
		{"a misspelt key", GraderTestsPass, `{"command":"make test"}`, "command", "this grader has no such key"},
		{"a wrong type", GraderTestsPass, `{"cmd":["make","test"]}`, "cmd", "want a string, got a JSON array"},
		{"a number as text", GraderTestsPass, `{"timeoutSec":"60"}`, "timeoutSec", "want a whole number"},
		{"no object", GraderTestsPass, `[1]`, "", "config is a JSON object, not a array"},
		{"half an object", GraderTestsPass, `{"cmd":`, "", "config is not JSON"},
		{"too long", GraderTestsPass, `{"timeoutSec":86401}`, "timeoutSec", "want 1 to 86400 seconds, got 86401"},
		{"negative", GraderTestsPass, `{"timeoutSec":-1}`, "timeoutSec", "want 1 to 86400 seconds"},
		{"out of the root", GraderTestsPass, `{"cwd":"../x"}`, "cwd", "leaves the repository"},
		{"a NUL byte", GraderTestsPass, `{"cmd":"a\u0000b"}`, "cmd", "NUL"},
		{"a configuration where there is none", GraderCost, `{"limit":1}`, "limit", "no such key"},
		{"command", GraderCommand, `{"cmd":"x","passPattern":"^ok$","metric":"m","id":"i","applyPatch":"p"}`, "", ""},
		{"look-ahead", GraderCommand, `{"passPattern":"(?=x)"}`, "passPattern", "is not a regular expression (RE2"},
		{"a metric with a slash", GraderCommand, `{"metric":"a/b"}`, "metric", "printable"},
		{"script-score", GraderScriptScore, `{"cmd":"x","passThreshold":0}`, "", ""},
		{"script-score without a command", GraderScriptScore, `{}`, "cmd", "is missing"},
		{"a pattern without a group", GraderScriptScore, `{"cmd":"x","scorePattern":"\\d+"}`, "scorePattern", "needs a group"},
		{"script", GraderScript, `{"language":"python","code":"x"}`, "", ""},
		{"script without a language", GraderScript, `{"code":"x"}`, "language", "want python or node"},
		{"script with both", GraderScript, `{"language":"node","code":"x","entrypoint":"y"}`, "code", "exactly one"},
		{"script out of the root", GraderScript, `{"language":"node","entrypoint":"/y"}`, "entrypoint", "absolute"},
		{"reward-file", GraderRewardFile, `{"files":{"test.sh":"x"},"env":{"A":"b"}}`, "", ""},
		{"reward-file traversal", GraderRewardFile, `{"files":{"../test.sh":"x"}}`, "files", "leaves the repository"},
		{"reward-file in the workspace", GraderRewardFile, `{"testsDir":"/work/tests"}`, "testsDir", "belongs to the agent"},
		{"reward-file relative", GraderRewardFile, `{"rewardDir":"logs"}`, "rewardDir", "want an absolute path"},
		{"reward-file at the root", GraderRewardFile, `{"testsDir":"/"}`, "testsDir", "want an absolute path"},
		{"reward-file nested", GraderRewardFile, `{"testsDir":"/t","rewardDir":"/t/r"}`, "rewardDir", "lie in each other"},
		{"reward-file environment", GraderRewardFile, `{"env":{"A B":"c"}}`, "env", "is not a variable"},
		{"answer-match", GraderAnswerMatch, `{"expect":"x","mode":"exact"}`, "", ""},
		{"answer-match mode", GraderAnswerMatch, `{"mode":"fuzzy"}`, "mode", "want contains or exact"},
		{"text-metric", GraderTextMetric, `{"pattern":"(\\d+)","metric":"m"}`, "", ""},
		{"text-metric without a pattern", GraderTextMetric, `{"metric":"m"}`, "pattern", "is missing"},
		{"text-metric without a metric", GraderTextMetric, `{"pattern":"(x)"}`, "metric", "is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := GraderSpec{ID: tt.id, Config: json.RawMessage(tt.config)}.ValidateConfig()
			if tt.message == "" {
				if err != nil {
					t.Fatalf("%s %s: %v, want it accepted", tt.id, tt.config, err)
				}
				return
			}
			var p *Problem
			if !errors.As(err, &p) || p.Code != CodeBadRequest || !strings.Contains(p.Message, tt.message) || p.Data["grader"] != tt.id {
				t.Fatalf("%s %s: %v, want BAD_REQUEST with %q", tt.id, tt.config, err, tt.message)
			}
			if got, _ := p.Data["key"].(string); got != tt.key {
				t.Errorf("%s %s: the key is %q, want %q", tt.id, tt.config, got, tt.key)
			}
		})
	}
}

func TestUnknownGrader(t *testing.T) {
	t.Parallel()
	err := GraderSpec{ID: "judge"}.ValidateConfig()
	var p *Problem
	if !errors.As(err, &p) || p.Code != CodeBadRequest || p.Data["grader"] != "judge" || !strings.Contains(p.Hint, GraderTestsPass) {
		t.Errorf("%v, want BAD_REQUEST with the grader and what there is", err)
	}
}

func TestValidateGraders(t *testing.T) {
	t.Parallel()
	c := Case{Graders: []GraderSpec{{ID: GraderSteps}, {ID: "nobody"}, {ID: GraderTestsPass, Config: json.RawMessage(`{"command":"x"}`)}}}
	err := c.ValidateGraders()
	var p *Problem
	want := `case.graders[1]: unknown grader "nobody"; case.graders[2]: grader tests-pass: config.command: this grader has no such key`
	if !errors.As(err, &p) || p.Code != CodeBadRequest || p.Message != want || p.Data["grader"] != "nobody" || p.Hint == "" {
		t.Errorf("%v, want %s", err, want)
	}
	c.Graders = c.Graders[:1]
	if err := c.ValidateGraders(); err != nil {
		t.Errorf("%v, want nil", err)
	}
}

func TestGraderDefaults(t *testing.T) {
	t.Parallel()
	pt6, one := 0.6, 1.0
	for id, want := range map[string]struct {
		config string
		cfg    any
	}{
		GraderTestsPass:   {"", &TestsPassConfig{Cmd: "true", Cwd: "work", TimeoutSec: 600}},
		GraderCommand:     {"", &CommandConfig{ID: "command", Cmd: "true", Cwd: "work", Metric: "command", TimeoutSec: 1800}},
		GraderScriptScore: {`{"cmd":"x"}`, &ScriptScoreConfig{ID: "script-score", Cmd: "x", Cwd: "work", ScorePattern: `SCORE=([-\d.]+)`, PassThreshold: &pt6, TimeoutSec: 1800, Metric: "score"}},
		GraderScript:      {`{"language":"node","code":"x"}`, &ScriptConfig{ID: "script", Language: "node", Code: "x", Cwd: "work", ContextPath: "everdict-grade-context.json", TimeoutSec: 1800}},
		GraderRewardFile:  {"", &RewardFileConfig{ID: "reward-file", TestsDir: "/tests", RewardDir: "/logs/verifier", Cwd: "work", TimeoutSec: 600, PassThreshold: &one}},
		GraderAnswerMatch: {"", &AnswerMatchConfig{Mode: "contains"}},
	} {
		got, err := GraderSpec{ID: id, Config: json.RawMessage(want.config)}.ParseConfig()
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if d := cmp.Diff(want.cfg, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", id, d)
		}
	}
}

func FuzzGraderConfig(f *testing.F) {
	for _, id := range graderIDs {
		f.Add(id, `{"cmd":"x","cwd":"work","metric":"m","pattern":"(x)","language":"node","code":"y","files":{"a":"b"}}`)
		f.Add(id, `{"timeoutSec":1e99,"passThreshold":-1,"env":{"A":"b"}}`)
	}
	f.Fuzz(func(t *testing.T, id, config string) {
		g := GraderSpec{ID: id, Config: json.RawMessage(config)}
		cfg, err := g.ParseConfig()
		if (cfg == nil) == (err == nil) {
			t.Fatalf("%v and %v", cfg, err)
		}
		var p *Problem
		if err != nil && !errors.As(err, &p) {
			t.Fatalf("%v is no problem", err)
		}
		if err != nil && g.ValidateConfig() == nil {
			t.Fatal("what a coordinator accepts, a runner refuses")
		}
	})
}
