package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/cmd/everdict/config"
)

func (a *app) runnerUnpair() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpair",
		Short: "End the pairing of this machine, from here",
		Long: `End the pairing of this machine, from here: the coordinator is told, which closes the session of a runner that
is connected and stops its runs, and the credential is removed from the state directory. A coordinator that
does not answer changes nothing of that: the machine has no credential any more, and shows there as offline
until somebody revokes it.`,
		Example: `  everdict runner unpair
  everdict runner unpair --state-dir /var/lib/everdict-runner`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A device knows where it was paired; only who says otherwise here means another address of the same.
			o := RunnerOptions{APIURL: a.cfg.String(config.APIURL), APIURLGiven: a.cfg.Source(config.APIURL) == config.FromFlag}
			var err error
			if o.Log, err = a.logger(); err != nil {
				return err
			}
			if o.CAFile, err = absolute(a.cfg.String(config.CAFile)); err != nil {
				return err
			}
			if o.StateDir, err = absolute(a.cfg.String(config.StateDir)); err != nil {
				return err
			}
			if a.hooks.Unpair == nil {
				return errNoHook(cmd)
			}
			done, err := a.hooks.Unpair(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(done)
			}
			fmt.Fprintf(a.out, "this machine is not paired with %s any more\n", cell(done.Coordinator))
			if done.NotTold != "" {
				a.warn("the coordinator could not be told: %s", done.NotTold)
				a.hint("revoke it there as well: everdict runners revoke %s", firstOf(safeText(done.Runner), "RUNNER"))
			}
			return nil
		},
	}
	config.Bind(cmd.Flags(), a.schema, config.StateDir, config.LogLevel, config.LogFormat)
	return cmd
}
