package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) runsCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN...",
		Short: "End runs; their processes are gone within seconds",
		Example: `  everdict runs cancel run_01k0
  everdict runs list --status queued -o jsonl | jq -r .id | xargs everdict runs cancel`,
		Args: args("run id..."),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var runs []*protocol.Run
			var errs []error
			for _, id := range ids {
				run, err := c.Cancel(cmd.Context(), id)
				if err != nil {
					if len(ids) > 1 {
						err = fmt.Errorf("%s: %w", id, err)
					}
					errs = append(errs, err)
					continue
				}
				runs = append(runs, run)
				if !a.forPrograms() {
					fmt.Fprintf(a.out, "%s %s\n", cell(run.ID), cancelled(run))
				}
			}
			if a.forPrograms() && len(ids) == 1 && len(runs) == 1 {
				return a.json(runs[0])
			}
			if a.forPrograms() && len(ids) > 1 {
				_, err := printList(a, each(runs))
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
}

// cancelled says what a cancel came to: a run may have ended just before.
func cancelled(r *protocol.Run) string {
	switch {
	case r.Error != nil && r.Error.Code == protocol.CodeCancelled:
		return "cancelled"
	case r.Status.Terminal():
		return "had ended already: " + string(r.Status)
	}
	return "is being cancelled"
}

func (a *app) runsDecide(verb string) *cobra.Command {
	var d protocol.Decision
	short := "Let a run that waits for a person go on"
	decide := (*client.Client).Approve
	if verb == "reject" {
		short = "Answer no to a run that waits for a person"
		decide = (*client.Client).Reject
	}
	cmd := &cobra.Command{
		Use:     verb + " RUN",
		Short:   short,
		Example: fmt.Sprintf("  everdict runs %s run_01k0\n  everdict runs %s run_01k0 --comment \"looked at the plan\"", verb, verb),
		Args:    args("run id"),
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			run, err := decide(c, ctx, id, d)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(run)
			}
			fmt.Fprintf(a.out, "%s %s\n", cell(run.ID), run.Status)
			if !run.Status.Terminal() {
				a.hint("  watch it: everdict runs wait %s", run.ID)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&d.Comment, "comment", "", "what the run, and whoever reads its record, is told")
	return cmd
}
