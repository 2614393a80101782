package claudecode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness/harnesstest"
	"github.com/everdict/everdict/protocol"
)

// claude is a stand-in for the CLI: it keeps what it was given and prints the
// recording $REPLAY, then does $AFTER.
const claude = `#!/bin/sh
printf '%s\n' "$@" > args.txt
cat > stdin.txt
env > env.txt
trap 'exit 1' INT
cat "$REPLAY"
eval "$AFTER"
`

func rig(t *testing.T, recording, after string, params map[string]string) *harnesstest.Rig {
	t.Helper()
	r := harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "claude-code",
		Model: &protocol.ModelBinding{Name: "claude-sonnet-4-5"}, Params: params}, "Create ok.txt; it's a \"task\"")
	r.Program(t, "claude", claude)
	path, err := filepath.Abs("testdata/claude-" + recording + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	r.Env.Environ = append(r.Env.Environ, "REPLAY="+path, "AFTER="+after)
	return r
}

func TestCommandLineAndEnvironment(t *testing.T) {
	t.Parallel()
	r := rig(t, "ok", "", map[string]string{"maxTurns": "5"})
	r.Env.Environ = append(r.Env.Environ, "CLAUDE_CODE_MAX_RETRIES=7")
	out := r.Run(t, New())
	if out.Failure != nil {
		t.Fatalf("failure %+v", out.Failure)
	}
	want := "-p\n--output-format\nstream-json\n--verbose\n--dangerously-skip-permissions\n--model\nclaude-sonnet-4-5\n--max-turns\n5\n"
	if got := r.File(t, "args.txt"); got != want {
		t.Errorf("arguments %q, want %q", got, want)
	}
	if got := r.File(t, "stdin.txt"); got != r.Env.Case.Task {
		t.Errorf("stdin %q, want the task, then the end", got)
	}
	env := "\n" + r.File(t, "env.txt")
	for _, kv := range []string{"IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_MAX_RETRIES=7", "EVERDICT_RUN_ID=run_test"} {
		if !strings.Contains(env, "\n"+kv+"\n") {
			t.Errorf("%s is missing from the environment", kv)
		}
	}
	if out.Path != filepath.Join(r.Env.Root, "bin", "claude") || out.Version != "2.1.197" {
		t.Errorf("program %q version %q", out.Path, out.Version)
	}
	recorded, err := os.ReadFile("testdata/claude-ok.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if r.Stdout.String() != string(recorded) {
		t.Errorf("the log is not what the CLI printed, byte for byte")
	}
}

func TestP8_WhatTheCLIReports(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		recording, after string
		reason, message  string
		retryable        bool
	}{
		{"ok", "", "", "", false},
		{"toolfail", "", "", "", false},
		{"ok", "exit 3", "", "", false}, // it has said its last word
		{"e401", "exit 1", protocol.ReasonAPIError, "claude reports: Failed to authenticate. API Error: 401 invalid api key (fake)", false},
		{"e529", "exit 1", protocol.ReasonAPIError, "529", true},
		{"term", "exit 1", protocol.ReasonCrashed, "claude exited with code 1 and without a final result: sorry", false},
		{"term", "exit 0", protocol.ReasonCrashed, "claude exited with code 0 and without a final result: sorry", false},
		{"term", "kill -s KILL $$", protocol.ReasonCrashed, "claude was ended by SIGKILL, which Everdict did not send", false},
	} {
		t.Run(tt.recording+" "+tt.after, func(t *testing.T) {
			t.Parallel()
			out := rig(t, tt.recording, "echo sorry >&2; "+tt.after, nil).Run(t, New())
			f := out.Failure
			if tt.reason == "" {
				if f != nil {
					t.Fatalf("failure %+v, want none", f)
				}
				return
			}
			if f == nil || f.Class != protocol.ClassHarness || f.Reason != tt.reason || !strings.Contains(f.Message, tt.message) || f.Retryable != tt.retryable {
				t.Fatalf("failure %+v, want %s %q, retryable %v", f, tt.reason, tt.message, tt.retryable)
			}
			if f.LogTail != "sorry\n" {
				t.Errorf("log tail %q", f.LogTail)
			}
		})
	}
}

