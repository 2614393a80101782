package claudecode

import (
	"encoding/json"
	"strings"

	"github.com/everdict/everdict/agent/evidence/jsonl"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/protocol"
)

// usage is Anthropic's: input excludes cache reads and writes.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// sum is a sum of usage; a part that nobody reported stays unknown.
type sum struct{ input, cacheRead, cacheWrite *int64 }

func (s *sum) addInput(u *usage) {
	add(&s.input, u.Input)
	add(&s.cacheRead, u.CacheRead)
	add(&s.cacheWrite, u.CacheWrite)
}

func add(to **int64, v *int64) {
	if v == nil {
		return
	}
	if *to == nil {
		*to = new(int64)
	}
	**to += *v
}

// total adds the parts that are known; nil when the first is not.
func total(first *int64, rest ...*int64) *int64 {
	if first == nil {
		return nil
	}
	t := *first
	for _, v := range rest {
		if v != nil {
			t += *v
		}
	}
	return &t
}

type modelUsage struct {
	Input      *int64 `json:"inputTokens"`
	Output     *int64 `json:"outputTokens"`
	CacheRead  *int64 `json:"cacheReadInputTokens"`
	CacheWrite *int64 `json:"cacheCreationInputTokens"`
}

type result struct {
	Subtype    string                     `json:"subtype"`
	IsError    bool                       `json:"is_error"`
	APIStatus  int                        `json:"api_error_status"`
	Result     json.RawMessage            `json:"result"`
	Errors     json.RawMessage            `json:"errors"`
	TotalCost  *float64                   `json:"total_cost_usd"`
	Usage      *usage                     `json:"usage"`
	ModelUsage map[string]json.RawMessage `json:"modelUsage"`
}

// result is the last line: totals, and whether the run is one. An API failure
// has the subtype success, so that is_error decides.
func (s *Stream) result(b []byte) {
	var r result
	if !jsonl.Decode(b, &r) {
		s.report.Garbage++
		return
	}
	s.report.Complete = true
	s.report.Usage = s.totals(r)
	text := words(r.Result)
	switch {
	case !r.IsError && text != "":
		s.report.FinalMessage = &text
	case r.IsError && stoppedByRule(r.Subtype):
		s.report.Stopped = r.Subtype
		s.emit(protocol.TraceEvent{Kind: protocol.EventError, Message: "claude ended early: " + r.Subtype})
	case r.IsError:
		s.report.APIError, s.report.APIStatus = text, r.APIStatus
		if text == "" || text == "null" {
			s.report.APIError = strings.TrimSpace(r.Subtype + " " + joined(r.Errors))
		}
	}
	s.once.Do(func() { close(s.finished) })
}

// stoppedByRule reports whether the agent ended by a limit of its own: what it
// did until then is judged.
func stoppedByRule(subtype string) bool {
	return strings.HasPrefix(subtype, "error_max_")
}

func joined(raw json.RawMessage) string {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, "; ")
	}
	return string(raw)
}

// totals takes tokens from modelUsage, which is complete: the plain usage leaves
// sub-agents out and can lag one message.
func (s *Stream) totals(r result) *protocol.Usage {
	var all usage
	source := ""
	for _, raw := range r.ModelUsage {
		var m modelUsage
		if !jsonl.Decode(raw, &m) {
			continue
		}
		source = "claude-code:result.modelUsage"
		add(&all.Input, m.Input)
		add(&all.Output, m.Output)
		add(&all.CacheRead, m.CacheRead)
		add(&all.CacheWrite, m.CacheWrite)
	}
	// A result without any call (no login, a refused key) has an empty modelUsage
	// and zeros in usage: nothing was reported then.
	if source == "" && r.Usage != nil && s.calls > 0 {
		all, source = *r.Usage, "claude-code:result.usage"
	}
	u := &protocol.Usage{
		PromptTokens: total(all.Input, all.CacheRead, all.CacheWrite), CompletionTokens: all.Output,
		CacheReadTokens: all.CacheRead, CacheWriteTokens: all.CacheWrite, TokensSource: source,
	}
	if u.PromptTokens != nil {
		u.TotalTokens = total(u.CompletionTokens, u.PromptTokens)
	}
	if r.TotalCost != nil && (source != "" || *r.TotalCost > 0) {
		u.USD, u.USDSource = r.TotalCost, "claude-code:result.total_cost_usd"
	}
	if s.calls > 0 && !s.subAgents {
		u.Calls = &s.calls
	}
	s.remainder(all, u.USD)
	if u.PromptTokens == nil && u.CompletionTokens == nil && u.USD == nil && u.Calls == nil {
		return nil
	}
	return u
}

// remainder emits what the single calls do not explain (output, cost,
// sub-agents), so that the sum over the trace is the total.
func (s *Stream) remainder(all usage, usd *float64) {
	c := &protocol.Cost{
		InputTokens: less(all.Input, s.spent.input), OutputTokens: all.Output,
		CacheReadTokens: less(all.CacheRead, s.spent.cacheRead), CacheWriteTokens: less(all.CacheWrite, s.spent.cacheWrite), USD: usd,
	}
	if *c != (protocol.Cost{}) {
		s.emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: trace.AggregateModel, Cost: c})
	}
}

// less is what remains of total; nil when nothing does.
func less(total, part *int64) *int64 {
	if total == nil {
		return nil
	}
	rest := *total
	if part != nil {
		rest -= *part
	}
	if rest <= 0 {
		return nil
	}
	return &rest
}

// partial is what is known of a run that was cut short: the input side of each
// message, and the output of those whose end was streamed.
func (s *Stream) partial() *protocol.Usage {
	if s.calls == 0 {
		return nil
	}
	u := &protocol.Usage{
		PromptTokens:    total(s.spent.input, s.spent.cacheRead, s.spent.cacheWrite),
		CacheReadTokens: s.spent.cacheRead, CacheWriteTokens: s.spent.cacheWrite,
		Calls: &s.calls, TokensSource: "claude-code:assistant.usage", Partial: true,
	}
	add(&u.CompletionTokens, s.outputs)
	add(&u.CompletionTokens, s.output)
	if u.PromptTokens != nil {
		u.TotalTokens = total(u.CompletionTokens, u.PromptTokens)
	}
	return u
}
