package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/harness/builtin"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
	"github.com/everdict/everdict/protocol/link"
)

// runUp is a coordinator with a runner in its own process.
func runUp(ctx context.Context, o cli.UpOptions) error {
	if err := lanes.Enlist(ctx, o.Sandbox.RosterDir, []string{o.Coordinator.DataDir}); err != nil && ctx.Err() == nil {
		o.Coordinator.Log.Warn("jobs of other runners of this user may read what is kept in the data directory", "err", err)
	}
	return withLocal(ctx, local{
		coordinator: o.Coordinator, slots: o.MaxConcurrent, capabilities: o.Capabilities, workDir: o.WorkDir,
		caFile: o.CAFile, withholdProxy: !o.PassProxy, passCA: o.PassCA,
		stateDir: filepath.Join(o.Coordinator.DataDir, "runner"), drain: o.DrainTimeout, sandbox: o.Sandbox,
	}, func(ctx context.Context, url string) error {
		o.Coordinator.Ready(url)
		<-ctx.Done()
		return nil
	})
}

// runLocal is one evaluation without a server: a coordinator that lives as long
// as the command, and the same runner as everywhere.
func runLocal(ctx context.Context, o cli.RunOptions) (code int, err error) {
	// Who reads the output may leave: writing then fails, and what is below still ends.
	left := make(chan os.Signal, 1)
	signal.Notify(left, syscall.SIGPIPE)
	defer signal.Stop(left)
	dir, remove, err := newScratch()
	if err != nil {
		return 0, err
	}
	keep := ""
	if o.Keep {
		if keep, err = os.MkdirTemp("", "everdict-kept-"); err != nil {
			return 0, errors.Join(err, remove())
		}
	}
	defer func() {
		err = errors.Join(err, remove())
		if keep != "" {
			if left, _ := filepath.Glob(filepath.Join(keep, "work", "*", "work")); len(left) > 0 {
				keep = left[len(left)-1] // the last attempt's
			}
			fmt.Fprintln(o.Stderr, "workspace kept in", keep)
		}
	}()
	data, state := filepath.Join(dir, "data"), filepath.Join(dir, "runner")
	if err := lanes.Enlist(ctx, o.Sandbox.RosterDir, []string{data, state}); err != nil {
		o.Log.Debug("jobs of other runners of this user may read what is kept for this run", "err", err)
	}
	work := filepath.Join(dir, "w")
	if keep != "" {
		work = keep
	}
	var key string // of this command alone: the port is open to every user of the machine
	err = withLocal(ctx, local{
		coordinator: cli.CoordinatorOptions{DataDir: data, Listen: "127.0.0.1:0", Log: o.Log,
			RequireAuth: true, FirstKey: func(first string) error { key = first; return nil }},
		stateDir: state, workDir: work, slots: 1, keep: o.Keep, sandbox: o.Sandbox,
		needs: run.Requirements(&o.Request.Case, &protocol.HarnessSpec{}).Capabilities,
	}, func(ctx context.Context, url string) error {
		c, err := client.New(client.Config{BaseURL: url, Token: key})
		if err != nil {
			return err
		}
		code, err = o.Drive(ctx, c)
		return err
	})
	return code, err
}

// local is a coordinator and a runner in this process.
type local struct {
	coordinator       cli.CoordinatorOptions
	slots             int
	capabilities      []string
	stateDir, workDir string
	keep              bool
	// caFile is given to jobs if passCA.
	caFile                string
	withholdProxy, passCA bool
	sandbox               cli.SandboxOptions
	// drain is how long unfinished runs may go on after use has returned.
	drain time.Duration
	// needs are the capabilities without which there is no point in starting: nobody else will ever come with them.
	needs []string
}

