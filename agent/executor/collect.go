package executor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/protocol"
)

// snapshot records what the agent left. A stopped attempt is recorded too, within
// a bound. A snapshot that fails is a failure, never an empty diff (P10).
func (x *execution) snapshot(ctx context.Context) bool {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stoppedCollect)
		defer cancel()
	}
	err := x.collect(ctx)
	if err == nil {
		return true
	}
	var env *environment.Error
	if errors.As(err, &env) {
		x.fail(&env.Failure)
	} else {
		x.fail(&protocol.Failure{Stage: protocol.StageCollect, Class: protocol.ClassInfra, Reason: protocol.ReasonSnapshot,
			Code: protocol.CodeDriverSnapshotFailed, Message: err.Error(), Retryable: true})
	}
	return false
}

func (x *execution) collect(ctx context.Context) error {
	snap, err := x.env.Snapshot(ctx)
	if err != nil {
		return err
	}
	x.result.Snapshot = snap.Document
	if snap.Document.Kind == protocol.EnvPrompt {
		if m := x.finalMessage(); m != nil {
			x.result.Snapshot.Output = *m
		}
	}
	if snap.Diff == nil || snap.Diff.Size == 0 {
		return nil
	}
	r, err := snap.Diff.Open()
	if err != nil {
		return fmt.Errorf("read the diff: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(x.a.Diff, r); err != nil {
		return fmt.Errorf("keep the diff: %w", err)
	}
	return nil
}

// finalMessage is the agent's last word.
func (x *execution) finalMessage() *string {
	if x.outcome.FinalMessage != nil {
		return x.outcome.FinalMessage
	}
	return x.a.Trace.Summary().FinalMessage
}
