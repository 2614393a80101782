package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) runtimesCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "runtimes",
		Short: "Register, list, check, probe and inspect the places where runs run",
		Long: `Register, list, check, probe and inspect the places where runs run. A runtime is a pool of runners with limits; a run
names its id. Who starts the runners is another matter: see everdict pools.`,
		Example: `  everdict runtimes register -f prod-cluster.json
  everdict runtimes list
  everdict submit -f run.json --wait --runtime prod-cluster`,
	})
	cmd.AddCommand(a.runtimesList(), a.runtimesGet(), a.runtimesRegister(), a.runtimesValidate(), a.runtimesProbe(), a.runtimesInspect(), a.runtimesTag())
	return cmd
}

func (a *app) runtimesList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the runtimes that a run can name",
		Example: `  everdict runtimes list
  everdict runtimes list -o jsonl | jq -r .id`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			entries, err := c.Runtimes(cmd.Context())
			none := nothing{"none registered", "register one: everdict runtimes register -f FILE; a paired machine needs none"}
			return show(a, entries, err, none, []string{"ID", "KIND", "LATEST", "VERSIONS", "OFFERS", "CHANGED"}, func() (rows [][]string) {
				for _, e := range entries {
					rows = append(rows, []string{cell(e.ID), cell(e.Kind), cell(e.LatestVersion), cell(strings.Join(e.Versions, ",")),
						cell(orDash(strings.Join(e.Capabilities, ","))), a.ago(e.UpdatedAt)})
				}
				return rows
			})
		},
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) runtimesGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID[@VERSION]",
		Short: "Show a runtime as JSON that register takes",
		Example: `  everdict runtimes get prod-cluster
  everdict runtimes get prod-cluster@1.0.0 > next.json`,
		Args:              args("runtime id"),
		ValidArgsFunction: a.complete(false, a.runtimes),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ref := harnessRef(args[0])
			spec, err := c.Runtime(cmd.Context(), ref.ID, ref.Version)
			if err != nil {
				return err
			}
			return a.json(spec)
		},
	}
}

// readRuntime reads a spec from a file.
func (a *app) readRuntime(cmd *cobra.Command, file string) (json.RawMessage, error) {
	if file == "" {
		return nil, &usageError{cmd, "say which spec: -f FILE, or -f - for standard input"}
	}
	spec, err := a.readJSON(file, protocol.MaxBodyBytes)
	if err == nil {
		a.warnOfKeys(spec, reflect.TypeFor[protocol.RuntimeSpec]())
	}
	return spec, err
}

// runtimeQuery is a spec from a file, or the name of a registered one.
func (a *app) runtimeQuery(cmd *cobra.Command, file string, got []string) (json.RawMessage, error) {
	if len(got) == 0 {
		return a.readRuntime(cmd, file)
	}
	if file != "" {
		return nil, &usageError{cmd, "give a registered runtime or -f FILE, not both"}
	}
	ref := harnessRef(got[0])
	return json.Marshal(protocol.RuntimeRef{ID: ref.ID, Version: ref.Version})
}

func runtimeFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "", "JSON file with the spec, - for standard input")
}

// atMostOne takes a runtime's id or nothing.
func atMostOne(cmd *cobra.Command, got []string) error {
	if len(got) == 0 {
		return nil
	}
	return args("runtime id")(cmd, got)
}

func (a *app) runtimesRegister() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "register -f FILE",
		Short: "Register a version of a runtime; it never changes afterwards",
		Long: `Register a version of a runtime; it never changes afterwards. The limits of the latest version are those of the
pool from then on. Fields that name a secret take its name, never its value.`,
		Example: `  everdict runtimes register -f prod-cluster.json
  echo '{"kind":"local","id":"build-machines","version":"1.0.0","maxConcurrent":8}' | everdict runtimes register -f -`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := a.readRuntime(cmd, file)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.RegisterRuntime(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(got)
			}
			fmt.Fprintf(a.out, "%s@%s registered in %s\n", cell(got.ID), cell(got.Version), cell(got.Workspace))
			a.adviseRunners(cmd.Context(), c, got.ID)
			a.hint("  run something there: everdict submit -f run.json --wait --runtime %s", quoteArg(got.ID))
			return nil
		},
	}
	runtimeFile(cmd, &file)
	return cmd
}

