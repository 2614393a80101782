// Package executor carries out one attempt, from environment to result:
//
//	sandbox -> environment -> install -> run -> kill -> snapshot -> grade -> release
//
// Each phase is a file. Whatever happens, Run returns a result with at most one
// failure, and the sandbox is released on every path (P7): an attempt that cannot
// be judged is evidence too. The executor knows no wire and no disk spool; it
// writes evidence to what it is given.
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/grader"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Bounds of what happens after an attempt was stopped: evidence is worth a
// moment, not a minute.
const (
	// stoppedCollect bounds the snapshot of a stopped attempt.
	stoppedCollect = 20 * time.Second
	// releaseBound bounds ending the last process (P6) and removing files.
	releaseBound = 30 * time.Second
)

// Config is what all attempts of a runner share.
type Config struct {
	// Default runs jobs that name no image, Images those that name one; the zero
	// Lane refuses them.
	Default, Images Lane
	Environments    *environment.Set
	// Lookup finds the harness of a spec.
	Lookup func(*protocol.HarnessSpec) (harness.Harness, error)
	// Graders judge; nil is grader.Builtin.
	Graders grader.Registry
	// WorkRoot holds a directory per attempt, PrivateRoot what no job may see.
	WorkRoot, PrivateRoot string
	// Program, if set, is first on the PATH of every job outside of containers, as "everdict".
	Program string
	// Hide lists host paths that no job may see.
	Hide []string
	// Certificates are given to every job; the zero value gives none.
	Certificates Certificates
	// Keep leaves workspaces on the disk.
	Keep bool
	Now  func() time.Time
	Log  *slog.Logger
}

// Executor carries out attempts. It is safe for concurrent use.
type Executor struct{ cfg Config }

// New returns an executor.
func New(cfg Config) *Executor {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Graders == nil {
		cfg.Graders = grader.Builtin()
	}
	return &Executor{cfg: cfg}
}

// Attempt is one attempt to carry out.
type Attempt struct {
	// Name labels everything that the attempt makes: "run_x.1".
	Name string
	Job  *protocol.Job
	// Evidence goes here as it arises.
	Log   *log.Recorder
	Trace *trace.Recorder
	Diff  io.Writer
	// Redact masks secrets in all of it and in the result; nil masks nothing.
	Redact *redact.Redactor
	// OpenTrace reads back what was written to Trace.
	OpenTrace func() (io.ReadCloser, error)
	// Asks is how the harness asks a person; nil: it cannot.
	Asks Asks
	// Compute is told the sandbox as soon as there is one, so that it can be
	// frozen. It may be nil.
	Compute func(sandbox.ComputeHandle)
	// Phase is told each phase when it begins; it may be nil, and must not wait.
	Phase func(Phase)
}

// Phase is a part of an attempt.
type Phase string

// Phases, in their order. One that failed is the last, but that what the agent did is
// collected and graded when it ran into a limit.
const (
	PhasePrepare Phase = "prepare" // sandbox and environment
	PhaseInstall Phase = "install" // the harness is found and prepared
	PhaseRun     Phase = "run"     // the agent works
	PhaseCollect Phase = "collect" // the snapshot
	PhaseGrade   Phase = "grade"
)

// StopReason says why an attempt was stopped from outside.
type StopReason string

// Reasons to stop an attempt.
const (
	StopCancelled StopReason = "cancelled" // somebody cancelled the run
	StopStale     StopReason = "stale"     // another attempt has taken its place
	StopDrained   StopReason = "drained"   // the runner is shutting down
	StopPaused    StopReason = "paused"    // the machine's owner wants it to rest
	StopLost      StopReason = "lost"      // the runner lost hold of its sandbox
)

// Stopped is the cause with which the context of Run is cancelled.
type Stopped struct {
	Reason  StopReason
	Message string
}

// Error implements error.
func (s *Stopped) Error() string {
	if s.Message == "" {
		return "the attempt was stopped: " + string(s.Reason)
	}
	return s.Message
}

