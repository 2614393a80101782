package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/evidence/trace"
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
	defer x.a.Redact.Snapshot(&x.result.Snapshot) // also before graders see it
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
	// The files in it are masked already; what is found here cannot be applied, but
	// is not told either.
	before := x.a.Redact.Count()
	diff := x.a.Redact.Writer(x.a.Diff)
	_, err = io.Copy(diff, r)
	if err = errors.Join(err, diff.Close()); err != nil {
		return fmt.Errorf("keep the diff: %w", err)
	}
	if x.a.Redact.Count() > before {
		x.result.Snapshot.Redacted = true
	}
	return nil
}

// finalMessage is the agent's last word, masked: graders change its case and cut
// it before they quote it. One that was cut already may begin with half a secret;
// the trace's was masked before it was cut.
func (x *execution) finalMessage() *string {
	own, traced := x.outcome.FinalMessage, x.a.Trace.Summary().FinalMessage
	if own == nil || traced != nil && len(*own) >= trace.MaxFinalMessage-utf8.UTFMax {
		return traced
	}
	masked := x.a.Redact.String(*own)
	return &masked
}
