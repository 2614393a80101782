package grader

import (
	"context"
	"testing"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/protocol"
)

func TestEvidenceGraders(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	usd := 0.25
	tests := []struct {
		name string
		spec protocol.GraderSpec
		in   Input
		want protocol.Score
	}{
		{"steps", spec("steps", ""), Input{Trace: trace.Summary{Events: 9, ToolCalls: 4}}, measured("steps", "tool_calls", 4)},
		{"no steps", spec("steps", ""), Input{Trace: trace.Summary{Events: 1}}, measured("steps", "tool_calls", 0)},
		{"steps without a trace", spec("steps", ""), Input{Harness: &protocol.HarnessSpec{Kind: protocol.HarnessCommand}},
			unmeasuredScore("steps", "tool_calls", "missing_evidence", false)},
		{"cost", spec("cost", ""), Input{Usage: &protocol.Usage{USD: &usd, USDSource: "s"}}, measured("cost", "cost_usd", 0.25)},
		{"cost of the trace", spec("cost", ""), Input{Usage: &protocol.Usage{}, Trace: trace.Summary{Usage: &protocol.Usage{USD: &usd}}}, measured("cost", "cost_usd", 0.25)},
		{"P13 unknown cost", spec("cost", ""), Input{Usage: &protocol.Usage{}, Trace: trace.Summary{Events: 3, LLMCalls: 3}}, unmeasuredScore("cost", "cost_usd", "missing_evidence", false)},
		{"latency", spec("latency", ""), Input{Trace: trace.Summary{Events: 2, FirstT: 1000, LastT: 3500.5}}, measured("latency", "latency_ms", 2500.5)},
		{"latency of nothing", spec("latency", ""), Input{}, unmeasuredScore("latency", "latency_ms", "missing_evidence", false)},
		{"answer contains", spec("answer-match", `{"expect":"forty  TWO"}`), Input{FinalMessage: text("It is Forty\n two.")}, measured("answer-match", "answer_match", 1, true)},
		{"answer differs", spec("answer-match", `{"expect":"42","mode":"exact"}`), Input{FinalMessage: text("It is 42")}, measured("answer-match", "answer_match", 0, false)},
		{"answer is exact", spec("answer-match", `{"expect":" It  is 42 ","mode":"exact"}`), Input{FinalMessage: text("it is 42\n")}, measured("answer-match", "answer_match", 1, true)},
		{"answer of the case", spec("answer-match", ""), Input{Case: &protocol.Case{Expected: text("42")}, Trace: trace.Summary{FinalMessage: text("42")}}, measured("answer-match", "answer_match", 1, true)},
		{"nothing is expected", spec("answer-match", ""), Input{FinalMessage: text("42")}, measured("answer-match", "answer_match", 0, false)},
		{"nothing is answered", spec("answer-match", `{"expect":"42"}`), Input{}, measured("answer-match", "answer_match", 0, false)},
		{"text-metric", spec("text-metric", `{"pattern":"^score: (-?[\\d.]+)$","metric":"s","id":"t"}`), Input{FinalMessage: text("so\nscore: -1.5\nend")}, measured("t", "s", -1.5)},
		{"text-metric without a number", spec("text-metric", `{"pattern":"(\\d+)","metric":"s"}`), Input{FinalMessage: text("none")}, measured("text-metric", "s", 0)},
		{"text-metric without a message", spec("text-metric", `{"pattern":"(\\d+)","metric":"s"}`), Input{}, unmeasuredScore("text-metric", "s", "missing_evidence", false)},
		{"text-metric in a reserved name", spec("text-metric", `{"pattern":"(\\d+)","metric":"judge"}`), Input{FinalMessage: text("1")}, invalid("text-metric", "judge")},
		{"without a sandbox", spec("tests-pass", ""), Input{}, unmeasuredScore("tests-pass", "tests_pass", "unsupported", false)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.in.Case == nil {
				tt.in.Case = &protocol.Case{ID: "c1"}
			}
			tt.in.Case.Graders = []protocol.GraderSpec{tt.spec}
			check(t, Builtin().Grade(context.Background(), tt.in), tt.want)
		})
	}
}
