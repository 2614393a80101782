package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/cmd/everdict/config"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can do as a runner, and what mends what is missing",
		Long: `Show what this machine can do as a runner: each capability with its evidence, what every runner needs, where a
container engine was looked for and why it was taken or passed over, and for what is missing the command that mends it.
A runner offers exactly what is shown here. Nothing is changed, no session is made, and of logins only the existence of
their files is looked at. Every check is bounded in time; all together take some seconds at most.

Exit codes: 0 a runner with these settings could work, 1 it could not, 2 any other error.`,
		Example: `  everdict doctor
  everdict doctor --api-url https://everdict.example --ca-file /etc/ssl/corp.pem
  everdict doctor -o json | jq -r '.checks[] | select(.status != "ok") | .mend'
  DOCKER_CONTEXT=colima everdict doctor`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.seclude(cmd.Context(), false) // as the runner that it speaks of
			o, err := a.runnerOptions()
			if err != nil {
				return err
			}
			if a.hooks.Doctor == nil {
				return errNoHook(cmd)
			}
			report, err := a.hooks.Doctor(cmd.Context(), o)
			if err != nil {
				return err
			}
			if cmd.Context().Err() != nil {
				return context.Cause(cmd.Context()) // what was cut short says nothing about the machine
			}
			if a.forPrograms() {
				err = a.json(report)
			} else {
				a.printReport(report)
			}
			if err == nil && !report.CanWork {
				return &ExitError{Code: exitFail}
			}
			return err
		},
	}
	config.Bind(cmd.Flags(), a.schema, config.WorkDir, config.StateDir, config.MaxConcurrent, config.Sandbox, config.HideFiles, config.RosterDir, config.DockerRuntime, config.PassProxy, config.PassCA)
	return cmd
}

func (p palette) found(s doctor.Status) string {
	switch s {
	case doctor.OK:
		return p.green(string(s))
	case doctor.Warn:
		return p.yellow(string(s))
	}
	return p.red(string(s))
}

func (a *app) printReport(r doctor.Report) {
	p := a.palette(a.out)
	var rows [][]string
	var broken []string
	var engine *endpoint.Found
	for _, c := range r.Checks {
		status := p.found(c.Status)
		if c.Capability && c.Status == doctor.Missing && !c.Required {
			status = p.dim(string(c.Status)) // a machine need not have everything
		}
		rows = append(rows, []string{cell(c.ID), status, cell(c.Evidence)})
		if c.Mend != "" {
			rows = append(rows, []string{"", "", p.dim("mend: ") + cell(c.Mend)})
		}
		if c.Required && c.Status == doctor.Missing {
			broken = append(broken, c.ID)
		}
		if c.Docker != nil {
			engine = c.Docker
		}
	}
	writeTable(a.out, []string{"CHECK", "STATUS", "WHAT WAS SEEN"}, rows)
	if engine != nil {
		fmt.Fprintln(a.out)
		a.printCandidates(p, engine.Candidates)
	}
	fmt.Fprintln(a.out)
	offers := "nothing besides"
	if len(r.Capabilities) > 0 {
		offers = strings.Join(r.Capabilities, ", ")
	}
	if r.CanWork {
		fmt.Fprintf(a.out, "%s a runner can work here, and offers %s\n", p.green("ok:"), offers)
		return
	}
	fmt.Fprintf(a.out, "%s a runner cannot work here before this is mended: %s\n", p.red("no:"), strings.Join(broken, ", "))
}

func (a *app) printCandidates(p palette, candidates []endpoint.Candidate) {
	var rows [][]string
	for _, c := range candidates {
		state := p.dim(string(c.State))
		if c.State == endpoint.Chosen {
			state = p.green(string(c.State))
		}
		source := string(c.Source)
		if c.Context != "" {
			source += " " + c.Context
		}
		rows = append(rows, []string{cell(source), cell(c.Host), state, cell(c.Reason)})
	}
	writeTable(a.out, []string{"CONTAINER ENGINE", "ADDRESS", "STATE", "WHY"}, rows)
}
