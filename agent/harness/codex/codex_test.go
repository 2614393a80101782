package codex

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/harness/harnesstest"
	"github.com/everdict/everdict/protocol"
)

// codex is a stand-in for the CLI: it keeps what it was given and prints the
// recording $REPLAY, then does $AFTER.
const codex = `#!/bin/sh
printf '%s\n' "$@" > args.txt
cat > stdin.txt
env > env.txt
cat "$REPLAY"
eval "$AFTER"
`

func rig(t *testing.T, recording, after string, params map[string]string) *harnesstest.Rig {
	t.Helper()
	r := harnesstest.New(t, protocol.HarnessSpec{Kind: protocol.HarnessProcess, ID: "codex", Params: params}, "Create ok.txt")
	r.Program(t, "codex", codex)
	path, err := filepath.Abs("testdata/codex-" + recording + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	r.Env.Environ = append(r.Env.Environ, "REPLAY="+path, "AFTER="+after)
	return r
}

func TestCommandLineAndEnvironment(t *testing.T) {
	t.Parallel()
	r := rig(t, "ok", "", map[string]string{"config.model_reasoning_effort": `"low"`})
	r.Env.Spec.Model = &protocol.ModelBinding{Name: "gpt-5.5"}
	r.Env.Environ = append(r.Env.Environ, "OPENAI_BASE_URL=http://127.0.0.1:1/v1", "OPENAI_API_KEY=k")
	if out := r.Run(t, New()); out.Failure != nil {
		t.Fatalf("failure %+v", out.Failure)
	}
	args := r.File(t, "args.txt")
	for _, want := range []string{"exec\n--json\n", "--skip-git-repo-check\n", "-m\ngpt-5.5\n", "-c\nmodel_reasoning_effort=\"low\"\n", `base_url="http://127.0.0.1:1/v1"`} {
		if !strings.Contains(args, want) {
			t.Errorf("arguments %q lack %q", args, want)
		}
	}
	if !strings.HasSuffix(args, "\n-\n") || r.File(t, "stdin.txt") != "Create ok.txt" {
		t.Errorf("the prompt is not on stdin: arguments %q, stdin %q", args, r.File(t, "stdin.txt"))
	}
	if strings.Contains(args, "=k") || !strings.Contains(r.File(t, "env.txt"), "CODEX_API_KEY=k\n") {
		t.Errorf("the key belongs into the environment, and only there")
	}
}

func TestP8_WhatTheCLIReports(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		recording, after, reason, message string
		retryable                         bool
	}{
		{"ok", "", "", "", false},
		{"flaky", "", "", "", false},
		{"toolfail", "", "", "", false},
		{"e401", "exit 1", protocol.ReasonAPIError, "codex reports: unexpected status 401 Unauthorized", false},
		{"e529", "exit 1", protocol.ReasonAPIError, "codex reports: ", true},
		{"cut", "exit 1", protocol.ReasonAPIError, "stream disconnected before completion", true},
		{"int", "exit 1", protocol.ReasonCrashed, "without a final result", false},
	} {
		t.Run(tt.recording, func(t *testing.T) {
			t.Parallel()
			f := rig(t, tt.recording, tt.after, nil).Run(t, New()).Failure
			if tt.reason == "" {
				if f != nil {
					t.Fatalf("failure %+v, want none", f)
				}
				return
			}
			if f == nil || f.Reason != tt.reason || !strings.Contains(f.Message, tt.message) || f.Retryable != tt.retryable {
				t.Fatalf("failure %+v, want %s %q, retryable %v", f, tt.reason, tt.message, tt.retryable)
			}
		})
	}
}

// With its server down the CLI reconnects for ever.
func TestF28_RetryingForEverIsGivenUp(t *testing.T) {
	t.Parallel()
	r := rig(t, "int", `while :; do echo '{"type":"error","message":"Reconnecting... waiting for network"}'; sleep 0.01; done`, nil)
	out := r.Run(t, New())
	if f := out.Failure; f == nil || f.Reason != protocol.ReasonAPIError || !f.Retryable || f.Message != "codex reports: Reconnecting... waiting for network" {
		t.Fatalf("failure %+v, want the CLI's words", out.Failure)
	}
	if out.Exit.Ran > 20*time.Second {
		t.Errorf("it ran for %v", out.Exit.Ran)
	}
}

// A failed or stopped turn has no usage in the stream; the session file has it.
func TestF46_UsageOfACutRunComesFromTheSessionFile(t *testing.T) {
	t.Parallel()
	r := rig(t, "int", `mkdir -p "$HOME/.codex/sessions/2026/11/29"
{ echo '{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}'
echo '{"type":"event_msg","payload":{"type":"token_count","info":null}}'
echo '{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"cached_input_tokens":40,"output_tokens":7,"reasoning_output_tokens":2,"total_tokens":107}}}}'
echo '{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":300,"cached_input_tokens":140,"output_tokens":9,"reasoning_output_tokens":2,"total_tokens":309}}}}'
echo '{"type":"event_msg","payload":{"type":"tok'
} > "$HOME/.codex/sessions/2026/11/29/rollout-2026-11-29T12-00-00-01a22748-6dfd-74e3-a6a5-e67048ff6291.jsonl"
sleep 300`, nil)
	r.Env.IdleTimeout = 2 * time.Second // it covers the writing of the file
	out := r.Run(t, New())
	if out.Failure == nil || out.Failure.Reason != protocol.ReasonStalled {
		t.Fatalf("failure %+v, want stalled", out.Failure)
	}
	u := out.Usage
	if u == nil || !u.Partial || *u.PromptTokens != 300 || *u.CompletionTokens != 9 || *u.CacheReadTokens != 140 || u.USD != nil || u.TokensSource != "codex:rollout.token_count" {
		t.Fatalf("usage %+v, want the last count of the session file, partial", u)
	}
	events := r.Events()
	if c := events[len(events)-1].Cost; c == nil || *c.InputTokens != 160 {
		t.Errorf("last event %+v, want a model call of 160 uncached tokens", events[len(events)-1])
	}
}
