package grader

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/protocol"
)

var driver = sync.OnceValue(func() *process.Driver { return process.New(process.Config{}) })

var attempts atomic.Int64

// attempt is an input over a real sandbox with an empty workspace.
func attempt(t *testing.T, graders ...protocol.GraderSpec) Input {
	t.Helper()
	root := t.TempDir()
	work := filepath.Join(root, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	compute, err := driver().Start(context.Background(), sandbox.Spec{
		Attempt: "grader-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(attempts.Add(1), 10),
		Dir:     work, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := compute.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
	})
	files, err := os.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return Input{RunID: "run_1", Case: &protocol.Case{ID: "c1", Graders: graders}, Compute: compute, Root: root, WorkDir: work, Files: files}
}

func spec(id, config string) protocol.GraderSpec {
	g := protocol.GraderSpec{ID: id}
	if config != "" {
		g.Config = json.RawMessage(config)
	}
	return g
}

func measured(id, metric string, value float64, pass ...bool) protocol.Score {
	s := protocol.Measured(id, metric, value)
	if len(pass) > 0 {
		s.Pass = &pass[0]
	}
	return s
}

func unmeasuredScore(id, metric, reason string, retryable bool) protocol.Score {
	return protocol.Unmeasured(id, metric, reason, retryable, "")
}

// check compares scores without their detail.
func check(t *testing.T, got []protocol.Score, want ...protocol.Score) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(protocol.Score{}, "Detail")); d != "" {
		t.Errorf("scores (-want +got):\n%s", d)
		for _, s := range got {
			t.Logf("%s %s: %s", s.GraderID, s.Metric, s.Detail)
		}
	}
	for _, s := range got {
		if len(s.Detail) > MaxDetail {
			t.Errorf("%s: detail of %d bytes", s.Metric, len(s.Detail))
		}
		if n := s.Normalize(); !cmp.Equal(s, n) {
			t.Errorf("the score is not in normal form: %+v", s)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		spec   protocol.GraderSpec
		want   []protocol.Score
		detail string
	}{
		{"tests-pass passes", spec("tests-pass", `{"cmd":"grep -q done ok.txt"}`), []protocol.Score{measured("tests-pass", "tests_pass", 1, true)}, ""},
		{"tests-pass fails", spec("tests-pass", `{"cmd":"echo out; echo err >&2; exit 3"}`), []protocol.Score{measured("tests-pass", "tests_pass", 0, false)}, "out\nerr"},
		{"tests-pass crashes", spec("tests-pass", `{"cmd":"kill -s SEGV $$"}`), []protocol.Score{measured("tests-pass", "tests_pass", 0, false)}, "ended by SIGSEGV"},
		{"the default command is true", spec("tests-pass", ""), []protocol.Score{measured("tests-pass", "tests_pass", 1, true)}, ""},
		{"another directory", spec("tests-pass", `{"cmd":"test -f x","cwd":"work/sub"}`), []protocol.Score{measured("tests-pass", "tests_pass", 1, true)}, ""},
		{"a directory that is not there", spec("tests-pass", `{"cwd":"nowhere"}`), []protocol.Score{unmeasuredScore("tests-pass", "tests_pass", "grader_error", true)}, ""},
		{"too slow", spec("tests-pass", `{"cmd":"echo begun; sleep 60","timeoutSec":1}`), []protocol.Score{unmeasuredScore("tests-pass", "tests_pass", "grader_timeout", false)}, ""},
		{"too slow, with a fork", spec("tests-pass", `{"cmd":"(setsid sleep 60 &); sleep 60","timeoutSec":1}`), []protocol.Score{unmeasuredScore("tests-pass", "tests_pass", "grader_timeout", false)}, ""},
		{"stdin is closed", spec("tests-pass", `{"cmd":"cat; echo $EVERDICT_RUN_ID $EVERDICT_CASE_ID"}`), []protocol.Score{measured("tests-pass", "tests_pass", 1, true)}, "run_1 c1"},
		{"command by exit code", spec("command", `{"cmd":"true","metric":"lint","id":"linter"}`), []protocol.Score{measured("linter", "lint", 1, true)}, ""},
		{"command by pattern", spec("command", `{"cmd":"echo 0 errors >&2; exit 1","passPattern":"^0 errors"}`), []protocol.Score{measured("command", "command", 1, true)}, "0 errors"},
		{"command without the pattern", spec("command", `{"cmd":"echo 2 errors","passPattern":"^0 errors"}`), []protocol.Score{measured("command", "command", 0, false)}, "2 errors"},
		{"command over a patch", spec("command", `{"cmd":"grep -q patched ok.txt","applyPatch":"--- a/ok.txt\n+++ b/ok.txt\n@@ -1 +1 @@\n-done\n+patched\n"}`),
			[]protocol.Score{measured("command", "command", 1, true)}, ""},
		{"command over a patch that does not apply", spec("command", `{"applyPatch":"--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"}`),
			[]protocol.Score{unmeasuredScore("command", "command", "grader_error", true)}, ""},
		{"script-score", spec("script-score", `{"cmd":"echo noise; echo SCORE=0.75"}`), []protocol.Score{measured("script-score", "score", 0.75, true)}, "noise\nSCORE=0.75"},
		{"script-score below", spec("script-score", `{"cmd":"echo total 5/9","scorePattern":"total (\\d+)","passThreshold":6,"metric":"points","id":"p"}`),
			[]protocol.Score{measured("p", "points", 5, false)}, "total 5/9"},
		{"script-score without a number", spec("script-score", `{"cmd":"echo SCORE=--"}`), []protocol.Score{measured("script-score", "score", 0, false)},
			"no number matches SCORE=([-\\d.]+)\nSCORE=--"},
		{"usd is cost_usd", spec("script-score", `{"cmd":"echo SCORE=2","metric":"usd"}`), []protocol.Score{measured("script-score", "cost_usd", 2, true)}, "SCORE=2"},
		{"a misspelt key reaches an old runner", spec("tests-pass", `{"cmd":"false","future":1}`), []protocol.Score{measured("tests-pass", "tests_pass", 0, false)}, ""},
		{"a wrong configuration", spec("tests-pass", `{"cmd":7}`), []protocol.Score{unmeasuredScore("tests-pass", "tests_pass", "grader_error", true)}, ""},
		{"an unknown grader", spec("divination", ""), []protocol.Score{unmeasuredScore("divination", "divination", "unsupported", false)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := attempt(t, tt.spec)
			write(t, filepath.Join(in.WorkDir, "ok.txt"), "done\n")
			write(t, filepath.Join(in.WorkDir, "sub", "x"), "")
			got := Builtin().Grade(context.Background(), in)
			check(t, got, tt.want...)
			if len(got) == 1 && got[0].Status == protocol.ScoreMeasured && got[0].Detail != tt.detail {
				t.Errorf("detail %q, want %q", got[0].Detail, tt.detail)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestF25_LongOutputKeepsItsEnds(t *testing.T) {
	t.Parallel()
	in := attempt(t, spec("script-score", `{"cmd":"echo HEAD; head -c 30000000 /dev/zero | tr '\\000' x; echo; echo SCORE=1"}`))
	log := &counter{}
	in.Log = log
	got := Builtin().Grade(context.Background(), in)
	check(t, got, measured("script-score", "score", 1, true))
	if d := got[0].Detail; !strings.HasPrefix(d, "HEAD\nxxx") || !strings.HasSuffix(d, "x\nSCORE=1") || len(d) < MaxDetail-200 {
		t.Errorf("detail of %d bytes: %.20q ... %q", len(d), d, d[len(d)-20:])
	}
	if log.n != 30000000+len("HEAD\n\nSCORE=1\n") {
		t.Errorf("the log got %d bytes, want all of them", log.n)
	}
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

func TestScript(t *testing.T) {
	t.Parallel()
	code := func(language, code string) protocol.GraderSpec {
		config, _ := json.Marshal(map[string]string{"language": language, "code": code})
		return spec("script", string(config))
	}
	tests := []struct {
		name string
		spec protocol.GraderSpec
		want []protocol.Score
	}{
		{"python sees the evidence", code("python", `
import json, sys
c = json.load(open(sys.argv[1]))
assert c["case"]["id"] == "c1" and c["snapshot"]["kind"] == "prompt", c
print("some noise { not json")
print(json.dumps([{"metric": "calls", "value": len([e for e in c["trace"] if e["kind"] == "tool_call"]), "label": "l"},
  {"metric": "good", "value": 1, "pass": True, "graderId": "someone else"}], indent=2))
`), []protocol.Score{labelled(measured("script", "calls", 2), "l"), measured("script", "good", 1, true)}},
		{"node", code("node", `
import { readFileSync } from "node:fs";
const c = JSON.parse(readFileSync(process.argv[2]));
console.log(JSON.stringify({metric: "n", value: c.trace.length}));
`), []protocol.Score{measured("script", "n", 3)}},
		{"it fails", code("python", "import sys; sys.exit('no way')"), []protocol.Score{unmeasuredScore("script", "script", "grader_error", true)}},
		{"it prints nothing", code("python", ""), nil},
		{"it prints no score", code("python", "print('all good')"), []protocol.Score{unmeasuredScore("script", "script", "grader_error", true)}},
		{"it prints an empty list", code("python", "print('[]')"), []protocol.Score{unmeasuredScore("script", "script", "grader_error", true)}},
		{"it declines", code("python", `print('{"metric":"m","status":"unmeasured","reason":"missing_evidence","value":3}')`),
			[]protocol.Score{unmeasuredScore("script", "m", "missing_evidence", false)}},
		{"not finite", code("python", `print('{"metric":"m","value":1e999}')`), []protocol.Score{unmeasuredScore("script", "script", "grader_error", true)}},
		{"a reserved metric", code("python", `print('[{"metric":"tests_pass","value":1,"pass":true},{"metric":"judge:x","value":1},{"metric":"mine","value":1}]')`),
			[]protocol.Score{invalid("script", "tests_pass"), invalid("script", "judge:x"), measured("script", "mine", 1)}},
		{"an entry point", spec("script", `{"language":"python","entrypoint":"grade/main.py","contextPath":"grade/context.json"}`), []protocol.Score{measured("script", "entry", 1)}},
		{"an image", spec("script", `{"language":"python","code":"x","image":"python:3"}`), []protocol.Score{unmeasuredScore("script", "script", "unsupported", false)}},
	}
	for _, tt := range tests {
		if tt.want == nil {
			continue // an empty code is refused by the configuration
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := attempt(t, tt.spec)
			in.Snapshot = protocol.Snapshot{Kind: "prompt"}
			in.OpenTrace = func() (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(`{"kind":"tool_call","t":1,"name":"a"}` + "\n" + `{"kind":"tool_call","t":2,"name":"b"}` + "\n" + `{"kind":"error","t":3,"message":"m"}` + "\n")), nil
			}
			write(t, filepath.Join(in.WorkDir, "grade", "main.py"), `import json,sys; json.load(open(sys.argv[1])); print('{"metric":"entry","value":1}')`)
			check(t, Builtin().Grade(context.Background(), in), tt.want...)
			for _, left := range []string{"everdict-grade-context.json", "everdict-grader.py", "everdict-grader.mjs", "grade/context.json"} {
				if _, err := os.Lstat(filepath.Join(in.WorkDir, left)); err == nil {
					t.Errorf("%s was left in the workspace", left)
				}
			}
		})
	}
}

func labelled(s protocol.Score, label string) protocol.Score { s.Label = label; return s }

func invalid(id, metric string) protocol.Score {
	return protocol.Score{GraderID: id, Metric: metric, Status: protocol.ScoreInvalid, Reason: protocol.ReasonContractViolation}
}

// An agent that leaves a link where a grader writes must not make the runner
// write elsewhere.
func TestLinksOfTheAgentAreNotFollowed(t *testing.T) {
	t.Parallel()
	in := attempt(t, spec("script", `{"language":"python","code":"print('{\"metric\":\"m\",\"value\":1}')"}`),
		spec("reward-file", `{"cmd":"echo 1 > \"$EVERDICT_REWARD_DIR/reward.txt\"","files":{"a":"b"}}`))
	outside := filepath.Join(t.TempDir(), "precious")
	write(t, outside, "precious")
	if err := os.Symlink(outside, filepath.Join(in.WorkDir, "everdict-grade-context.json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tests", "logs", "grader"} {
		if err := os.Symlink(filepath.Dir(outside), filepath.Join(in.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := Builtin().Grade(context.Background(), in)
	check(t, got, measured("script", "m", 1), measured("reward-file", "tests_pass", 1, true))
	b, err := os.ReadFile(outside)
	entries, _ := os.ReadDir(filepath.Dir(outside))
	if err != nil || string(b) != "precious" || len(entries) != 1 {
		t.Errorf("%q, %v, %v: something outside the attempt was written", b, entries, err)
	}
}

// TestLinksOutOfTheAttempt: whatever directory of a grader's the agent made a link to one of the host's, nothing there is
// written, removed or read by the runner.
func TestLinksOutOfTheAttempt(t *testing.T) {
	t.Parallel()
	const code = `"language":"python","code":"print('{\"metric\":\"m\",\"value\":1}')"`
	for name, tt := range map[string]struct {
		spec protocol.GraderSpec
		link string // below the attempt's directory
	}{
		"cwd":              {spec("script", `{`+code+`,"cwd":"work/sub","contextPath":"precious"}`), "work/sub"},
		"above cwd":        {spec("script", `{`+code+`,"cwd":"work/sub/dir","contextPath":"precious"}`), "work/sub"},
		"the workspace":    {spec("script", `{`+code+`,"contextPath":"precious"}`), "work"},
		"cwd beside it":    {spec("script", `{`+code+`,"cwd":"other","contextPath":"precious"}`), "other"},
		"contextPath":      {spec("script", `{`+code+`,"contextPath":"sub/precious"}`), "work/sub"},
		"entrypoint's cwd": {spec("script", `{"language":"python","entrypoint":"precious","cwd":"work/sub","contextPath":"other"}`), "work/sub"},
		"the attempt":      {spec("script", `{`+code+`,"cwd":"dir","contextPath":"precious"}`), "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := attempt(t, tt.spec)
			outside := filepath.Join(t.TempDir(), "host")
			for _, file := range []string{"precious", "dir/precious"} {
				write(t, filepath.Join(outside, file), "precious")
			}
			link := filepath.Join(in.Root, tt.link)
			if _, err := os.Lstat(link); err == nil {
				if err := os.Rename(link, filepath.Join(t.TempDir(), "away")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			check(t, Builtin().Grade(context.Background(), in), unmeasuredScore("script", "script", "grader_error", true))
			var left []string
			err := filepath.WalkDir(outside, func(path string, d os.DirEntry, err error) error {
				left = append(left, strings.TrimPrefix(path, outside))
				return err
			})
			if d := cmp.Diff([]string{"", "/dir", "/dir/precious", "/precious"}, left); d != "" || err != nil {
				t.Errorf("outside of the attempt (-want +got, %v):\n%s", err, d)
			}
			for _, file := range []string{"precious", "dir/precious"} {
				if b, err := os.ReadFile(filepath.Join(outside, file)); string(b) != "precious" || err != nil {
					t.Errorf("%s outside of the attempt is %q, %v", file, b, err)
				}
			}
		})
	}
}

// TestModulesOfTheAgent: nothing that the agent put into the workspace is loaded as a part of the grader's program.
func TestModulesOfTheAgent(t *testing.T) {
	t.Parallel()
	for language, code := range map[string]string{
		"python": `import json; print(json.dumps({"metric": "m", "value": 0}))`,
		"node":   `import("left-pad").then(m => m.default, () => 0).then(v => console.log(JSON.stringify({metric: "m", value: v})))`,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			config, err := json.Marshal(map[string]string{"language": language, "code": code})
			if err != nil {
				t.Fatal(err)
			}
			in := attempt(t, spec("script", string(config)))
			write(t, filepath.Join(in.WorkDir, "json.py"), `print('{"metric":"m","value":1}'); raise SystemExit`)
			write(t, filepath.Join(in.WorkDir, "node_modules", "left-pad", "index.js"), `module.exports = 1`)
			check(t, Builtin().Grade(context.Background(), in), measured("script", "m", 0))
		})
	}
}

// TestPatchAndRepositories: a patch is applied whatever the agent made of the repository, and one of which git passes over
// a part gives no score.
func TestPatchAndRepositories(t *testing.T) {
	t.Parallel()
	const hidden = "diff --git a/sub/t.sh b/sub/t.sh\nnew file mode 100644\n--- /dev/null\n+++ b/sub/t.sh\n@@ -0,0 +1 @@\n+grep -q right ../answer\n"
	const plain = "--- /dev/null\n+++ b/t.sh\n@@ -0,0 +1 @@\n+grep -q right ../answer\n"
	config := func(patch string) protocol.GraderSpec {
		b, err := json.Marshal(map[string]string{"applyPatch": patch, "cwd": "work/sub", "cmd": "sh t.sh"})
		if err != nil {
			t.Fatal(err)
		}
		return spec("command", string(b))
	}
	for name, line := range map[string]string{
		"as it was":      "git init -q work",
		"none":           "true",
		"one above":      "git init -q .",
		"one below":      "git init -q work/sub",
		"another tree":   "git init -q work && git -C work config core.worktree ..",
		"broken":         "mkdir work/.git && echo x > work/.git/config && touch work/.git/HEAD",
		"a file of git":  "echo gitdir: /nowhere > work/.git",
		"a local config": "git init -q work && git -C work config apply.whitespace error-all",
	} {
		for format, patch := range map[string]string{"git": hidden, "plain": plain} {
			t.Run(name+", "+format, func(t *testing.T) {
				t.Parallel()
				in := attempt(t, config(patch))
				write(t, filepath.Join(in.WorkDir, "answer"), "wrong")
				write(t, filepath.Join(in.WorkDir, "sub", "x"), "")
				cmd := exec.Command("sh", "-c", line)
				cmd.Dir = in.Root
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				check(t, Builtin().Grade(context.Background(), in), measured("command", "command", 0, false))
				if _, err := os.Stat(filepath.Join(in.WorkDir, "sub", "t.sh")); err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Run("an own test of the agent's", func(t *testing.T) {
		t.Parallel()
		in := attempt(t, config(hidden))
		write(t, filepath.Join(in.WorkDir, "sub", "t.sh"), "true")
		check(t, Builtin().Grade(context.Background(), in), unmeasuredScore("command", "command", "grader_error", true))
	})
}

func TestRewardFile(t *testing.T) {
	t.Parallel()
	config := func(m map[string]any) protocol.GraderSpec {
		b, _ := json.Marshal(m)
		return spec("reward-file", string(b))
	}
	script := func(text string) map[string]any {
		return map[string]any{"files": map[string]string{"test.sh": text, "data/in.txt": "x"}}
	}
	with := func(m map[string]any, key string, value any) map[string]any { m[key] = value; return m }
	tests := []struct {
		name string
		spec protocol.GraderSpec
		want []protocol.Score
	}{
		{"reward.txt", config(script(`test -s "$EVERDICT_TESTS_DIR/data/in.txt" && grep -q done ok.txt && echo 1 > "$EVERDICT_REWARD_DIR/reward.txt"`)),
			[]protocol.Score{measured("reward-file", "tests_pass", 1, true)}},
		{"paths of the command are replaced", config(with(script(`echo 0.5 > "$1/reward.txt"`), "cmd", "bash /tests/test.sh /logs/verifier")),
			[]protocol.Score{measured("reward-file", "tests_pass", 0.5, false)}},
		{"a threshold", config(with(script(`echo 0.5 > "$EVERDICT_REWARD_DIR/reward.txt"`), "passThreshold", 0.5)),
			[]protocol.Score{measured("reward-file", "tests_pass", 0.5, true)}},
		{"a single key", config(script(`echo '{"accuracy": 0.25}' > "$EVERDICT_REWARD_DIR/reward.json"; echo 1 > "$EVERDICT_REWARD_DIR/reward.txt"`)),
			[]protocol.Score{measured("reward-file", "tests_pass", 0.25, false)}},
		{"several keys", config(script(`echo '{"b": 2, "reward": 1, "a": 3}' > "$EVERDICT_REWARD_DIR/reward.json"`)),
			[]protocol.Score{measured("reward-file", "tests_pass", 1, true), measured("reward-file", "reward:a", 3), measured("reward-file", "reward:b", 2), measured("reward-file", "reward:reward", 1)}},
		{"several keys without reward", config(script(`echo '{"b": 2, "a": 3}' > "$EVERDICT_REWARD_DIR/reward.json"`)),
			[]protocol.Score{unmeasuredScore("reward-file", "tests_pass", "unsupported", false)}},
		{"no reward", config(script("exit 1")), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "missing_evidence", false)}},
		{"no number", config(script(`echo yes > "$EVERDICT_REWARD_DIR/reward.txt"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "grader_error", true)}},
		{"not known", config(script(`echo '{"reward": null}' > "$EVERDICT_REWARD_DIR/reward.json"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "missing_evidence", false)}},
		{"not known, but another", config(script(`echo '{"reward": null, "a": 1}' > "$EVERDICT_REWARD_DIR/reward.json"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "missing_evidence", false)}},
		{"not flat", config(script(`echo '{"a":{"b":1}}' > "$EVERDICT_REWARD_DIR/reward.json"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "grader_error", true)}},
		{"a pipe", config(script(`mkfifo "$EVERDICT_REWARD_DIR/reward.txt"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "grader_error", true)}},
		{"a link", config(script(`ln -s /etc/passwd "$EVERDICT_REWARD_DIR/reward.txt"`)), []protocol.Score{unmeasuredScore("reward-file", "tests_pass", "grader_error", true)}},
		{"its environment", config(with(script(`echo "$REWARD" > "$EVERDICT_REWARD_DIR/reward.txt"`), "env", map[string]string{"REWARD": "1"})),
			[]protocol.Score{measured("reward-file", "tests_pass", 1, true)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := attempt(t, tt.spec)
			write(t, filepath.Join(in.WorkDir, "ok.txt"), "done")
			// What the agent put there is wiped: a reward of its own making is none.
			write(t, filepath.Join(in.Root, "logs", "verifier", "reward.json"), `{"reward": 1}`)
			check(t, Builtin().Grade(context.Background(), in), tt.want...)
		})
	}
}

func TestReplaceDir(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"bash /tests/run.sh":             "bash /r/tests/run.sh",
		"cd /tests && ls":                "cd /r/tests && ls",
		"/tests":                         "/r/tests",
		`X="/tests";ls`:                  `X="/r/tests";ls`,
		"ls /tests2 my/tests ./tests":    "ls /tests2 my/tests ./tests",
		"ls $D/tests ${D}/tests ~/tests": "ls $D/tests ${D}/tests ~/tests",
	} {
		if got := replaceDir(in, "/tests", "/r/tests"); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestAuthorityOfOwnMetrics(t *testing.T) {
	t.Parallel()
	g := spec("command", `{"cmd":"true","metric":"lint"}`)
	g.Authority = protocol.AuthorityObjective
	named := g
	named.Metrics = []protocol.MetricSpec{{ID: "lint", Authority: protocol.AuthorityGroundTruth}, {ID: "other", Authority: protocol.AuthorityJudge}}
	reserved := spec("tests-pass", "")
	reserved.Authority = protocol.AuthorityJudge
	var got []string
	for _, s := range Builtin().Grade(context.Background(), attempt(t, g, named, reserved)) {
		got = append(got, s.Metric+"="+s.Authority)
	}
	if d := cmp.Diff([]string{"lint=objective", "lint=ground_truth", "tests_pass="}, got); d != "" {
		t.Errorf("authorities (-want +got):\n%s", d)
	}
}

func TestP7_APanicIsAScoreAndTheNextGraderRuns(t *testing.T) {
	t.Parallel()
	r := Builtin()
	r["cost"] = Func(func(context.Context, *Input, protocol.GraderSpec) ([]protocol.Score, error) { panic("at the disco") })
	in := attempt(t, spec("cost", ""), spec("tests-pass", ""))
	got := r.Grade(context.Background(), in)
	check(t, got, unmeasuredScore("cost", "cost_usd", "grader_error", true), measured("tests-pass", "tests_pass", 1, true))
	if !strings.Contains(got[0].Detail, "at the disco") {
		t.Errorf("detail %q does not say what happened", got[0].Detail)
	}
	if err := in.Compute.Release(context.Background()); err != nil {
		t.Errorf("the sandbox cannot be released after a panic: %v", err)
	}
	check(t, r.Grade(context.Background(), in), unmeasuredScore("cost", "cost_usd", "grader_error", true), unmeasuredScore("tests-pass", "tests_pass", "grader_error", true))
}

func TestTheTimeForGradingEnds(t *testing.T) {
	t.Parallel()
	in := attempt(t, spec("tests-pass", `{"cmd":"sleep 60"}`), spec("steps", ""))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	check(t, Builtin().Grade(ctx, in), unmeasuredScore("tests-pass", "tests_pass", "grader_timeout", false), unmeasuredScore("steps", "tool_calls", "grader_timeout", false))

	stopped, stop := context.WithCancelCause(context.Background())
	stop(errors.New("cancelled by its owner"))
	got := Builtin().Grade(stopped, in)
	check(t, got[1:], unmeasuredScore("steps", "tool_calls", "grader_error", true))
	if !strings.Contains(got[1].Detail, "cancelled by its owner") {
		t.Errorf("detail %q", got[1].Detail)
	}
}
