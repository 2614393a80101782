package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

func (a *app) runtimesInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect ID[@VERSION]",
		Short: "Look at the cluster of a runtime: nodes, capacity, units, warnings",
		Long: `Look at the cluster of a runtime, with the credentials that a launch would use: its nodes, as far as those may list
them, how many runs it takes, the units of its runs, and what is wrong.

Exit codes: 0 it answers, 1 it does not, 2 any other error.`,
		Example: `  everdict runtimes inspect prod-cluster
  everdict runtimes inspect prod-cluster@1.0.0 -o json | jq .capacity`,
		Args:              args("runtime id"),
		ValidArgsFunction: a.complete(false, a.runtimes),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ref := harnessRef(args[0])
			in, err := c.InspectRuntime(cmd.Context(), ref.ID, ref.Version)
			if err != nil {
				return err
			}
			if a.forPrograms() {
				err = a.json(in)
			} else {
				a.printInspection(in)
			}
			if err == nil && !in.Reachable {
				return &ExitError{Code: exitFail}
			}
			return err
		},
	}
}

// printReach says whether a cluster answers and, if it does not, what may help.
func (a *app) printReach(kind, reason, detail string, reachable bool) {
	p := a.palette(a.out)
	word := p.green("reachable")
	if !reachable {
		word = p.red("not reachable")
	}
	if reason != "" {
		word += " (" + cell(reason) + ")"
	}
	fmt.Fprintf(a.out, "%s  %s: %s\n", word, cell(kind), cell(detail))
	switch reason {
	case protocol.ProbeAuth:
		a.hint("  give the secret that authSecret or kubeconfigSecret names a new value: everdict secrets set NAME; it is taken within a minute")
	case protocol.ProbeUnreachable:
		a.hint("  it is the coordinator that asks: the address has to be reachable from where that runs")
	case protocol.ProbeError:
		a.hint("  everdict runtimes validate says what is wrong with a spec, and which of its secrets are not there; everdict secrets set NAME sets one")
	}
}

func (a *app) printInspection(in *protocol.Inspection) {
	a.printReach(in.Kind, in.Reason, in.Detail, in.Reachable)
	p := a.palette(a.out)
	var rows [][]string
	add := func(label, text string) {
		if text != "" {
			rows = append(rows, []string{"  " + p.dim(label), cell(text)})
		}
	}
	if c := in.Cluster; c != nil {
		add("cluster", strings.TrimSpace(c.Name+" "+c.Version))
		add("namespace", c.Namespace)
	}
	if c := in.Capacity; c != nil {
		add("capacity", fmt.Sprintf("%d of %d in use, %d free", c.Used, c.Total, c.Free))
	}
	if n := in.Nodes; n != nil {
		add("nodes", fmt.Sprintf("%d, %d ready", n.Total, n.Ready))
	}
	for _, w := range in.Warnings {
		rows = append(rows, []string{"  " + p.yellow("warning"), cell(w)})
	}
	writeTable(a.out, nil, rows)
	if n := in.Nodes; n != nil && len(n.Items) > 0 {
		fmt.Fprintln(a.out)
		var rows [][]string
		for i := range n.Items {
			rows = append(rows, nodeRow(&n.Items[i]))
		}
		writeTable(a.out, []string{"NODE", "STATUS", "CPU", "MEMORY", "GPU", "PLATFORM", "VERSION"}, rows)
	}
	if len(in.Workload) > 0 {
		fmt.Fprintln(a.out)
		var rows [][]string
		for _, u := range in.Workload {
			rows = append(rows, []string{cell(firstOf(u.Name, u.ID)), cell(u.Status), cell(orDash(u.Node)), cell(u.Role)})
		}
		writeTable(a.out, []string{"UNIT", "STATUS", "NODE", "ROLE"}, rows)
	}
}

func nodeRow(n *protocol.InspectNode) []string {
	status := n.Status
	if !n.Schedulable {
		status += ", takes no new units"
	}
	cores, memory, gpu := "-", "-", "-"
	if n.CPUTotal > 0 {
		cores = fmt.Sprintf("%g", float64(n.CPUTotal)/1000)
	}
	if n.MemoryMBTotal > 0 {
		memory = fmt.Sprintf("%d MiB", n.MemoryMBTotal)
	}
	if n.GPUTotal > 0 {
		gpu = fmt.Sprint(n.GPUTotal)
	}
	return []string{cell(n.Name), cell(status), cores, memory, gpu, cell(orDash(strings.Trim(n.OS+"/"+n.Arch, "/"))), cell(orDash(n.AgentVersion))}
}
