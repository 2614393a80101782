package nomad

import (
	"testing"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestAskAPerson: a job asks with "everdict ask" in the runtime's image, in one of its own,
// and on the client's machine, where the runner's directory has a long name.
func TestAskAPerson(t *testing.T) {
	t.Parallel()
	asRuntimes := func(*coordinator.Config, *protocol.RuntimeSpec) {}
	for name, row := range map[string]struct {
		how   change
		image string
	}{"the runtime's image": {asRuntimes, ""}, "an image of its own": {asRuntimes, caseImage}, "raw_exec": {asProcess, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			h := launching(t, c, row.how)
			req := on("ask May I?")
			req.Case.Image = row.image
			if name == "raw_exec" {
				req.Case.Resources = nil
			}
			id := h.Submit(req)
			h.Until(id, "it asks", func(r protocol.Run) bool { return r.Status.Terminal() || r.Status == protocol.StatusSuspended })
			if _, err := h.Client.Approve(t.Context(), id, protocol.Decision{}); err != nil {
				t.Fatalf("approve: %v: %+v", err, h.Run(id).Failure)
			}
			house.Done(t, h.Settled(id))
			c.empty(t)
		})
	}
}
