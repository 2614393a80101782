package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
)

func (a *app) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a coordinator and a runner on this machine",
		Long: `Start a coordinator and a runner on this machine, in one process, for development: no login, this machine
only, runs with your own logins. Ctrl-C drains both; a second Ctrl-C hurries.`,
		Example: `  everdict up
  everdict up --data-dir ./everdict-data --max-concurrent 4
  everdict up --listen 127.0.0.1:9000`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.seclude(cmd.Context(), true)
			c, err := a.coordinatorOptions(true)
			if err != nil {
				return err
			}
			o := UpOptions{
				Coordinator: c, MaxConcurrent: a.cfg.Int(config.MaxConcurrent), Capabilities: a.cfg.List(config.Capabilities),
				DrainTimeout: a.cfg.Duration(config.DrainTimeout),
				PassProxy:    a.cfg.Bool(config.PassProxy), PassCA: a.cfg.Bool(config.PassCA),
			}
			if o.Sandbox, err = a.sandbox(); err != nil {
				return err
			}
			if o.WorkDir, err = absolute(a.cfg.String(config.WorkDir)); err != nil {
				return err
			}
			if o.CAFile, err = absolute(a.cfg.String(config.CAFile)); err != nil {
				return err
			}
			if err := a.checkRunner(); err != nil {
				return err
			}
			if a.hooks.Up == nil {
				return errNoHook(cmd)
			}
			return a.served(cmd.Context(), a.hooks.Up(cmd.Context(), o))
		},
	}
	config.Bind(cmd.Flags(), a.schema, append([]string{
		config.DataDir, config.Listen, config.RequireAuth, config.InsecureListen, config.LogLevel, config.LogFormat,
		config.MaxConcurrent, config.WorkDir, config.Capabilities, config.DrainTimeout, config.LocalUnits,
		config.PassProxy, config.PassCA,
	}, slices.Concat(sandboxKeys, sessionKeys, leaseKeys)...)...)
	for _, name := range slices.Concat(sessionKeys, leaseKeys) {
		for _, k := range a.schema {
			if k.Name == name {
				// Here for the few who need them; the page of everdict coordinator shows them.
				_ = cmd.Flags().MarkHidden(k.Flag)
			}
		}
	}
	return cmd
}

// maxSlots bounds --max-concurrent against a slip of the finger.
const maxSlots = 1000

// checkRunner reports what no runner could start with.
func (a *app) checkRunner() error {
	if n := a.cfg.Int(config.MaxConcurrent); n < 1 || n > maxSlots {
		return fmt.Errorf("%s: max_concurrent is %d: want 1 to %d", a.cfg.Origin(config.MaxConcurrent), n, maxSlots)
	}
	if d := a.cfg.Duration(config.DrainTimeout); d < 0 {
		return fmt.Errorf("%s: drain_timeout is %s: want 0 (give runs back at once) or more", a.cfg.Origin(config.DrainTimeout), d)
	}
	return a.checkCapabilities()
}
