package run

import (
	"fmt"
	"slices"

	"github.com/everdict/everdict/protocol"
)

// Bounds of what a result may put into a run's record. A runner keeps within them;
// they are for one that does not, because a page of a thousand records must stay
// a page. What is longer is in the evidence.
const (
	maxScores = 1000
	// maxName bounds names and codes, maxWords sentences, maxTail a score's detail
	// and the end of a log, in bytes.
	maxName, maxWords, maxTail = 200, 4000, 16 << 10
)

var (
	stages  = []string{protocol.StageDispatch, protocol.StageInstall, protocol.StageRun, protocol.StageCollect, protocol.StageGrade}
	classes = []string{protocol.ClassInfra, protocol.ClassConfig, protocol.ClassHarness, protocol.ClassAgent}
)

// malformed is the failure of a result that is not one.
func malformed(stage, message string) *protocol.Failure {
	return &protocol.Failure{Stage: stage, Class: protocol.ClassInfra, Reason: protocol.ReasonMalformed, Code: protocol.CodeInternal, Message: message}
}

// bound brings a result into the bounds. Scores are never left out quietly: one
// that is gone might have been the one that did not pass.
func bound(r *protocol.CaseResult) {
	if n := len(r.Scores); n > maxScores {
		r.Scores = slices.Clone(r.Scores[:maxScores])
		f := malformed(protocol.StageGrade, fmt.Sprintf("the graders produced %d scores, the limit is %d", n, maxScores))
		f.Limit = &protocol.Limit{Name: "scores", Unit: "scores", Configured: maxScores, Measured: float64(n)}
		if was := r.Failure; was != nil {
			f.Message += "; before that: " + was.Message
			f.LogTail = was.LogTail
		}
		r.Failure = f
	}
	for i := range r.Scores {
		s := &r.Scores[i]
		clip(maxName, &s.GraderID, &s.Metric, &s.Label, &s.Authority)
		clip(maxTail, &s.Detail)
		*s = s.Normalize()
	}
	clip(maxName, &r.Harness)
	f := r.Failure
	if f == nil {
		return
	}
	if !slices.Contains(stages, f.Stage) || !slices.Contains(classes, f.Class) {
		said := fmt.Sprintf("the runner sent a failure of stage %q and class %q, which there are not: %s",
			protocol.Clip(f.Stage, 40), protocol.Clip(f.Class, 40), f.Message)
		tail := f.LogTail
		r.Failure = malformed(protocol.StageCollect, said)
		f = r.Failure
		f.LogTail = tail
	}
	clip(maxName, &f.Reason, (*string)(&f.Code), &f.Signal)
	clip(maxWords, &f.Message, &f.Hint)
	if over := len(f.LogTail) - maxTail; over > 0 {
		f.LogTail = f.LogTail[over:]
	}
	if f.Limit != nil {
		clip(maxName, &f.Limit.Name, &f.Limit.Unit)
	}
}

func clip(limit int, texts ...*string) {
	for _, t := range texts {
		*t = protocol.Clip(*t, limit)
	}
}
