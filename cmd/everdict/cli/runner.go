package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
	"github.com/everdict/everdict/protocol"
)

func (a *app) runnerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Run what the coordinator has for this machine",
		Long: `Connect to the coordinator, pull runs and carry them out. The first start pairs the machine. With --pair alone it
shows a code and an address: open that in a browser, on whatever machine, sign in, and type the code in. What
proves from then on who the machine is, is kept in the state directory, readable by you alone; it never leaves
the machine, and later starts need no --pair. The machine takes your own runs. everdict runner unpair ends it.

A machine that nobody looks at is paired with the token that everdict runners pair gave. The token is best
given on standard input (--pair -) or in a file; as an argument or a variable it is taken over by a fresh
image of this program at once, so that no job can read it, but it stays in your shell's history.

With --pool-token the machine is not paired: it joins the pool of a runtime, under an identity of its own that
it gets from the coordinator. That is for the runners of a Deployment or a service job; see everdict pools.
With --exit-when-idle it ends by itself when there is nothing to do.

The first SIGINT or SIGTERM drains: no new runs, those that run may finish for --drain-timeout, then they go
back to the queue. A second one gives them back at once.

Exit codes: 0 drained or idle, 3 the drain timeout passed and unfinished runs were given back, 4 revoked,
expired or never paired, 5 another process uses the same token, 6 too old for the coordinator, 2 any other error.`,
		Example: `  everdict runner --pair --api-url https://everdict.example
  everdict runners pair --token-file token && everdict runner --pair file:token
  everdict runner --pair - --api-url https://everdict.example < token
  everdict runner --max-concurrent 4 --capabilities git,docker
  everdict runner --pool-token file:/run/secrets/pool-token --exit-when-idle 5m`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.hideTokens(); err != nil {
				return err
			}
			a.seclude(cmd.Context(), true)
			o, err := a.runnerOptions()
			if err != nil {
				return err
			}
			if a.hooks.Runner == nil {
				return errNoHook(cmd)
			}
			o.Pairing, o.Paired = a.pairing(), a.paired
			return a.served(cmd.Context(), a.hooks.Runner(cmd.Context(), o))
		},
	}
	config.Bind(cmd.Flags(), a.schema, append([]string{config.Pair, config.PoolToken, config.ExitWhenIdle, config.RunnerScope, config.MaxConcurrent, config.WorkDir, config.StateDir,
		config.Capabilities, config.DrainTimeout, config.PassProxy, config.PassCA, config.LogLevel, config.LogFormat}, sandboxKeys...)...)
	cmd.Flags().Lookup("pair").NoOptDefVal = PairDevice
	cmd.AddCommand(a.runnerGC(), a.runnerUnpair())
	return cmd
}

func (a *app) runnerOptions() (RunnerOptions, error) {
	o := RunnerOptions{
		APIURL: a.cfg.String(config.APIURL), APIURLGiven: a.cfg.Source(config.APIURL) != config.FromDefault, CAFile: a.cfg.String(config.CAFile), Pair: a.cfg.String(config.Pair), PoolToken: a.poolToken(), Stdin: a.in,
		ExitWhenIdle:  a.cfg.Duration(config.ExitWhenIdle),
		Scope:         a.cfg.String(config.RunnerScope),
		MaxConcurrent: a.cfg.Int(config.MaxConcurrent),
		Capabilities:  a.cfg.List(config.Capabilities), DrainTimeout: a.cfg.Duration(config.DrainTimeout),
		Hurry:     a.hurry,
		PassProxy: a.cfg.Bool(config.PassProxy), PassCA: a.cfg.Bool(config.PassCA),
	}
	if err := a.checkRunner(); err != nil {
		return o, err
	}
	if o.ExitWhenIdle < 0 {
		return o, fmt.Errorf("%s: exit_when_idle is %s: want 0s or more", a.cfg.Origin(config.ExitWhenIdle), o.ExitWhenIdle)
	}
	switch o.Scope {
	case "", protocol.RunnerScopeOwner, protocol.RunnerScopeWorkspace:
	default:
		return o, fmt.Errorf("%s: scope is %q: want %s or %s", a.cfg.Origin(config.RunnerScope), o.Scope, protocol.RunnerScopeOwner, protocol.RunnerScopeWorkspace)
	}
	if o.Scope != "" && o.PoolToken != "" {
		return o, fmt.Errorf("%s: scope is of a paired machine: one that joins a pool takes the runs of that pool", a.cfg.Origin(config.RunnerScope))
	}
	var err error
	if o.Sandbox, err = a.sandbox(); err != nil {
		return o, err
	}
	if a.cfg.FromWorkingDir(config.APIURL) && !loopbackURL(o.APIURL) {
		return o, &adviceError{
			fmt.Errorf("%s, found in the working directory, connects this machine to %s", a.cfg.File, o.APIURL),
			"if the file is yours, name it: --config " + a.cfg.File + ", or set EVERDICT_API_URL",
		}
	}
	if o.Log, err = a.logger(); err != nil {
		return o, err
	}
	if o.CAFile, err = absolute(o.CAFile); err != nil {
		return o, err
	}
	if o.WorkDir, err = absolute(a.cfg.String(config.WorkDir)); err != nil {
		return o, err
	}
	o.StateDir, err = absolute(a.cfg.String(config.StateDir))
	return o, err
}

func (a *app) checkCapabilities() error {
	for _, c := range a.cfg.List(config.Capabilities) {
		if !protocol.KnownCapability(c) {
			return &adviceError{fmt.Errorf("%s: there is no capability %q", a.cfg.Origin(config.Capabilities), c),
				"there are " + strings.Join(known(), ", ")}
		}
	}
	return nil
}

func known() []string {
	return slices.DeleteFunc([]string{
		protocol.CapGit, protocol.CapDocker, protocol.CapBrowser, protocol.CapComputerUse, protocol.CapTopology, protocol.CapGPU,
		protocol.CapOSMacOS, protocol.CapOSWindows, protocol.CapSandbox, protocol.CapClaudeLogin, protocol.CapCodexLogin,
	}, func(c string) bool { return !protocol.KnownCapability(c) })
}