// execution is the state of one attempt as it goes through the phases.
type execution struct {
	*Executor
	a      Attempt
	log    *slog.Logger
	root   string
	files  *os.Root // root, opened before anything of the job ran
	in     Lane
	result *protocol.CaseResult

	compute  sandbox.ComputeHandle
	bare     sandbox.ComputeHandle // without the masks of compute
	env      environment.Prepared
	harness  harness.Harness
	outcome  harness.Outcome
	deferred []func(context.Context)
}

// Run carries the attempt out and returns its result, which always names the case
// and has either no failure or the first one. When ctx ends with a *Stopped as its
// cause the harness is ended, what can be kept as evidence is kept, and the
// failure says why. The recorders stay open: the caller closes them.
func (e *Executor) Run(ctx context.Context, a Attempt) *protocol.CaseResult {
	x := &execution{
		Executor: e, a: a, log: slog.New(a.Redact.Handler(e.cfg.Log.Handler())).With("attempt", a.Name),
		result: &protocol.CaseResult{
			CaseID:          a.Job.Case.ID,
			Harness:         a.Job.Harness.ID + "@" + a.Job.Harness.Version,
			EvidenceVersion: protocol.EvidenceVersion,
			Snapshot:        protocol.Snapshot{Kind: protocol.EnvPrompt},
			Scores:          []protocol.Score{},
			Timing:          &protocol.Timing{},
		},
	}
	defer x.release(ctx)
	x.phases(ctx)
	x.finish(ctx)
	return x.result
}

// phases runs one phase after the other until one fails. What the agent did is
// snapshotted and graded also when it ran into a limit.
func (x *execution) phases(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			x.log.Error("executor panicked", "panic", p, "stack", string(debug.Stack()))
			x.fail(&protocol.Failure{
				Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonInternal, Code: protocol.CodeInternal,
				Message: fmt.Sprintf("the runner panicked: %v", p),
			})
		}
	}()
	if !x.timed(PhasePrepare, &x.result.Timing.PrepareMs, func() bool { return x.prepare(ctx) }) {
		return
	}
	if !x.timed(PhaseInstall, &x.result.Timing.InstallMs, func() bool { return x.install(ctx) }) {
		return
	}
	if !x.timed(PhaseRun, &x.result.Timing.RunMs, func() bool { return x.run(ctx) }) {
		return
	}
	x.timed(PhaseCollect, &x.result.Timing.SnapshotMs, func() bool { return x.snapshot(ctx) })
	x.timed(PhaseGrade, &x.result.Timing.GradeMs, func() bool { return x.grade(ctx) })
}

func (x *execution) timed(phase Phase, ms *float64, do func() bool) bool {
	if x.a.Phase != nil {
		x.a.Phase(phase)
	}
	from := x.cfg.Now()
	defer func() { *ms = float64(x.cfg.Now().Sub(from).Microseconds()) / 1000 }()
	return do()
}

// fail records the first failure: later ones follow from it.
func (x *execution) fail(f *protocol.Failure) {
	if x.result.Failure == nil {
		x.result.Failure = f
	}
}

// failed turns an error of a phase into the failure.
func (x *execution) failed(ctx context.Context, stage string, err error) {
	var failure *protocol.Failure
	var env *environment.Error
	var unsupported *sandbox.UnsupportedError
	var image *sandbox.ImageError
	var spec *sandbox.SpecError
	switch {
	case ctx.Err() != nil:
		x.fail(stopFailure(ctx, stage))
	case errors.As(err, &failure):
		x.fail(failure)
	case errors.As(err, &env):
		x.fail(&env.Failure)
	case errors.As(err, &image):
		f := &protocol.Failure{Stage: stage, Class: protocol.ClassConfig, Reason: protocol.ReasonImage,
			Code: protocol.CodeBadRequest, Message: err.Error()}
		if image.Retryable {
			f.Class, f.Code, f.Retryable = protocol.ClassInfra, protocol.CodeDriverProvisionFailed, true
		}
		x.fail(f)
	case errors.As(err, &unsupported):
		x.fail(&protocol.Failure{Stage: stage, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner,
			Code: protocol.CodeBadRequest, Message: err.Error()})
	case errors.As(err, &spec):
		x.fail(&protocol.Failure{Stage: stage, Class: protocol.ClassConfig, Reason: protocol.ReasonMalformed,
			Code: protocol.CodeBadRequest, Message: err.Error()})
	default:
		x.fail(&protocol.Failure{Stage: stage, Class: protocol.ClassInfra, Reason: protocol.ReasonInternal,
			Code: protocol.CodeDriverProvisionFailed, Message: err.Error(), Retryable: true})
	}
}

