package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "runs",
		Short: "List, read, watch and decide runs",
		Example: `  everdict runs list --status queued
  everdict runs get run_01k0
  everdict runs logs -f run_01k0`,
	})
	cmd.AddCommand(a.runsList(), a.runsGet(), a.runsWait(), a.runsWhy(), a.runsLogs(), a.runsTrace(), a.runsDiff(),
		a.runsEvents(), a.runsAttempts(), a.runsCancel(), a.runsDecide("approve"), a.runsDecide("reject"),
		a.runsHandOut(), a.runsTakeBack(), a.runsDeliver())
	for _, c := range cmd.Commands() {
		if c.Name() != "list" {
			c.ValidArgsFunction = a.complete(strings.HasSuffix(c.Use, "..."), a.newestRuns)
		}
	}
	return cmd
}

func (a *app) runsList() *cobra.Command {
	var f client.RunFilter
	var status, verdict string
	var since, until time.Duration
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Example: `  everdict runs list
  everdict runs list --status failed --failure-class infra --since 24h
  everdict runs list --limit 0 -o jsonl`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd, "since", "until", "limit"); err != nil {
				return err
			}
			f.Status = protocol.Status(status)
			if verdict != "" {
				if verdict != "pass" && verdict != "fail" {
					return &usageError{cmd, fmt.Sprintf("--verdict is pass or fail, not %q", verdict)}
				}
				pass := verdict == "pass"
				f.Verdict = &pass
			}
			if since > 0 {
				f.Since = a.now().Add(-since)
			}
			if until > 0 {
				f.Until = a.now().Add(-until)
			}
			if limit > 0 {
				f.PageSize = min(limit, protocol.MaxListed)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			more, err := a.printRuns(first(c.Runs(cmd.Context(), f), limit))
			if err == nil && more {
				a.hint("more runs than these: --limit 0 lists them all")
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&status, "status", "", "queued, running, suspended, succeeded or failed")
	flags.StringVar(&verdict, "verdict", "", "pass or fail")
	flags.StringVar(&f.Harness, "harness", "", "harness id or id@version")
	flags.StringVar(&f.Runtime, "runtime", "", "where the run was to run")
	flags.StringVar(&f.Runner, "runner", "", "id of the runner that took the run")
	flags.StringVar(&f.Trigger, "trigger", "", "label of what submitted the run")
	flags.StringVar(&f.Cause, "cause", "", "what caused the run: member, schedule, event, run, ci or api")
	flags.StringVar(&f.FailureClass, "failure-class", "", "infra, config, harness or agent")
	flags.DurationVar(&since, "since", 0, "only runs accepted in this time before now, such as 24h")
	flags.DurationVar(&until, "until", 0, "only runs accepted longer ago than this")
	flags.IntVar(&limit, "limit", 50, "how many to list, 0 for all")
	a.fixed(cmd, "status", "queued", "running", "suspended", "succeeded", "failed")
	a.fixed(cmd, "verdict", "pass", "fail")
	a.fixed(cmd, "failure-class", protocol.ClassInfra, protocol.ClassConfig, protocol.ClassHarness, protocol.ClassAgent)
	return cmd
}