func TestF28_ResultThenHang(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{
		"it sleeps":                       "sleep 300",
		"it is deaf":                      "trap '' INT TERM; while :; do sleep 1; done",
		"a grandchild holds the pipe":     "sleep 300 & exit 0",
		"it waits for its input to close": "cat; sleep 300",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig(t, "ok", after, nil)
			r.Env.Timeout = 60 * time.Second
			out := r.Run(t, New())
			if out.Failure != nil {
				t.Fatalf("failure %+v, want none: the verdict is kept", out.Failure)
			}
			if out.FinalMessage == nil || *out.FinalMessage != "All done: ok.txt now contains the text done." || out.Usage == nil || *out.Usage.USD != 0.019275 {
				t.Errorf("message %v, usage %+v, want those of the result", out.FinalMessage, out.Usage)
			}
			if ran := out.Exit.Ran; ran > 15*time.Second {
				t.Errorf("it took %v to end it", ran)
			}
		})
	}
}

func TestF28_SilenceIsStalled(t *testing.T) {
	t.Parallel()
	r := rig(t, "term", "sleep 300", nil)
	r.Env.IdleTimeout = 2 * time.Second // it covers the start of the program
	out := r.Run(t, New())
	if f := out.Failure; f == nil || f.Reason != protocol.ReasonStalled || f.Class != protocol.ClassHarness || f.Limit == nil || f.Limit.Configured != 2 {
		t.Fatalf("failure %+v, want stalled after 2 s", out.Failure)
	}
	if u := out.Usage; u == nil || !u.Partial || *u.PromptTokens != 5120 || u.CompletionTokens != nil || u.USD != nil {
		t.Errorf("usage %+v, want the partial input side and nothing else", u)
	}
}

// On SIGINT the CLI prints its result with the cost: a timeout keeps it.
func TestF46_TimeoutKeepsTheCost(t *testing.T) {
	t.Parallel()
	r := rig(t, "term", `trap 'cat "$LAST"; exit 1' INT; while :; do sleep 0.05; done`, nil)
	path, err := filepath.Abs("testdata/claude-int.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	r.Write(t, "last.jsonl", lines[len(lines)-1]+"\n")
	r.Env.Environ = append(r.Env.Environ, "LAST="+filepath.Join(r.Env.WorkDir, "last.jsonl"))
	r.Env.Timeout = 2 * time.Second // it covers the trap
	out := r.Run(t, New())
	if out.Failure == nil || out.Failure.Reason != protocol.ReasonTimeout {
		t.Fatalf("failure %+v, want timeout", out.Failure)
	}
	if out.Usage == nil || out.Usage.USD == nil || *out.Usage.USD != 0.01656 {
		t.Errorf("usage %+v, want the cost of the result that it printed when it was stopped", out.Usage)
	}
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	r := harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "claude-code", Params: map[string]string{"bin": "no-such-claude"}}, "x")
	err := New().Install(context.Background(), r.Env)
	var f *protocol.Failure
	if !errors.As(err, &f) || f.Stage != protocol.StageInstall || f.Reason != protocol.ReasonMissing || f.Code != protocol.CodeHarnessInstallFailed ||
		!strings.Contains(f.Message, "npm install -g @anthropic-ai/claude-code") {
		t.Errorf("install: %v, want a failure that says how to get it", err)
	}
	out, err := New().Run(context.Background(), r.Env)
	if err != nil || out.Failure == nil || out.Failure.Reason != protocol.ReasonMissing {
		t.Errorf("run: %v, %+v, want a failure", err, out.Failure)
	}
}