// adviseRunners says where the runners of a runtime that was just registered come from, and
// what of it is missing.
func (a *app) adviseRunners(ctx context.Context, c *client.Client, id string) {
	// It is registered, whatever becomes of these two questions.
	ref, err := json.Marshal(protocol.RuntimeRef{ID: id})
	if err == nil {
		if v, err := c.ValidateRuntime(ctx, ref); err == nil && v.MissingSecrets != nil && len(*v.MissingSecrets) > 0 {
			fmt.Fprintln(a.err, a.palette(a.err).yellow("warning:"), "secrets that it names are not there: "+cell(strings.Join(*v.MissingSecrets, ", "))+
				"; everdict secrets set NAME sets one")
		}
	}
	pools, err := c.Pools(ctx)
	if i := slices.IndexFunc(pools, func(p protocol.Pool) bool { return p.Runtime == id }); err == nil && i >= 0 && pools[i].Launched {
		a.hint("  its runners are launched when there are runs: everdict runtimes probe %s says whether they can be", quoteArg(id))
		return
	}
	a.hint("  give it runners: everdict pools token create --runtime %s", quoteArg(id))
}

func (a *app) runtimesValidate() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate -f FILE | ID[@VERSION]",
		Short: "Check a spec, and the secrets that it names, without registering it",
		Long:  "Check a spec, and the secrets that it names, without registering it. Exit codes: 0 it can be registered, 2 it cannot.",
		Example: `  everdict runtimes validate -f prod-cluster.json
  everdict runtimes validate prod-cluster -o json`,
		Args:              atMostOne,
		ValidArgsFunction: a.complete(false, a.runtimes),
		RunE: func(cmd *cobra.Command, got []string) error {
			query, err := a.runtimeQuery(cmd, file, got)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			v, err := c.ValidateRuntime(cmd.Context(), query)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				err = a.json(v)
			} else {
				err = a.printValidation(&v.Validation)
				if v.MissingSecrets != nil && len(*v.MissingSecrets) > 0 {
					fmt.Fprintln(a.out, a.palette(a.out).yellow("  secrets that are not there: "+cell(strings.Join(*v.MissingSecrets, ", "))))
				}
			}
			if err == nil && !v.OK {
				return &ExitError{Code: exitError}
			}
			return err
		},
	}
	runtimeFile(cmd, &file)
	return cmd
}

func (a *app) runtimesProbe() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "probe ID[@VERSION] | -f FILE",
		Short: "Ask the cluster of a runtime whether it answers",
		Long: `Ask the cluster of a runtime whether it answers, with the credentials that a launch would use. Nothing is kept.

Exit codes: 0 it answers, 1 it does not, 2 any other error.`,
		Example: `  everdict runtimes probe prod-cluster
  everdict runtimes probe -f prod-cluster.json -o json`,
		Args:              atMostOne,
		ValidArgsFunction: a.complete(false, a.runtimes),
		RunE: func(cmd *cobra.Command, got []string) error {
			query, err := a.runtimeQuery(cmd, file, got)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			probe, err := c.ProbeRuntime(cmd.Context(), query)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				err = a.json(probe)
			} else {
				a.printReach(probe.Kind, probe.Reason, probe.Detail, probe.Reachable)
			}
			if err == nil && !probe.Reachable {
				return &ExitError{Code: exitFail}
			}
			return err
		},
	}
	runtimeFile(cmd, &file)
	return cmd
}

func (a *app) runtimesTag() *cobra.Command {
	return &cobra.Command{
		Use:   "tag ID[@VERSION] [TAG...]",
		Short: "Replace the tags of a version; without a tag it has none",
		Example: `  everdict runtimes tag prod-cluster@1.0.0 live
  everdict runtimes tag prod-cluster@1.0.0`,
		Args: func(cmd *cobra.Command, got []string) error {
			if len(got) < 2 {
				return args("runtime id")(cmd, got)
			}
			return args("runtime id", "tag...")(cmd, got)
		},
		ValidArgsFunction: a.complete(false, a.runtimes),
		RunE: func(cmd *cobra.Command, got []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ref := harnessRef(got[0])
			tagged, err := c.TagRuntime(cmd.Context(), ref.ID, ref.Version, append([]string{}, got[1:]...))
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(tagged)
			}
			fmt.Fprintf(a.out, "%s@%s: %s\n", cell(tagged.ID), cell(tagged.Version), cell(orDash(strings.Join(tagged.Tags, ", "))))
			return nil
		},
	}
}
