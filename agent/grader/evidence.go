package grader

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// steps counts tool calls. A harness without a trace has made an unknown number.
func steps(_ context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	if in.Trace.ToolCalls == 0 && untraced(in.Harness) {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: "this harness leaves no trace of its tool calls (trace kind none)"}
	}
	return []protocol.Score{protocol.Measured(spec.ID, protocol.MetricToolCalls, float64(in.Trace.ToolCalls))}, nil
}

func untraced(h *protocol.HarnessSpec) bool {
	return h != nil && h.Kind == protocol.HarnessCommand && (h.Trace == nil || h.Trace.Kind == "" || h.Trace.Kind == protocol.TraceNone)
}

// cost is what the harness says that the run cost. Nobody said: unmeasured.
func cost(_ context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	usage := in.Usage
	if usage == nil || usage.USD == nil {
		usage = in.Trace.Usage
	}
	if usage == nil || usage.USD == nil {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: "the harness reported no cost"}
	}
	s := protocol.Measured(spec.ID, protocol.MetricCostUSD, *usage.USD)
	if usage.USDSource != "" {
		s.Detail = "source: " + usage.USDSource
	}
	if usage.Partial {
		s.Detail = strings.TrimPrefix(s.Detail+"; a lower bound: the harness was cut short", "; ")
	}
	return []protocol.Score{s}, nil
}

// latency is the time between the first and the last event of the trace.
func latency(_ context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	if in.Trace.Events+in.Trace.Dropped+in.Trace.Failed == 0 {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: "the trace is empty"}
	}
	return []protocol.Score{protocol.Measured(spec.ID, protocol.MetricLatencyMs, in.Trace.LastT-in.Trace.FirstT)}, nil
}

func (in *Input) answer() *string {
	if in.FinalMessage != nil {
		return in.FinalMessage
	}
	return in.Trace.FinalMessage
}

// answerMatch compares the last assistant message with the expectation. Nothing
// expected, or nothing answered, is a fail.
func answerMatch(_ context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.AnswerMatchConfig)
	expect := cfg.Expect
	if expect == nil {
		expect = in.Case.Expected
	}
	var want, got string
	if expect != nil {
		want = plain(*expect)
	}
	if a := in.answer(); a != nil {
		got = plain(*a)
	}
	pass := want != "" && strings.Contains(got, want)
	if cfg.Mode == "exact" {
		pass = want != "" && got == want
	}
	s := protocol.MeasuredPass(spec.ID, protocol.MetricAnswerMatch, pass)
	switch {
	case want == "":
		s.Detail = "nothing is expected: give config.expect or the case's expected"
	case in.answer() == nil:
		s.Detail = "the agent said nothing"
	case !pass:
		s.Detail = fmt.Sprintf("want %s %q, got %q", cfg.Mode, protocol.Clip(want, 500), protocol.Clip(got, 500))
	}
	return []protocol.Score{s}, nil
}

// plain lower-cases and collapses white space.
func plain(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }

// textMetric reads a number out of the last assistant message: 0 when it is not
// there, as existing clients expect; unmeasured when there is no message.
func textMetric(_ context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.TextMetricConfig)
	re, err := regexp.Compile("(?m)" + cfg.Pattern)
	if err != nil {
		return nil, err
	}
	answer := in.answer()
	if answer == nil {
		return nil, &Unmeasured{Reason: protocol.ReasonMissingEvidence, Detail: "the agent said nothing"}
	}
	value, found := firstNumber(re, []byte(*answer))
	s := protocol.Measured(cfg.ID, cfg.Metric, value)
	if !found {
		s.Detail = "the pattern matches no number in the last message"
	}
	return []protocol.Score{s}, nil
}

// firstNumber is the number in the first group of the first match.
func firstNumber(re *regexp.Regexp, b []byte) (float64, bool) {
	m := re.FindSubmatch(b)
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(m[1])), 64)
	if err != nil || v-v != 0 { // Inf and NaN are no score
		return 0, false
	}
	return v, true
}
