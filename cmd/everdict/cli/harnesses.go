package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func (a *app) harnessesCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "harnesses",
		Short: "List, read, register and delete harnesses and their templates",
		Example: `  everdict harnesses list
  everdict harnesses register -f my-agent.json
  everdict harnesses get my-agent@1.2.0`,
	})
	cmd.AddCommand(a.harnessesList(), a.harnessesGet(), a.harnessesRegister(), a.harnessesValidate(), a.harnessesDelete())
	return cmd
}

func (a *app) harnessesList() *cobra.Command {
	var templates bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the harnesses that are registered; a run can name those that are built in, too",
		Example: `  everdict harnesses list
  everdict harnesses list --templates -o json`,
		Args:        args(),
		Annotations: map[string]string{jsonLines: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if templates {
				return a.listTemplates(cmd.Context(), c)
			}
			entries, err := c.Harnesses(cmd.Context())
			if err != nil {
				return err
			}
			if a.forPrograms() {
				_, err := printList(a, each(entries))
				return err
			}
			if len(entries) == 0 {
				fmt.Fprintln(a.out, "none registered")
				a.hint("built in are %s; register your own: everdict harnesses register -f FILE", strings.Join(protocol.Adapters(), ", "))
				return nil
			}
			var rows [][]string
			for _, e := range entries {
				template := "-"
				if e.TemplateID != "" {
					template = e.TemplateID + "@" + e.TemplateVersion
				}
				rows = append(rows, []string{cell(e.ID), cell(e.LatestVersion), cell(strings.Join(e.Versions, ",")), cell(e.Kind), cell(template), cell(e.Owner), a.ago(e.UpdatedAt)})
			}
			writeTable(a.out, []string{"ID", "LATEST", "VERSIONS", "KIND", "TEMPLATE", "OWNER", "CHANGED"}, rows)
			a.hint("built in besides: %s", strings.Join(protocol.Adapters(), ", "))
			return nil
		},
	}
	cmd.Flags().BoolVar(&templates, "templates", false, "templates in place of harnesses")
	return cmd
}

func (a *app) listTemplates(ctx context.Context, c *client.Client) error {
	entries, err := c.Templates(ctx)
	none := nothing{"none registered", "register one: everdict harnesses register --template -f FILE"}
	return show(a, entries, err, none, []string{"ID", "LATEST", "VERSIONS", "KIND", "CATEGORY", "OWNER"}, func() (rows [][]string) {
		for _, e := range entries {
			rows = append(rows, []string{cell(e.ID), cell(e.LatestVersion), cell(strings.Join(e.Versions, ",")), cell(e.Kind), cell(e.Category), cell(e.Owner)})
		}
		return rows
	})
}

func (a *app) harnessesGet() *cobra.Command {
	var template, instance bool
	cmd := &cobra.Command{
		Use:   "get ID[@VERSION]",
		Short: "Show a harness as it runs, as JSON that register takes",
		Example: `  everdict harnesses get my-agent
  everdict harnesses get my-agent@1.2.0 --instance
  everdict harnesses get my-template --template`,
		Args: args("harness id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ref := harnessRef(args[0])
			var spec any
			switch {
			case template:
				spec, err = c.Template(cmd.Context(), ref.ID, ref.Version)
			case instance:
				spec, err = c.HarnessInstance(cmd.Context(), ref.ID, ref.Version)
			default:
				spec, err = c.Harness(cmd.Context(), ref.ID, ref.Version)
			}
			if err != nil {
				return err
			}
			return a.json(spec)
		},
	}
	cmd.Flags().BoolVar(&template, "template", false, "a template in place of a harness")
	cmd.Flags().BoolVar(&instance, "instance", false, "the template, pins and overrides behind it")
	cmd.MarkFlagsMutuallyExclusive("template", "instance")
	cmd.ValidArgsFunction = a.complete(false, a.registered)
	return cmd
}