// fixed completes a flag from a list.
func (a *app) fixed(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// errMore ends a list that would go on.
var errMore = fmt.Errorf("more")

// first yields at most n elements (0: all) and errMore if there were more.
func first[T any](list iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	if n <= 0 {
		return list
	}
	return func(yield func(T, error) bool) {
		left := n
		for v, err := range list {
			if left--; left < 0 && err == nil {
				var none T
				yield(none, errMore)
				return
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

func (a *app) printRuns(runs iter.Seq2[*protocol.Run, error]) (more bool, err error) {
	if a.forPrograms() {
		return printList(a, runs)
	}
	p := a.palette(a.out)
	var rows [][]string
	for r, err := range runs {
		if err == errMore {
			more = true
			break
		}
		if err != nil {
			return false, err
		}
		rows = append(rows, []string{cell(r.ID), p.status(r.Status), p.verdict(r.Verdict), cell(r.Harness.String()), cell(r.CaseID), cell(placeOf(r)), a.ago(r.CreatedAt), took(r)})
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "no runs")
		a.hint("submit one: everdict submit -f run.json")
		return false, nil
	}
	writeTable(a.out, []string{"ID", "STATUS", "VERDICT", "HARNESS", "CASE", "WHERE", "SUBMITTED", "TOOK"}, rows)
	return more, nil
}

// placeOf is where a run ran, or is to run.
func placeOf(r *protocol.Run) string {
	if p := r.Provenance; p != nil {
		return firstOf(p.RunnerLabel, p.Runner, p.RanOn)
	}
	if p := r.Placement; p != nil {
		return firstOf(p.Target, p.Pool)
	}
	return r.Runtime
}

func took(r *protocol.Run) string {
	if r.StartedAt == nil || r.FinishedAt == nil {
		return "-"
	}
	return span(r.FinishedAt.Sub(r.StartedAt.Time))
}

func (a *app) runsGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get RUN",
		Short: "Show one run: verdict, scores, cost, where it ran, failure",
		Example: `  everdict runs get run_01k0
  everdict runs get run_01k0 -o json | jq .result.snapshot.changedFiles`,
		Args: args("run id"),
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			run, err := c.Run(ctx, id)
			if err != nil {
				return err
			}
			return a.printRun(run)
		}),
	}
}

// withRun makes a command of something done to one run.
func (a *app) withRun(do func(ctx context.Context, c *client.Client, id string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args[0])
	}
}

func (a *app) runsWait() *cobra.Command {
	return &cobra.Command{
		Use:   "wait RUN",
		Short: "Watch a run until it is over, and exit with its verdict",
		Long: `Watch a run until it is over, show what came of it, and exit with its verdict. Ctrl-C stops the watching, not
the run.

Exit codes: 0 passed, 1 did not pass, 2 could not be measured.`,
		Example: `  everdict runs wait run_01k0
  everdict runs wait run_01k0 -o json && echo passed`,
		Args: args("run id"),
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			code, err := a.waitAndPrint(ctx, c, id)
			if err != nil || code == exitPass {
				return err
			}
			return &ExitError{Code: code}
		}),
	}
}

func (a *app) runsWhy() *cobra.Command {
	return &cobra.Command{
		Use:   "why RUN",
		Short: "Say where a run is and, while it waits, what for",
		Example: `  everdict runs why run_01k0
  everdict runs why run_01k0 -o json | jq -r .placement.blockedReason`,
		Args: args("run id"),
		RunE: a.withRun(func(ctx context.Context, c *client.Client, id string) error {
			view, err := c.Placement(ctx, id)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(view)
			}
			p := a.palette(a.out)
			fmt.Fprintf(a.out, "%s  %s", cell(id), p.status(view.Status))
			place := view.Placement
			if place == nil || view.Status.Terminal() {
				fmt.Fprintln(a.out)
				a.hint("  it is over; what happened: everdict runs events %s", id)
				return nil
			}
			if place.Phase != string(view.Status) {
				fmt.Fprintf(a.out, "  %s", cell(place.Phase))
			}
			fmt.Fprintln(a.out)
			var rows [][]string
			add := func(label, text string) {
				if text != "" {
					rows = append(rows, []string{"  " + p.dim(label), oneLine(text, 0)})
				}
			}
			add("waits for", place.BlockedReason)
			if place.QueueDeadline != nil {
				add("gives up", "in "+span(place.QueueDeadline.Sub(a.now())))
			}
			add("on", firstOf(place.Unit, place.Node))
			for _, e := range place.Events {
				add("event", firstOf(e.Message, e.Type))
			}
			writeTable(a.out, nil, rows)
			if view.Status == protocol.StatusSuspended {
				a.hint("  answer it: everdict runs approve %s, or everdict runs reject %[1]s", id)
			}
			return nil
		}),
	}
}
