package executor

import (
	"context"

	"github.com/everdict/everdict/agent/grader"
	"github.com/everdict/everdict/protocol"
)

// grade judges the work. An agent that ran into a limit is graded too, so that
// people see how far it came; the failure keeps the verdict away. A stopped
// attempt, and one whose environment is not known, is not graded.
func (x *execution) grade(ctx context.Context) bool {
	if f := x.result.Failure; ctx.Err() != nil || f != nil && (f.Stage == protocol.StageCollect || f.Class == protocol.ClassInfra) {
		return false
	}
	if err := x.layBin(); err != nil {
		x.failed(ctx, protocol.StageGrade, err)
		return false
	}
	scores := x.cfg.Graders.Grade(ctx, grader.Input{
		RunID:        x.a.Job.RunID,
		Case:         &x.a.Job.Case,
		Harness:      &x.a.Job.Harness,
		Compute:      x.compute,
		Root:         x.root,
		WorkDir:      x.env.Dir(),
		Files:        x.files,
		Environ:      pairs(x.a.Job.Env),
		Snapshot:     x.result.Snapshot,
		Trace:        x.a.Trace.Summary(),
		OpenTrace:    x.a.OpenTrace,
		FinalMessage: x.finalMessage(),
		Usage:        x.usage(),
	})
	if ctx.Err() != nil {
		x.fail(stopFailure(ctx, protocol.StageGrade))
	}
	x.result.Scores = append(x.result.Scores, scores...)
	return true
}
