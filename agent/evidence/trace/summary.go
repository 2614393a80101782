package trace

import "github.com/everdict/everdict/protocol"

// AggregateModel is the model of an llm_call that stands for no single call: it
// carries the part of a harness's total that its single calls do not explain, so
// that the sum over a trace is the total.
const AggregateModel = "aggregate"

// Summary is what a trace amounts to. The zero value is an empty trace.
type Summary struct {
	// Events and Bytes are what was written, gap events included; Truncated counts
	// events of which a field was cut.
	Events, Bytes, Truncated int64
	// Dropped and DroppedBytes are events past the limit; Invalid are items that
	// were no event.
	Dropped, DroppedBytes, Invalid int64
	// Failed and FailedBytes are events that the writer failed to write.
	Failed, FailedBytes int64
	// ToolCalls and LLMCalls count all events of these kinds, those that are
	// missing included; an aggregate is no call.
	ToolCalls, LLMCalls int64
	// FirstT and LastT are the times of the first and the last event, epoch
	// milliseconds; both zero without events.
	FirstT, LastT float64
	// FinalMessage is the last assistant message outside sub-agents, cut at
	// MaxFinalMessage bytes; nil without one.
	FinalMessage *string
	// Usage is the sum over the llm_call events; nil without any.
	Usage *protocol.Usage
	// GapAt is where events past the limit begin, counted as protocol.Gap.Offset;
	// meaningful when Dropped is not zero.
	GapAt int64
}

// MaxFinalMessage is how much of the last assistant message a summary keeps: its
// last 256 KiB.
const MaxFinalMessage = 256 << 10

// overLimit is the reason of a hole that MaxBytes made.
const overLimit = "over_limit"

// Gaps returns the hole that the limit made. Those of failed writes are listed by the
// writer, which knows why (outbox.Spool.Gaps).
func (s Summary) Gaps() []protocol.Gap {
	if s.Dropped == 0 {
		return nil
	}
	return []protocol.Gap{{Channel: "trace", Offset: s.GapAt, Bytes: s.DroppedBytes, Reason: overLimit}}
}

// totals sums llm_call events; a number that no call reported stays unknown.
type totals struct {
	calls                                     int64
	seen                                      bool
	input, output, cacheRead, cacheWrite, rsn *int64
	usd                                       *float64
}

func (t *totals) add(model string, c *protocol.Cost) {
	t.seen = true
	if model != AggregateModel {
		t.calls++
	}
	if c == nil {
		return
	}
	plus(&t.input, c.InputTokens)
	plus(&t.output, c.OutputTokens)
	plus(&t.cacheRead, c.CacheReadTokens)
	plus(&t.cacheWrite, c.CacheWriteTokens)
	plus(&t.rsn, c.ReasoningTokens)
	plus(&t.usd, c.USD)
}

func plus[N int64 | float64](sum **N, v *N) {
	if v == nil {
		return
	}
	if *sum == nil {
		*sum = new(N)
	}
	**sum += *v
}

func clone[N any](p *N) *N {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func (t *totals) usage() *protocol.Usage {
	if !t.seen {
		return nil
	}
	u := &protocol.Usage{
		CompletionTokens: clone(t.output),
		CacheReadTokens:  clone(t.cacheRead),
		CacheWriteTokens: clone(t.cacheWrite),
		ReasoningTokens:  clone(t.rsn),
		USD:              clone(t.usd),
	}
	if t.calls > 0 {
		u.Calls = clone(&t.calls)
	}
	if t.input != nil {
		prompt := *t.input
		for _, p := range []*int64{t.cacheRead, t.cacheWrite} {
			if p != nil {
				prompt += *p
			}
		}
		u.PromptTokens = &prompt
	}
	if u.PromptTokens != nil && u.CompletionTokens != nil {
		total := *u.PromptTokens + *u.CompletionTokens
		u.TotalTokens = &total
	}
	if u.PromptTokens != nil || u.CompletionTokens != nil {
		u.TokensSource = "trace:llm_call"
	}
	if u.USD != nil {
		u.USDSource = "trace:llm_call"
	}
	return u
}
