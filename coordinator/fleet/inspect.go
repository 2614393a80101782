package fleet

import "github.com/everdict/everdict/protocol"

// Show adds to an inspection what a target has on its cluster, in a namespace, as
// objects of a kind.
func Show(in *protocol.Inspection, t Target, units []Unit, namespace, kind string) {
	most := t.Spec.Limits().MaxConcurrent
	in.Capacity = &protocol.InspectCapacity{Total: most, Used: len(units), Free: max(0, most-len(units))}
	for _, u := range units {
		in.Workload = append(in.Workload, protocol.InspectUnit{ID: u.Name, Name: u.Name, Status: u.State.String(), Node: u.Node, Role: "eval",
			Namespace: namespace, OwnerKind: kind})
		if u.Trouble != nil {
			in.Warnings = append(in.Warnings, u.Name+": "+u.Trouble.Message)
		}
	}
}
