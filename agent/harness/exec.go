package harness

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// DefaultExitGrace is how long an agent that has reported its final result may
// take to exit: CLIs flush sessions and stop helpers in well under a second.
const DefaultExitGrace = 5 * time.Second

// stopTime bounds the walk down a ladder, so that the last process is gone
// within the 10 s of promise P6.
const stopTime = 8 * time.Second

// afterReport ends an agent that has said everything but stays.
var afterReport = sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: time.Second, Tree: true}}

// Execution is an agent's main process.
type Execution struct {
	// Command is what to run. Its time limits are taken from the Env.
	Command sandbox.Command
	// Finished is closed when the agent has reported its final result: it then has
	// ExitGrace to exit (zero: DefaultExitGrace) and is ended after that, which
	// takes nothing from its report.
	Finished  <-chan struct{}
	ExitGrace time.Duration
	// Hopeless is closed when going on can lead to nothing: the agent is stopped.
	Hopeless <-chan struct{}
}

// Ended is how an agent's main process ended.
type Ended struct {
	sandbox.Exit
	// Lingered: it had reported its result and was ended because it stayed.
	Lingered bool
	// GivenUp: it was stopped because of Execution.Hopeless.
	GivenUp bool
	// Stderr is the end of what it wrote there.
	Stderr string
	// usage is what the sandbox measured.
	usage sandbox.Usage
	info  sandbox.Info
}

// Exec runs an agent's main process to its end. The error is a *protocol.Failure
// when it could not be started, ctx's cause when that ended it, ErrKilled when
// the sandbox was ended under it.
func (e Env) Exec(ctx context.Context, x Execution) (Ended, error) {
	stderr := NewTail(e.Stderr, 2000)
	cmd := x.Command
	cmd.Stderr = &tee{cmd.Stderr, stderr}
	cmd.Timeout, cmd.IdleTimeout = e.Timeout, e.IdleTimeout
	p, err := e.Compute.Exec(ctx, cmd)
	if err != nil {
		return Ended{}, e.startError(ctx, protocol.StageRun, cmd.Args[0], err)
	}
	if e.Started != nil {
		e.Started(p.Pid())
	}
	var ended Ended
	ended.Exit, ended.Lingered, ended.GivenUp, err = attend(ctx, p, x)
	ended.Stderr = stderr.String()
	if err != nil {
		return ended, err
	}
	if ended.Reason == sandbox.ReasonKilled || ended.Reason == sandbox.ReasonStopped && !ended.Lingered && !ended.GivenUp {
		return ended, ErrKilled
	}
	ended.info = e.Compute.Info()
	if ended.usage, err = e.Compute.Usage(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrReleased) {
		return ended, err
	}
	return ended, nil
}

// attend waits for the process and for the reasons to end it.
func attend(ctx context.Context, p sandbox.Process, x Execution) (exit sandbox.Exit, lingered, givenUp bool, err error) {
	grace := x.ExitGrace
	if grace == 0 {
		grace = DefaultExitGrace
	}
	finished := x.Finished
	var overdue <-chan time.Time
	for {
		select {
		case <-p.Done():
			exit, err = p.Wait()
			return exit, false, false, observed(err)
		case <-finished:
			finished = nil
			timer := time.NewTimer(grace)
			defer timer.Stop()
			overdue = timer.C
		case <-overdue:
			exit, err = stop(p, afterReport)
			return exit, exit.Reason == sandbox.ReasonStopped, false, observed(err)
		case <-x.Hopeless:
			exit, err = stop(p, x.Command.Ladder)
			return exit, false, exit.Reason == sandbox.ReasonStopped, observed(err)
		case <-ctx.Done():
			exit, _ = stop(p, x.Command.Ladder.Hurried())
			return exit, false, false, context.Cause(ctx)
		}
	}
}

func stop(p sandbox.Process, ladder sandbox.Ladder) (sandbox.Exit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return p.Stop(ctx, ladder)
}

// observed drops the error of a writer: the log's owner knows of it, and the
// agent's exit is known all the same.
func observed(err error) error {
	var lost *sandbox.OutputError
	if errors.As(err, &lost) {
		return nil
	}
	return err
}

// startError turns the error of an Exec into what Install and Run return.
func (e Env) startError(ctx context.Context, stage, program string, err error) error {
	f := &protocol.Failure{Stage: stage, Class: protocol.ClassHarness, Reason: protocol.ReasonStart, Code: protocol.CodeHarnessRunFailed}
	if stage == protocol.StageInstall {
		f.Code = protocol.CodeHarnessInstallFailed
	}
	var spec *sandbox.SpecError
	switch {
	case errors.Is(err, sandbox.ErrReleased):
		return ErrKilled
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNotFound):
		f.Reason = protocol.ReasonMissing
		f.Message = "cannot start " + program + ": the program or its working directory does not exist"
	case errors.As(err, &spec):
		f.Class, f.Code = protocol.ClassConfig, protocol.CodeBadRequest
		f.Message = "cannot start " + program + ": " + spec.Reason
	case errors.Is(err, syscall.E2BIG):
		// Linux allows 128 KiB for one argument.
		f.Message = "cannot start " + program + ": its arguments and environment are longer than the system allows"
	default:
		f.Class, f.Code, f.Retryable = protocol.ClassInfra, protocol.CodeComputeExecFailed, true
		f.Message = "cannot start " + program + ": " + err.Error()
	}
	return f
}
