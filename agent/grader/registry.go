package grader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Builtin returns a new registry with the graders that every runner has.
func Builtin() Registry {
	return Registry{
		protocol.GraderTestsPass:   Func(testsPass),
		protocol.GraderCommand:     Func(command),
		protocol.GraderScriptScore: Func(scriptScore),
		protocol.GraderScript:      Func(script),
		protocol.GraderRewardFile:  Func(rewardFile),
		protocol.GraderSteps:       Func(steps),
		protocol.GraderCost:        Func(cost),
		protocol.GraderLatency:     Func(latency),
		protocol.GraderAnswerMatch: Func(answerMatch),
		protocol.GraderTextMetric:  Func(textMetric),
	}
}

// Unmeasured is an error that says why a grader has no number.
type Unmeasured struct {
	Reason    string // protocol.ReasonMissingEvidence and its like
	Retryable bool
	Detail    string
}

// Error implements error.
func (u *Unmeasured) Error() string { return u.Detail }

// Grade runs the case's graders in order and returns every score that they
// produce, in that order. It returns also when a grader fails, panics or is cut
// off by ctx: each of these is an unmeasured score under the metric that the
// grader would have produced.
func (r Registry) Grade(ctx context.Context, in Input) []protocol.Score {
	scores := []protocol.Score{}
	if in.Log != nil {
		in.Log = &locked{w: in.Log}
	}
	for _, spec := range in.Case.Graders {
		graderID, metric := identity(spec)
		got, err := r.one(ctx, &in, spec)
		if err != nil {
			scores = append(scores, unmeasured(ctx, graderID, metric, err))
			continue
		}
		for _, s := range got {
			s.GraderID = graderID
			s.Metric = protocol.CanonicalMetric(s.Metric)
			s.Detail = clipDetail(s.Detail)
			scores = append(scores, own(spec, s.Normalize()))
		}
	}
	return scores
}

// locked lets the two outputs of a command share one log.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// one runs one grader; a panic in it is an error of this grader alone.
func (r Registry) one(ctx context.Context, in *Input, spec protocol.GraderSpec) (scores []protocol.Score, err error) {
	defer func() {
		if p := recover(); p != nil {
			scores, err = nil, fmt.Errorf("grader %s panicked: %v\n%s", spec.ID, p, debug.Stack())
		}
	}()
	g, ok := r[spec.ID]
	if !ok {
		return nil, &Unmeasured{Reason: protocol.ReasonUnsupported, Detail: "this runner has no grader " + spec.ID}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return g.Grade(ctx, in, spec)
}

func unmeasured(ctx context.Context, graderID, metric string, err error) protocol.Score {
	var why *Unmeasured
	switch {
	case errors.As(err, &why):
	case errors.Is(err, context.DeadlineExceeded):
		why = &Unmeasured{Reason: protocol.ReasonGraderTimeout, Detail: "the time for grading was over: " + err.Error()}
	case ctx.Err() != nil:
		why = &Unmeasured{Reason: protocol.ReasonGraderError, Retryable: true, Detail: "grading was stopped: " + err.Error()}
	case errors.Is(err, sandbox.ErrReleased):
		why = &Unmeasured{Reason: protocol.ReasonGraderError, Retryable: true, Detail: "the sandbox was gone: " + err.Error()}
	default:
		why = &Unmeasured{Reason: protocol.ReasonGraderError, Retryable: true, Detail: err.Error()}
	}
	return protocol.Unmeasured(graderID, metric, why.Reason, why.Retryable, clipDetail(why.Detail))
}

// identity is the grader id of a spec's scores and the metric that stands for
// the grader when it has none.
func identity(spec protocol.GraderSpec) (graderID, metric string) {
	cfg, err := spec.ParseConfig()
	if err != nil {
		return spec.ID, defaultMetric(spec.ID)
	}
	switch c := cfg.(type) {
	case *protocol.CommandConfig:
		return c.ID, protocol.CanonicalMetric(c.Metric)
	case *protocol.ScriptScoreConfig:
		return c.ID, protocol.CanonicalMetric(c.Metric)
	case *protocol.ScriptConfig:
		return c.ID, c.ID
	case *protocol.RewardFileConfig:
		return c.ID, protocol.MetricTestsPass
	case *protocol.TextMetricConfig:
		return c.ID, protocol.CanonicalMetric(c.Metric)
	}
	return spec.ID, defaultMetric(spec.ID)
}

func defaultMetric(id string) string {
	switch id {
	case protocol.GraderTestsPass, protocol.GraderRewardFile:
		return protocol.MetricTestsPass
	case protocol.GraderAnswerMatch:
		return protocol.MetricAnswerMatch
	case protocol.GraderSteps:
		return protocol.MetricToolCalls
	case protocol.GraderCost:
		return protocol.MetricCostUSD
	case protocol.GraderLatency:
		return protocol.MetricLatencyMs
	case protocol.GraderScriptScore:
		return "score"
	}
	return id
}

// own enforces who may produce which metric, and gives a metric of the case's
// own the authority that the spec declares for it. Reserved names decide
// verdicts, so that a grader that is not their owner must not be able to use one.
func own(spec protocol.GraderSpec, s protocol.Score) protocol.Score {
	if owners, reserved := reservedMetric(s.Metric); reserved {
		for _, id := range owners {
			if id == spec.ID {
				return s
			}
		}
		return protocol.Score{
			GraderID: s.GraderID, Metric: s.Metric, Status: protocol.ScoreInvalid, Reason: protocol.ReasonContractViolation,
			Detail: fmt.Sprintf("the metric %s is reserved: grader %s may not produce it", s.Metric, spec.ID),
		}
	}
	s.Authority = ""
	for _, m := range spec.Metrics {
		if protocol.CanonicalMetric(m.ID) == s.Metric && m.Authority != "" {
			s.Authority = m.Authority
			return s
		}
	}
	s.Authority = spec.Authority
	return s
}

func reservedMetric(name string) (owners []string, reserved bool) {
	switch name {
	case protocol.MetricTestsPass:
		return []string{protocol.GraderTestsPass, protocol.GraderRewardFile}, true
	case protocol.MetricAnswerMatch:
		return []string{protocol.GraderAnswerMatch}, true
	case "state":
		return []string{"state"}, true
	case "url_matches":
		return []string{"url-matches"}, true
	case "dom_contains":
		return []string{"dom-contains"}, true
	case "judge":
		return []string{"judge"}, true
	}
	if strings.HasPrefix(name, "judge:") {
		return []string{"judge"}, true
	}
	return nil, false
}