// stopFailure is the failure of an attempt whose context has ended.
func stopFailure(ctx context.Context, stage string) *protocol.Failure {
	var stopped *Stopped
	if !errors.As(context.Cause(ctx), &stopped) {
		stopped = &Stopped{Reason: StopDrained, Message: "the runner was shut down"}
	}
	f := &protocol.Failure{Stage: stage, Class: protocol.ClassInfra, Message: stopped.Error()}
	switch stopped.Reason {
	case StopCancelled:
		f.Reason, f.Code = protocol.ReasonCancelled, protocol.CodeCancelled
	case StopDrained, StopPaused:
		f.Reason, f.Code, f.Retryable = protocol.ReasonDrained, protocol.CodeUpstreamError, true
	default:
		f.Reason, f.Code, f.Retryable = protocol.ReasonLost, protocol.CodeUpstreamError, true
	}
	return f
}

// finish adds what is known at the end whatever the way there was.
func (x *execution) finish(ctx context.Context) {
	if ctx.Err() != nil {
		x.fail(stopFailure(ctx, protocol.StageRun))
	}
	x.result.Execution = x.execution(ctx)
	x.result.Usage = x.usage()
	if f := x.result.Failure; f != nil && f.LogTail == "" {
		f.LogTail = x.a.Log.Tail()
	}
	x.a.Redact.Result(x.result)
}

// release ends the sandbox, on a context of its own, and removes the attempt's
// directories. What cannot be removed is reported, never used again.
func (x *execution) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer cancel()
	if x.compute != nil {
		if err := x.compute.Release(ctx); err != nil {
			x.log.Error("sandbox could not be released", "err", err)
		}
	}
	for i := len(x.deferred) - 1; i >= 0; i-- {
		x.deferred[i](ctx)
	}
}

// mkdir makes the attempt's directories and sees to their removal. Where the lane
// keeps sandboxes ready, the directory of one of those is taken.
func (x *execution) mkdir() error {
	x.root = filepath.Join(x.cfg.WorkRoot, x.a.Name)
	reserved := false
	if r, ok := x.in.Driver.(sandbox.Reserver); ok {
		var dir string
		if dir, reserved = r.Reserve(x.spec()); reserved {
			x.root = dir
		}
	}
	x.deferred = append(x.deferred, func(ctx context.Context) {
		own := x.closeFiles()
		if x.cfg.Keep {
			return
		}
		if !own {
			x.log.Error("something else is in the place of the workspace and is left alone", "dir", x.root)
			return
		}
		if err := environment.RemoveTree(ctx, x.root); err != nil {
			x.log.Error("workspace could not be removed and is retired", "dir", x.root, "err", err)
		}
	})
	if err := x.lay(reserved); err != nil {
		return fmt.Errorf("make the attempt's directory: %w", err)
	}
	if err := x.cfg.Certificates.lay(x.root); err != nil {
		return fmt.Errorf("give the job its certificates: %w", err)
	}
	return x.layBin()
}

// lay makes the attempt's directory, unless it was reserved, and what is in it, and keeps it open: what it is, no job can
// change any more.
func (x *execution) lay(reserved bool) (err error) {
	if !reserved {
		if err := os.Mkdir(x.root, 0o700); err != nil {
			return err
		}
	}
	if x.files, err = os.OpenRoot(x.root); err != nil {
		return err
	}
	for _, dir := range []string{tmpDir, homeDir} {
		if err := x.files.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// closeFiles closes the attempt's directory, and reports whether it is still the one at its path: a job of the process
// sandbox can put a directory above it in the place of the runner's.
func (x *execution) closeFiles() (own bool) {
	if x.files == nil {
		return true // nothing of the job ran
	}
	defer x.files.Close()
	mine, err := x.files.Stat(".")
	if err != nil {
		return false
	}
	now, err := os.Lstat(x.root)
	return errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(mine, now)
}
