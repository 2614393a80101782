package fleet

import "github.com/everdict/everdict/protocol"

// Show adds to an inspection what a target has on its cluster, in a namespace, as
// objects of a kind.
func Show(in *protocol.Inspection, t Target, units []Unit, namespace, kind string) {
	c := protocol.InspectCapacity{Total: t.Spec.Limits().MaxConcurrent}
	for _, u := range units {
		if u.State != Ended { // one that has waits to be removed, and has no slot
			c.Used++
		}
		in.Workload = append(in.Workload, protocol.InspectUnit{ID: u.Name, Name: u.Name, Status: u.State.String(), Node: u.Node, Role: "eval",
			Namespace: namespace, OwnerKind: kind})
		if u.Trouble != nil {
			in.Warnings = append(in.Warnings, u.Name+": "+u.Trouble.Message)
		}
	}
	c.Free = max(0, c.Total-c.Used)
	in.Capacity = &c
}
