package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/harness/harnesstest"
	"github.com/everdict/everdict/protocol"
)

func spec(line string) protocol.HarnessSpec {
	return protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "my-agent", Command: line}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	s := spec(`printf '%s|' {{task}} {{model}} {{run_id}} {{ level }} '{{unknown}}'`)
	s.Model = &protocol.ModelBinding{Name: "m-1"}
	s.Params = map[string]string{"level": "a b", "task": "no override"}
	r := harnesstest.New(t, s, "it's {{model}} $HOME `id`\n\"two\"")
	out := r.Run(t, New())
	want := "it's {{model}} $HOME `id`\n\"two\"|m-1|run_test|a|b|{{unknown}}|"
	if out.FinalMessage == nil || *out.FinalMessage != want {
		t.Errorf("the command got %v, want %q", out.FinalMessage, want)
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Parallel()
	s := spec(`pwd; echo "$A $B $EVERDICT_RUN_ID"; cat; echo err >&2`)
	s.Env = map[string]protocol.EnvValue{"A": {Value: "spec"}, "B": {Value: "spec"}, "S": {Secret: &protocol.SecretRef{SecretRef: "x"}}}
	s.WorkDir = "work/sub"
	r := harnesstest.New(t, s, "x")
	r.Write(t, "sub/keep", "")
	r.Env.Environ = append(r.Env.Environ, "B=job")
	out := r.Run(t, New())
	if want := filepath.Join(r.Env.WorkDir, "sub") + "\nspec job run_test"; *out.FinalMessage != want {
		t.Errorf("got %q, want %q: the job's values win, stdin is closed", *out.FinalMessage, want)
	}
	if got, want := r.Kinds(), []string{"message", "env_action", "message", "log"}; !cmp.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestSetup(t *testing.T) {
	t.Parallel()
	s := spec("cat a.txt")
	s.Setup = []string{"echo one > a.txt", "test -s a.txt && echo two >> a.txt"}
	r := harnesstest.New(t, s, "x")
	if out := r.Run(t, New()); *out.FinalMessage != "one\ntwo" {
		t.Errorf("answer %q", *out.FinalMessage)
	}
	if got := r.Pids(); len(got) != 1 {
		t.Errorf("%d processes were reported as the agent, want the command alone", len(got))
	}

	s.Setup = []string{"true", "echo out; echo no such package >&2; exit 4", "touch never"}
	r = harnesstest.New(t, s, "x")
	err := New().Install(context.Background(), r.Env)
	var f *protocol.Failure
	if !errors.As(err, &f) || f.Stage != protocol.StageInstall || f.Class != protocol.ClassHarness || f.Reason != protocol.ReasonSetup ||
		f.Code != protocol.CodeHarnessInstallFailed || *f.ExitCode != 4 || f.LogTail != "out\n\nno such package" {
		t.Errorf("install: %+v, want HARNESS_INSTALL_FAILED with the output", f)
	}
	if r.File(t, "never") != "<absent>" {
		t.Error("the line after the failed one ran")
	}

	s.Setup = []string{"sleep 60"}
	r = harnesstest.New(t, s, "x")
	r.Env.Timeout = 200 * time.Millisecond
	if err := New().Install(context.Background(), r.Env); !errors.As(err, &f) || f.Reason != protocol.ReasonTimeout || f.Stage != protocol.StageInstall || f.Limit == nil {
		t.Errorf("install: %+v, want a timeout of the install stage", f)
	}
}

func TestExitCodesAreGraded(t *testing.T) {
	t.Parallel()
	r := harnesstest.New(t, spec("echo partial; echo broken >&2; exit 9"), "x")
	out := r.Run(t, New())
	if out.Failure != nil || out.Exit.Code != 9 || *out.FinalMessage != "partial" {
		t.Fatalf("outcome %+v, want exit code 9 without a failure", out)
	}
	if got, want := r.Kinds(), []string{"message", "env_action", "error", "message", "log"}; !cmp.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	if ev := r.Events()[2]; ev.Message != "my-agent exited with code 9\nbroken" {
		t.Errorf("error event %q", ev.Message)
	}
	r = harnesstest.New(t, spec("no-such-program --x"), "x")
	if out := r.Run(t, New()); out.Failure == nil || out.Failure.Reason != protocol.ReasonMissing || out.Exit.Code != 127 {
		t.Errorf("outcome %+v, want that the program is missing: nothing ran, and nothing is to be judged", out)
	}
	r = harnesstest.New(t, spec("echo 127; exit 127"), "x")
	if out := r.Run(t, New()); out.Failure != nil {
		t.Errorf("outcome %+v, want the agent's own 127, graded", out)
	}
}

func TestTraceFile(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"kind":"tool_call","t":10,"id":"1","name":"bash","args":{"command":"ls"}}`,
		`{"kind":"tool_result","t":25.5,"id":"1","ok":true,"output":"a"}`,
		`not an event`, `{"kind":"dance","t":1}`, `{"kind":"message","t":2,"role":"robot","text":"x"}`,
		`{"kind":"llm_call","t":30,"model":"m","cost":{"inputTokens":5,"outputTokens":2,"usd":0.5}}`,
		`{"kind":"message","t":40,"role":"assistant","text":"the answer"}`,
	}
	array := "[" + strings.Join([]string{lines[0], lines[1], `17`, lines[3], lines[4], lines[5], lines[6]}, ",\n") + "]"
	for name, content := range map[string]string{"JSON lines": strings.Join(lines, "\n"), "an array": array} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spec("cp ../given.json out/trace.json; echo chatter")
			s.Trace = &protocol.CommandTrace{Kind: protocol.TraceFile, Path: "out/trace.json"}
			r := harnesstest.New(t, s, "x")
			r.Write(t, "out/keep", "")
			if err := os.WriteFile(filepath.Join(r.Env.Root, "given.json"), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			out := r.Run(t, New())
			want := []string{"message", "env_action", "tool_call", "tool_result", "llm_call", "message", "span", "log"}
			if d := cmp.Diff(want, r.Kinds()); d != "" {
				t.Fatalf("events (-want +got):\n%s", d)
			}
			ev := r.Events()
			if d := ev[3].T - ev[2].T; d != 15.5 || ev[2].T < 1e12 {
				t.Errorf("times %f and %f, want epoch milliseconds 15.5 apart", ev[2].T, ev[3].T)
			}
			if !strings.Contains(string(ev[6].Attributes), `"invalid":3`) {
				t.Errorf("note %s, want 3 invalid items", ev[6].Attributes)
			}
			if *out.FinalMessage != "the answer" || *out.Usage.USD != 0.5 || out.Usage.USDSource != "trace-file:llm_call" || *out.Usage.TotalTokens != 7 {
				t.Errorf("message %q, usage %+v", *out.FinalMessage, out.Usage)
			}
		})
	}
}

func TestTraceFileThatIsNone(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"missing":              "true",
		"a pipe":               "mkfifo everdict-trace.json",
		"a directory":          "mkdir everdict-trace.json",
		"a link to elsewhere":  "ln -s /etc/passwd everdict-trace.json",
		"a link to a sibling":  "ln -s ../secret everdict-trace.json",
		"a link to nothing":    "ln -s nothing everdict-trace.json",
		"nothing but bytes":    "head -c 100000 /dev/zero > everdict-trace.json",
		"an array without end": `printf '[{"kind":"log"' > everdict-trace.json`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spec(line + "; echo answer")
			s.Trace = &protocol.CommandTrace{Kind: protocol.TraceFile}
			r := harnesstest.New(t, s, "x")
			if err := os.WriteFile(filepath.Join(r.Env.Root, "secret"), []byte(`{"kind":"log","t":1,"stream":"stdout","text":"stolen"}`), 0o644); err != nil {
				t.Fatal(err)
			}
			out := r.Run(t, New())
			if out.Failure != nil || *out.FinalMessage != "answer" || out.Usage != nil {
				t.Errorf("outcome %+v, want the answer and no usage", out)
			}
			for _, ev := range r.Events() {
				if ev.Text != nil && *ev.Text == "stolen" {
					t.Error("a file outside the workspace was read")
				}
			}
		})
	}
}

// TestLinkAsWorkDir: where the command made a link of the directory that it works in, or of the workspace, nothing behind
// the link becomes a trace.
func TestLinkAsWorkDir(t *testing.T) {
	t.Parallel()
	for workDir, link := range map[string]string{"work/sub": "sub", "work/sub/deep": "sub", "work": "../work", "": "../work", "other": "../other"} {
		t.Run(workDir, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			for _, dir := range []string{"", "deep"} {
				if err := os.MkdirAll(filepath.Join(outside, dir), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(outside, dir, "everdict-trace.json"), []byte(`{"kind":"log","t":1,"stream":"stdout","text":"stolen"}`), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s := spec("cd " + "$HOME/work && mv " + link + " ../away; ln -s " + outside + " " + link)
			s.WorkDir, s.Trace = workDir, &protocol.CommandTrace{Kind: protocol.TraceFile}
			r := harnesstest.New(t, s, "x")
			if workDir != "" {
				if err := os.MkdirAll(filepath.Join(r.Env.Root, workDir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r.Run(t, New())
			said := false
			for _, ev := range r.Events() {
				if ev.Text != nil && *ev.Text == "stolen" {
					t.Error("a file outside of the attempt was read")
				}
				said = said || ev.Kind == protocol.EventError && strings.HasPrefix(ev.Message, "no trace: everdict-trace.json: ")
			}
			if !said {
				t.Errorf("events %v: none says that there is no trace", r.Events())
			}
		})
	}
}

func TestTraceOfAKnownCLI(t *testing.T) {
	t.Parallel()
	for kind, recording := range map[string]string{protocol.TraceClaudeCode: "../claudecode/testdata/claude-ok.jsonl", protocol.TraceCodex: "../codex/testdata/codex-ok.jsonl"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(recording)
			if err != nil {
				t.Fatal(err)
			}
			s := spec("cat " + path + "; exit 2")
			s.Trace = &protocol.CommandTrace{Kind: kind}
			r := harnesstest.New(t, s, "x")
			out := r.Run(t, New())
			if out.Failure != nil || *out.FinalMessage != "All done: ok.txt now contains the text done." || out.Usage == nil || *out.Usage.TotalTokens != 10435 {
				t.Errorf("outcome %+v, usage %+v", out, out.Usage)
			}
			if events := r.Events(); events[len(events)-1].Action != "command.exit" {
				t.Errorf("last event %+v, want how the command ended", events[len(events)-1])
			}
		})
	}
}

func TestF25_LongAnswersKeepTheirEnd(t *testing.T) {
	t.Parallel()
	r := harnesstest.New(t, spec("head -c 10000000 /dev/zero | tr '\\000' x; echo END; head -c 100000 /dev/zero | tr '\\000' y >&2"), "x")
	out := r.Run(t, New())
	if got := *out.FinalMessage; len(got) > maxAnswer || len(got) < maxAnswer-10 || !strings.HasSuffix(got, "xEND") {
		t.Errorf("answer of %d bytes", len(got))
	}
	if n := len(r.Stdout.String()); n != 10000004 {
		t.Errorf("the log has %d bytes", n)
	}
	for _, ev := range r.Events()[2:] {
		if !ev.Truncated {
			t.Errorf("%s event is not marked as truncated", ev.Kind)
		}
	}
}

func TestTasksLongerThanAnArgument(t *testing.T) {
	t.Parallel()
	task := strings.Repeat("long task ", 30<<10)
	r := harnesstest.New(t, spec("printf %s {{task}} | wc -c; cat"), task)
	if out := r.Run(t, New()); strings.TrimSpace(*out.FinalMessage) != fmt.Sprint(len(task)) {
		t.Errorf("answer %q, want %d", *out.FinalMessage, len(task))
	}
}

// A timeout ends what runs inside, a daemon included: nothing is written after it.
func TestF11_NothingRunsAfterATimeout(t *testing.T) {
	t.Parallel()
	r := harnesstest.New(t, spec(`loop='while :; do echo x >> late.txt; sleep 0.01; done'
(setsid sh -c "trap '' INT TERM HUP; $loop" >/dev/null 2>&1 &)
while [ ! -s late.txt ]; do sleep 0.01; done
eval "$loop"`), "x")
	r.Env.Timeout = 2 * time.Second // it covers the start of both loops
	if out := r.Run(t, New()); out.Failure == nil || out.Failure.Reason != protocol.ReasonTimeout {
		t.Fatalf("failure %+v, want timeout", out.Failure)
	}
	size := len(r.File(t, "late.txt"))
	// A writer of the loop's pace would have come round many times meanwhile.
	probe := r.Env
	probe.Case, probe.Timeout = &protocol.Case{ID: "c2", Task: "x"}, time.Minute
	probe.Spec = &protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "probe", Version: "1", Command: "sleep 0.5"}
	if _, err := New().Run(context.Background(), probe); err != nil {
		t.Fatal(err)
	}
	if now := len(r.File(t, "late.txt")); now != size || size == 0 {
		t.Errorf("late.txt grew from %d to %d bytes after the timeout", size, now)
	}
}

func TestP8_TimeoutOfACommandLine(t *testing.T) {
	t.Parallel()
	r := harnesstest.New(t, spec("trap 'echo stopping; exit 0' INT; while :; do sleep 0.05; done"), "x")
	r.Env.Timeout = 2 * time.Second // it covers the trap
	out := r.Run(t, New())
	if f := out.Failure; f == nil || f.Reason != protocol.ReasonTimeout || f.Limit.Configured != 2 || f.Limit.Measured < 2 {
		t.Fatalf("failure %+v, want a timeout although it exited 0 when it was stopped", out.Failure)
	}
	if *out.FinalMessage != "stopping" {
		t.Errorf("answer %q: what it said at the end is evidence", *out.FinalMessage)
	}
}
