package fleet_test

import (
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// A unit that has ended has no slot any more, and one that waits for a node has one.
func TestShowCountsWhatMayRun(t *testing.T) {
	t.Parallel()
	slots := 3
	var in protocol.Inspection
	fleet.Show(&in, fleet.Target{Spec: &protocol.RuntimeSpec{MaxConcurrent: &slots}}, []fleet.Unit{
		{Name: "a", State: fleet.Running}, {Name: "b", State: fleet.Pending}, {Name: "c", State: fleet.Ended},
	}, "ns", "Job")
	if want := (protocol.InspectCapacity{Total: 3, Used: 2, Free: 1}); *in.Capacity != want || len(in.Workload) != 3 {
		t.Errorf("capacity %+v, %d units; want %+v, and all three", *in.Capacity, len(in.Workload), want)
	}
}
