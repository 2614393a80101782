package verdict

import (
	"testing"

	"github.com/everdict/everdict/protocol"
)

func pass(metric string, ok bool) protocol.Score { return protocol.MeasuredPass("g", metric, ok) }

func withAuthority(s protocol.Score, a string) protocol.Score {
	s.Authority = a
	return s
}

func TestDecide(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	failed := func(stage string) *protocol.Failure { return &protocol.Failure{Stage: stage} }
	for _, tt := range []struct {
		name      string
		scores    []protocol.Score
		failure   *protocol.Failure
		want      *bool
		authority string
	}{
		{name: "no scores"},
		{name: "a number without a pass decides nothing", scores: []protocol.Score{protocol.Measured("g", "cost_usd", 0)}},
		{name: "tests pass", scores: []protocol.Score{pass("tests_pass", true)}, want: &yes, authority: "ground_truth"},
		{name: "tests fail", scores: []protocol.Score{pass("tests_pass", false)}, want: &no, authority: "ground_truth"},
		{name: "ground truth beats objective", scores: []protocol.Score{pass("answer_match", true), pass("tests_pass", false)}, want: &no, authority: "ground_truth"},
		{name: "state comes before tests_pass", scores: []protocol.Score{pass("tests_pass", false), pass("state", true)}, want: &yes, authority: "ground_truth"},
		{name: "two scores of one metric are both needed", scores: []protocol.Score{pass("tests_pass", true), pass("tests_pass", false)}, want: &no, authority: "ground_truth"},
		{name: "every objective metric is needed", scores: []protocol.Score{pass("answer_match", true), pass("url_matches", false)}, want: &no, authority: "objective"},
		{name: "a criterion of a judge never decides", scores: []protocol.Score{pass("judge:a:b", false), pass("judge:a", true)}, want: &yes, authority: "judge"},
		{name: "an undeclared metric falls back", scores: []protocol.Score{pass("lint", true)}, want: &yes, authority: "fallback"},
		{name: "a declared metric joins its rung", scores: []protocol.Score{pass("lint", true), withAuthority(pass("e2e", false), "objective")}, want: &no, authority: "objective"},
		{name: "a reserved metric keeps its rung", scores: []protocol.Score{withAuthority(pass("tests_pass", true), "observational")}, want: &yes, authority: "ground_truth"},
		{name: "unmeasured decides nothing", scores: []protocol.Score{protocol.Unmeasured("g", "tests_pass", protocol.ReasonGraderError, true, "")}},
		{name: "no verdict after a failure of the run", scores: []protocol.Score{pass("tests_pass", true)}, failure: failed(protocol.StageRun)},
		{name: "no verdict when cancelled", scores: []protocol.Score{pass("tests_pass", true)}, failure: &protocol.Failure{Stage: protocol.StageGrade, Code: protocol.CodeCancelled}},
		{name: "a failure while grading keeps the verdict", scores: []protocol.Score{pass("tests_pass", true)}, failure: failed(protocol.StageGrade), want: &yes, authority: "ground_truth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, basis := Decide(tt.scores, tt.failure)
			if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Fatalf("Decide(%v): got %v, want %v", tt.scores, show(got), show(tt.want))
			}
			if got != nil && basis.Authority != tt.authority {
				t.Errorf("decided by %s, want %s", basis.Authority, tt.authority)
			}
		})
	}
}

func show(b *bool) any {
	if b == nil {
		return "none"
	}
	return *b
}
