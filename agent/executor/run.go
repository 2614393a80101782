package executor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/protocol"
)

// install finds the harness and prepares it.
func (x *execution) install(ctx context.Context) bool {
	h, err := x.cfg.Lookup(&x.a.Job.Harness)
	if err == nil {
		x.harness = h
		err = h.Install(ctx, x.harnessEnv())
	}
	if err != nil {
		x.failed(ctx, protocol.StageInstall, err)
		return false
	}
	return true
}

// run lets the agent work and ends whatever it leaves running: nothing of it
// goes on while its work is recorded and judged (F11).
func (x *execution) run(ctx context.Context) bool {
	started := func(pid int) {
		host, _ := os.Hostname()
		x.emit(protocol.TraceEvent{Kind: protocol.EventInfra, Scope: "placement", Event: "started", Node: host,
			Message: "the harness process has started", Detail: mustJSON(map[string]any{"pid": pid, "os": runtime.GOOS, "arch": runtime.GOARCH})})
	}
	env := x.harnessEnv()
	env.Started = started
	socket, stopAsks := x.listen(ctx)
	if socket != "" {
		env.Environ = append(env.Environ, protocol.AskSocketEnv+"="+socket)
	}
	outcome, err := x.harness.Run(ctx, env)
	x.outcome = outcome
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer cancel()
	if kerr := x.compute.Kill(kill); kerr != nil {
		x.failed(ctx, protocol.StageRun, kerr)
	}
	stopAsks(kill)
	x.result.Timing.FrozenMs = float64(outcome.Exit.Frozen.Microseconds()) / 1000
	switch {
	case ctx.Err() != nil:
		x.fail(stopFailure(ctx, protocol.StageRun))
	case errors.Is(err, harness.ErrKilled):
		x.fail(&protocol.Failure{Stage: protocol.StageRun, Class: protocol.ClassInfra, Reason: protocol.ReasonLost,
			Code: protocol.CodeComputeExecFailed, Message: "the sandbox was ended under the harness", Retryable: true})
	case err != nil:
		x.failed(ctx, protocol.StageRun, err)
	case outcome.Failure != nil:
		x.fail(outcome.Failure)
	}
	if f := x.result.Failure; f != nil {
		x.emit(protocol.TraceEvent{Kind: protocol.EventError, Message: f.Message})
	}
	return true
}

func (x *execution) harnessEnv() harness.Env {
	timeout, idle := harness.Timeouts(&x.a.Job.Case)
	return harness.Env{
		RunID:       x.a.Job.RunID,
		Case:        withContext(&x.a.Job.Case),
		Spec:        &x.a.Job.Harness,
		Compute:     x.compute,
		Root:        x.root,
		WorkDir:     x.env.Dir(),
		Files:       x.files,
		Environ:     pairs(x.a.Job.Env),
		Base:        x.in.Environ,
		Emit:        x.emit,
		Stdout:      x.a.Log.Writer(protocol.StreamStdout),
		Stderr:      x.a.Log.Writer(protocol.StreamStderr),
		Timeout:     timeout,
		IdleTimeout: idle,
	}
}

// withContext puts the context of a prompt environment before the task: the agent
// has nothing else to find it in.
func withContext(c *protocol.Case) *protocol.Case {
	if c.Env.Context == "" {
		return c
	}
	told := *c
	told.Task = c.Env.Context + "\n\n" + c.Task
	return &told
}

// execution says what enclosed the attempt and what it used.
func (x *execution) execution(ctx context.Context) *protocol.Execution {
	e := &protocol.Execution{
		OS: goosName(runtime.GOOS), OSResolved: "defaulted", Arch: runtime.GOARCH,
		HarnessPath: x.outcome.Path, HarnessVersion: x.outcome.Version,
	}
	if p := x.a.Job.Case.Placement; p != nil && p.OS != "" {
		e.OSResolved = "declared"
	}
	for _, name := range x.a.Redact.NotMaskable() {
		e.Notes = append(e.Notes, "the value of "+name+" is too short or too common to be masked in the evidence")
	}
	if x.compute == nil {
		return e
	}
	info := x.compute.Info()
	e.Driver, e.Enclosure, e.ActsAsYou = info.Driver, info.Enclosure, info.ActsAsUser
	e.Image, e.ImageDigest, e.Platform = info.Image, info.ImageDigest, info.Platform
	e.Emulated = info.Emulated
	for _, l := range info.Limits {
		if e.Limits == nil {
			e.Limits = map[string]any{}
		}
		e.Limits[l.Name] = l.Value
		if l.Default {
			e.DefaultLimits = append(e.DefaultLimits, l.Name)
		}
	}
	for _, n := range info.NotHidden {
		e.Notes = append(e.Notes, n.Path+" is visible to the job: "+n.Reason)
	}
	e.Notes = append(e.Notes, info.Notes...)
	usage, err := x.compute.Usage(context.WithoutCancel(ctx))
	if err != nil {
		x.log.Warn("usage of the sandbox is unknown", "err", err)
		return e
	}
	if usage.PeakMemory != nil {
		mb := *usage.PeakMemory >> 20
		e.PeakMemoryMB = &mb
	}
	if usage.CPU != nil {
		ms := usage.CPU.Milliseconds()
		e.CPUMs = &ms
	}
	return e
}

// usage is what the harness reported, else what its trace sums up to.
func (x *execution) usage() *protocol.Usage {
	if x.outcome.Usage != nil {
		return x.outcome.Usage
	}
	return x.a.Trace.Summary().Usage
}

// goosName is the name that a case uses for an operating system.
func goosName(goos string) string {
	if goos == "darwin" {
		return "macos"
	}
	return goos
}

func pairs(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	return b
}
