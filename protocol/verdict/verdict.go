// Package verdict decides from the scores of a case whether it passed: the
// policy "authority-ladder", version 1.1.0. The highest authority that measured anything with
// a pass decides alone.
package verdict

import (
	"strings"

	"github.com/everdict/everdict/protocol"
)

// definition is a metric that the policy knows.
type definition struct {
	metric    string
	authority string
}

// definitions in the order in which ground truth is asked.
var definitions = []definition{
	{"state", protocol.AuthorityGroundTruth},
	{"tests_pass", protocol.AuthorityGroundTruth},
	{"answer_match", protocol.AuthorityObjective},
	{"url_matches", protocol.AuthorityObjective},
	{"dom_contains", protocol.AuthorityObjective},
	{"judge", protocol.AuthorityJudge},
	{"cost_usd", protocol.AuthorityObservational},
	{"usd", protocol.AuthorityObservational},
	{"latency_ms", protocol.AuthorityObservational},
	{"span", protocol.AuthorityObservational},
	{"tool_calls", protocol.AuthorityObservational},
}

// fallback is the rung of metrics that no definition and no grader spec names.
const fallback = "fallback"

// rungs in the order in which they are asked, with how scores of one rung are
// combined.
var rungs = []struct{ authority, aggregation string }{
	{protocol.AuthorityGroundTruth, "priority"},
	{protocol.AuthorityObjective, "all"},
	{protocol.AuthorityJudge, "all"},
	{fallback, "all"},
}

// Decide returns the verdict and what it rests on, or nil when the scores do
// not allow one: the case never got to the point where it could be judged
// (failure in dispatch, install or run, or cancelled), or nothing that passes or
// fails was measured.
func Decide(scores []protocol.Score, failure *protocol.Failure) (*bool, *protocol.VerdictBasis) {
	if failure != nil {
		switch {
		case failure.Code == protocol.CodeCancelled,
			failure.Stage == protocol.StageDispatch,
			failure.Stage == protocol.StageInstall,
			failure.Stage == protocol.StageRun:
			return nil, nil
		}
	}
	for _, rung := range rungs {
		deciders := decidersOf(rung.authority, scores)
		if len(deciders) == 0 {
			continue
		}
		if rung.aggregation == "priority" {
			deciders = sameMetric(deciders, firstMetric(deciders))
		}
		pass := true
		for _, d := range deciders {
			pass = pass && d.Pass
		}
		return &pass, &protocol.VerdictBasis{Authority: rung.authority, Aggregation: rung.aggregation, Deciders: deciders}
	}
	return nil, nil
}

func decidersOf(authority string, scores []protocol.Score) []protocol.Decider {
	var deciders []protocol.Decider
	for _, s := range scores {
		if s.Status == protocol.ScoreMeasured && s.Pass != nil && authorityOf(s) == authority {
			deciders = append(deciders, protocol.Decider{Metric: s.Metric, GraderID: s.GraderID, Pass: *s.Pass})
		}
	}
	return deciders
}

// authorityOf is the policy's own definition, else what the case gave to the
// metric, else the fallback rung. Reserved metrics cannot be re-declared.
func authorityOf(s protocol.Score) string {
	for _, d := range definitions {
		if d.metric == s.Metric {
			return d.authority
		}
	}
	if rest, isJudge := strings.CutPrefix(s.Metric, "judge:"); isJudge {
		if strings.Contains(rest, ":") {
			return protocol.AuthorityObservational // a single criterion diagnoses, it never decides
		}
		return protocol.AuthorityJudge
	}
	if s.Authority != "" {
		return s.Authority
	}
	return fallback
}

// firstMetric is the metric that comes first in the order of declaration.
func firstMetric(deciders []protocol.Decider) string {
	for _, def := range definitions {
		for _, d := range deciders {
			if d.Metric == def.metric {
				return def.metric
			}
		}
	}
	return deciders[0].Metric
}

func sameMetric(deciders []protocol.Decider, metric string) []protocol.Decider {
	var same []protocol.Decider
	for _, d := range deciders {
		if d.Metric == metric {
			same = append(same, d)
		}
	}
	return same
}
