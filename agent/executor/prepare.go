package executor

import (
	"context"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/environment"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// tmpDir is the job's TMPDIR, below the attempt's directory.
const tmpDir = "tmp"

// prepare starts the sandbox and makes the environment in it.
func (x *execution) prepare(ctx context.Context) bool {
	var err error
	if x.in, err = x.lane(); err != nil {
		x.failed(ctx, protocol.StageDispatch, err)
		return false
	}
	if err := x.mkdir(); err != nil {
		x.failed(ctx, protocol.StageInstall, err)
		return false
	}
	progress := x.a.Redact.Writer(x.a.Log.Writer(protocol.StreamStdout))
	defer func() {
		if err := progress.Close(); err != nil {
			x.log.Warn("log lacks the end of the progress", "err", err)
		}
	}()
	spec := x.spec()
	spec.Progress = progress
	compute, err := x.in.Driver.Start(ctx, spec)
	if err != nil {
		x.failed(ctx, protocol.StageDispatch, err)
		return false
	}
	x.bare, x.compute = compute, redacted(compute, x.a.Redact)
	if x.a.Compute != nil {
		x.a.Compute(compute)
	}
	x.env, err = x.cfg.Environments.Prepare(ctx, environment.Attempt{
		Root:     x.root,
		Files:    x.files,
		Private:  filepath.Join(x.cfg.PrivateRoot, x.a.Name),
		Spec:     x.a.Job.Case.Env,
		Exec:     x.setup,
		Limit:    x.preparing(),
		Progress: progress,
		Redact:   x.a.Redact,
	})
	if err != nil {
		x.failed(ctx, protocol.StageInstall, err)
		return false
	}
	x.deferred = append(x.deferred, func(ctx context.Context) {
		if x.cfg.Keep {
			return
		}
		if err := x.env.Cleanup(ctx); err != nil {
			x.log.Error("environment could not be removed and is retired", "err", err)
		}
	})
	return true
}

// spec is the sandbox that the case and the harness declare.
func (x *execution) spec() sandbox.Spec {
	c, h := &x.a.Job.Case, &x.a.Job.Harness
	s := sandbox.Spec{
		Attempt: x.a.Name,
		Dir:     x.root,
		Env:     x.environ(),
		Image:   x.image(),
		Hide:    append([]string{x.cfg.PrivateRoot}, x.cfg.Hide...),
	}
	for _, r := range []*protocol.Resources{h.Resources, c.Resources} { // the case wins
		if r == nil {
			continue
		}
		if r.MemoryMB > 0 {
			s.Resources.MemoryMB = int64(r.MemoryMB)
		}
		if r.CPU > 0 {
			s.Resources.CPUMillis = int64(r.CPU)
		}
		if r.GPU > 0 {
			s.Resources.GPU = r.GPU
		}
	}
	if c.Network != nil {
		s.Network = c.Network.Mode
	}
	return s
}

// minPreparing is how long the fetch of a source, and each line of set-up, may take
// at least: a case for a quick agent can need a slow set-up.
const minPreparing = 30 * time.Minute

// setupLadder ends a line of set-up that takes too long, with all that it started.
var setupLadder = sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: 2 * time.Second, Tree: true}}

func (x *execution) preparing() time.Duration {
	timeout, _ := harness.Timeouts(&x.a.Job.Case)
	return max(timeout, minPreparing)
}

// setup runs one line of the environment's set-up in the sandbox.
func (x *execution) setup(ctx context.Context, line, dir string, output io.Writer) (int, error) {
	limit := x.preparing()
	p, err := x.compute.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", line}, Dir: dir, Stdout: output, Stderr: output,
		Timeout: limit, Ladder: setupLadder})
	if err != nil {
		return 0, err
	}
	exit, err := waitOrStop(ctx, p)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if exit.Reason == sandbox.ReasonTimeout {
		return 0, &environment.LateError{Configured: limit, Measured: exit.Fired.Measured}
	}
	if exit.Signal != "" {
		return 128, err
	}
	return exit.Code, err
}

// waitOrStop waits for a process; when ctx ends first it is stopped.
func waitOrStop(ctx context.Context, p sandbox.Process) (sandbox.Exit, error) {
	select {
	case <-p.Done():
		return p.Wait()
	case <-ctx.Done():
		return p.Stop(context.WithoutCancel(ctx), sandbox.DefaultLadder.Hurried())
	}
}