// withLocal starts both, calls use, and ends them, the runner first.
func withLocal(ctx context.Context, l local, use func(ctx context.Context, url string) error) error {
	s, err := open(ctx, l.coordinator, func(url string) coordinator.Config {
		cfg := coordinatorConfig(l.coordinator)
		cfg.Local = true
		cfg.Launch.Machine, cfg.Launch.NoMachine = machine(l.coordinator, url, unitsWorkDir(l.workDir, l.coordinator.DataDir), l.drain, unitSettings{
			Sandbox: l.sandbox, Capabilities: l.capabilities, CAFile: l.caFile, WithholdProxy: l.withholdProxy, PassCA: l.passCA})
		return cfg
	})
	if err != nil {
		return err
	}
	if err := s.bootstrap(ctx, l.coordinator); err != nil {
		return errors.Join(err, s.Close())
	}
	token, err := localCredential(ctx, s, l.stateDir)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if err := process.HideSelf(); err != nil {
		l.coordinator.Log.Warn("other programs of this user can look into the runner", "err", err)
	}
	sandboxes := findLanes(ctx, l.sandbox, l.stateDir, workDir(l.workDir, l.stateDir), l.slots, l.capabilities)
	defer sandboxes.Close()
	if err := lacking(ctx, l, sandboxes.Capabilities); err != nil {
		return errors.Join(err, s.Close())
	}
	runner := agent.New(agent.Config{
		URL: s.url(), Credential: token, Slots: l.slots, Capabilities: sandboxes.Capabilities, CapabilityEvidence: sandboxes.Evidence, Version: version,
		CAFile: l.caFile, WithholdProxy: l.withholdProxy, PassCA: l.passCA,
		StateDir: l.stateDir, WorkDir: workDir(l.workDir, l.stateDir), Hide: []string{l.coordinator.DataDir}, Listed: lanes.Listed(l.sandbox.RosterDir), Keep: l.keep,
		Driver: sandboxes.Plain, Images: sandboxes.Images, Lookup: builtin.Lookup, Executable: executable(), DrainTimeout: l.drain, Log: l.coordinator.Log,
	})
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, ran := make(chan error, 1), make(chan error, 1)
	// The coordinator stays until the runner has given back what it had.
	coordinatorCtx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	go func() { serving <- s.Serve(coordinatorCtx, s.listener, drainGrace) }()
	go func() { ran <- runner.Run(work) }()

	used := make(chan error, 1)
	useCtx, done := context.WithCancel(ctx)
	defer done()
	go func() { used <- use(useCtx, s.url()) }()
	select {
	case err = <-used:
	case err = <-ran:
		done()
		ran <- nil
		err = errors.Join(err, <-used)
	case err = <-serving:
		done()
		serving <- nil
		err = errors.Join(err, <-used)
	}
	units := l.stopUnits(s)
	if l.drain > 0 {
		runner.Drain()
		select {
		case left := <-ran:
			ran <- left
		case <-l.coordinator.Hurry:
		}
	}
	stop() // the runner gives back what it has and ends
	err = errors.Join(err, ignoreDrained(<-ran), <-units)
	leave()
	return errors.Join(err, <-serving)
}

// endSlack is what units have, beyond the drain, to give back what they have.
const endSlack = 20 * time.Second

// stopUnits ends the units of this machine, for as long as a drain may take; in a hurry
// they are killed.
func (l *local) stopUnits(s *server) <-chan error {
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), l.drain+endSlack)
	go func() {
		select {
		case <-l.coordinator.Hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel()
		done <- s.StopUnits(ctx)
	}()
	return done
}

// lacking says what of l's needs this machine does not have, and what helps: without it the run would wait for a
// runner that cannot come.
func lacking(ctx context.Context, l local, offered []string) error {
	i := slices.IndexFunc(l.needs, func(need string) bool { return !slices.Contains(offered, need) })
	if i < 0 {
		return nil
	}
	p := &protocol.Problem{
		Code: protocol.CodeNotConfigured, Hint: "everdict doctor shows what this machine can do",
		Message: fmt.Sprintf("this machine cannot do the run, which needs %s", l.needs[i]),
	}
	for _, c := range doctor.Examine(ctx, doctor.Config{Version: version, Sandbox: l.sandbox.Driver, Runtime: l.sandbox.Runtime}).Checks {
		if c.ID == l.needs[i] && c.Status == doctor.Missing {
			p.Message += ": " + c.Evidence
			if c.Mend != "" {
				p.Hint = c.Mend
			}
		}
	}
	return p
}

// localCredential is the credential of the runner in this process, the same at
// every start, so that what lies in its outbox is delivered as its own.
func localCredential(ctx context.Context, s *server, stateDir string) (link.Secret, error) {
	kept := filepath.Join(stateDir, credentialFile)
	old, err := agent.ReadCredential("file:"+kept, nil)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	token, err := s.LocalRunner(ctx, "in this process", old)
	if err != nil || token == old {
		return token, err
	}
	return token, agent.StoreCredential(kept, token)
}

// ignoreDrained: that unfinished runs were given back is what a person who
// stopped the process wanted.
func ignoreDrained(err error) error {
	var drained *agent.DrainedError
	if errors.As(err, &drained) {
		return nil
	}
	return err
}
