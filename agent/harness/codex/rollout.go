package codex

import (
	"context"
	"regexp"
	"time"

	"github.com/everdict/everdict/agent/evidence/jsonl"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// findRollout prints the lines of one thread's session file that hold usage: the
// rest can be large.
const findRollout = `cat "${CODEX_HOME:-$HOME/.codex}"/sessions/*/*/*/rollout-*-"$1".jsonl 2>/dev/null | grep -F '"token_count"'`

// rollout reads what a run that was cut short had used by then from the session
// file that the CLI keeps: a failed or stopped turn has no usage in the stream.
// It is nil when there is no such file or nothing in it.
func rollout(ctx context.Context, env harness.Env, thread string) *usage {
	if !threadID.MatchString(thread) {
		return nil
	}
	var last *usage
	lines := &jsonl.Splitter{Line: func(b []byte, dropped int64) {
		if u := tokenCount(b); dropped == 0 && u != nil {
			last = u
		}
	}}
	p, err := env.Compute.Exec(ctx, sandbox.Command{
		Args: []string{"sh", "-c", findRollout, "sh", thread}, Dir: env.WorkDir, Env: environment(env),
		Stdout: lines, Timeout: 10 * time.Second, Ladder: sandbox.Ladder{},
	})
	if err != nil {
		return nil
	}
	if _, err := p.Wait(); err != nil {
		return nil
	}
	lines.Close()
	return last
}

// threadID is what the CLI names its threads; anything else would be a pattern
// for the shell.
var threadID = regexp.MustCompile(`^[0-9A-Za-z-]{8,64}$`)

// tokenCount is the cumulative usage in a line of a session file.
func tokenCount(b []byte) *usage {
	var l struct {
		Payload struct {
			Type string `json:"type"`
			Info struct {
				Total *usage `json:"total_token_usage"`
			} `json:"info"`
		} `json:"payload"`
	}
	if !jsonl.Decode(b, &l) || l.Payload.Type != "token_count" || l.Payload.Info.Total == nil {
		return nil
	}
	if u := l.Payload.Info.Total; u.Input != nil || u.Output != nil {
		return u
	}
	return nil
}

// total is the usage of a run in this project's terms: prompt tokens include the
// cache, completion tokens include reasoning, as they do here already.
func (u *usage) total(source string) *protocol.Usage {
	t := &protocol.Usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, CacheReadTokens: u.Cached, CacheWriteTokens: u.CacheWrite,
		ReasoningTokens: u.Reasoning, TokensSource: source,
	}
	if u.Input != nil && u.Output != nil {
		n := *u.Input + *u.Output
		t.TotalTokens = &n
	}
	return t
}

// aggregate is the model call event of what a cumulative usage grew by.
func (u *usage) aggregate(before *usage) protocol.TraceEvent {
	return protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: trace.AggregateModel, Cost: &protocol.Cost{
		InputTokens:  grown(uncached(u), uncached(before)),
		OutputTokens: grown(u.Output, before.Output), CacheReadTokens: grown(u.Cached, before.Cached),
		CacheWriteTokens: grown(u.CacheWrite, before.CacheWrite), ReasoningTokens: grown(u.Reasoning, before.Reasoning),
	}}
}