// specFile adds the flags of a command that sends a spec.
func specFile(cmd *cobra.Command, file *string, template *bool) {
	cmd.Flags().StringVarP(file, "file", "f", "", "JSON file with the spec, - for standard input")
	cmd.Flags().BoolVar(template, "template", false, "it is a template in place of a harness")
}

func (a *app) readSpec(cmd *cobra.Command, file string, template bool) (json.RawMessage, error) {
	if file == "" {
		return nil, &usageError{cmd, "say which spec: -f FILE, or -f - for standard input"}
	}
	spec, err := a.readJSON(file, protocol.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	if err := notASpec(cmd, file, spec, template); err != nil {
		return nil, err
	}
	a.warnOfKeys(spec, specType(spec, template))
	return spec, nil
}

func (a *app) harnessesRegister() *cobra.Command {
	var file string
	var template bool
	cmd := &cobra.Command{
		Use:   "register -f FILE",
		Short: "Register a version of a harness; it never changes afterwards",
		Example: `  everdict harnesses register -f my-agent.json
  echo '{"kind":"command","id":"my-agent","version":"1.0.0","command":"my-agent {{task}}"}' | everdict harnesses register -f -
  everdict harnesses register --template -f template.json`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := a.readSpec(cmd, file, template)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			register := c.RegisterHarness
			if template {
				register = c.RegisterTemplate
			}
			got, err := register(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				return a.json(got)
			}
			fmt.Fprintf(a.out, "%s@%s registered in %s\n", cell(got.ID), cell(got.Version), cell(got.Workspace))
			if got.Private {
				a.hint("  it is private, because it names secrets of yours: nobody else sees it or can run it")
			}
			if !template {
				a.hint("  try it: everdict submit -f run.json --wait --harness %s@%s", got.ID, got.Version)
			}
			return nil
		},
	}
	specFile(cmd, &file, &template)
	return cmd
}

func (a *app) harnessesValidate() *cobra.Command {
	var file string
	var template bool
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check a spec without registering it",
		Long:  "Check a spec without registering it. Exit codes: 0 it can be registered, 2 it cannot.",
		Example: `  everdict harnesses validate -f my-agent.json
  everdict harnesses validate --template -f template.json -o json`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := a.readSpec(cmd, file, template)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			validate := c.ValidateHarness
			if template {
				validate = c.ValidateTemplate
			}
			v, err := validate(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if err := a.printValidation(v); err != nil {
				return err
			}
			if !v.OK {
				return &ExitError{Code: exitError}
			}
			return nil
		},
	}
	specFile(cmd, &file, &template)
	return cmd
}

func (a *app) printValidation(v *protocol.Validation) error {
	if a.forPrograms() {
		return a.json(v)
	}
	p := a.palette(a.out)
	if !v.OK {
		fmt.Fprintln(a.out, p.red("not valid"))
		for _, e := range v.Errors {
			fmt.Fprintf(a.out, "  %s\n", cell(e))
		}
		return nil
	}
	fmt.Fprintf(a.out, "%s  %s@%s, %s\n", p.green("valid"), cell(v.ID), cell(v.Version), cell(v.Kind))
	if v.VersionExists {
		fmt.Fprintln(a.out, p.yellow("  this version is registered already: with other content it would be refused"))
	}
	return nil
}

func (a *app) harnessesDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID@VERSION...",
		Short: "Hide versions of a harness; runs that used them keep their record",
		Example: `  everdict harnesses delete my-agent@1.2.0
  everdict harnesses delete my-agent@1.2.0 my-agent@1.3.0 -o json`,
		Args:              args("harness id@version..."),
		ValidArgsFunction: a.complete(true, a.registered),
		RunE: func(cmd *cobra.Command, names []string) error {
			for _, name := range names {
				if _, version, _ := strings.Cut(name, "@"); version == "" || version == protocol.Latest {
					return &usageError{cmd, fmt.Sprintf("%q names no version: a deletion takes id@version", name)}
				}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), names, "deleted", func(ctx context.Context, name string) error {
				ref := harnessRef(name)
				_, err := c.DeleteHarness(ctx, ref.ID, ref.Version)
				return err
			})
		},
	}
}
