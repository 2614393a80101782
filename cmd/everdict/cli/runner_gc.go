package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/cmd/everdict/config"
)

func (a *app) runnerGC() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what runners left that did not live to do it themselves",
		Long: `Remove what runners left that did not live to do it themselves: sandboxes that nobody holds (processes,
containers, networks, volumes), and the workspaces and private directories of attempts below --state-dir and --work-dir.
What a living runner works with is never touched: beside one only sandboxes of others are looked at. Results that wait
for the coordinator stay. A runner does the same when it starts, so this is for a machine that starts none any more.`,
		Example: `  everdict runner gc --dry-run
  everdict runner gc
  everdict runner gc --state-dir ~/.local/share/everdict/runner   # of everdict up`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := GCOptions{DryRun: dryRun}
			var err error
			if o.Log, err = a.logger(); err != nil {
				return err
			}
			if o.StateDir, err = absolute(a.cfg.String(config.StateDir)); err != nil {
				return err
			}
			if o.WorkDir, err = absolute(a.cfg.String(config.WorkDir)); err != nil {
				return err
			}
			if a.hooks.GC == nil {
				return errNoHook(cmd)
			}
			report, err := a.hooks.GC(cmd.Context(), o)
			if a.forPrograms() {
				return errors.Join(err, a.json(report))
			}
			a.printGarbage(report)
			if err != nil {
				return &adviceError{err, "everdict runner gc --dry-run shows what is left; what belongs to another user needs that user, or root"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	config.Bind(cmd.Flags(), a.schema, config.WorkDir, config.StateDir, config.LogLevel, config.LogFormat)
	return cmd
}

func (a *app) printGarbage(r agent.GarbageReport) {
	p := a.palette(a.out)
	var rows [][]string
	var bytes int64
	failed := 0
	for _, g := range r.Items {
		where, note := g.Path, ""
		if g.Driver != "" {
			where = g.Driver
		}
		switch {
		case g.Error != "":
			failed++
			note = p.red(oneLine(g.Error, 0))
		case g.Processes > 0:
			note = fmt.Sprintf("%d processes", g.Processes)
		}
		size := ""
		if g.Bytes > 0 {
			size = byteSize(g.Bytes)
		}
		if g.Error == "" {
			bytes += g.Bytes
		}
		rows = append(rows, []string{cell(g.Kind), cell(g.Attempt), cell(where), size, note})
	}
	if len(rows) > 0 {
		writeTable(a.out, []string{"KIND", "ATTEMPT", "WHERE", "SIZE", ""}, rows)
	}
	verb := "removed"
	if r.DryRun {
		verb = "would remove"
	}
	switch n := len(r.Items) - failed; {
	case len(r.Items) == 0:
		fmt.Fprintln(a.out, "nothing to remove")
	case bytes > 0:
		fmt.Fprintf(a.out, "%s %d, %s\n", verb, n, byteSize(bytes))
	default:
		fmt.Fprintf(a.out, "%s %d\n", verb, n)
	}
	if r.InUse != "" {
		a.hint("%s: its directories were left alone", safeText(r.InUse))
	}
}

// byteSize is a size for people: 512 B, 1.5 KiB, 20.0 GiB.
func byteSize(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 3 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %s", f, []string{"KiB", "MiB", "GiB", "TiB"}[i])
}
