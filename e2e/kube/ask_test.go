//go:build kube

package kube

import (
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestAskAPerson: a job asks with "everdict ask" in the runtime's image and in one of its
// own.
func TestAskAPerson(t *testing.T) {
	t.Parallel()
	h, _ := launching(t)
	for name, image := range map[string]string{"the runtime's image": "", "an image of its own": caseImage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := on("ask May I?")
			req.Case.Image = image
			id := h.Submit(req)
			h.Until(id, "it asks", func(r protocol.Run) bool { return r.Status.Terminal() || r.Status == protocol.StatusSuspended })
			if _, err := h.Client.Approve(t.Context(), id, protocol.Decision{}); err != nil {
				t.Fatalf("approve: %v: %+v", err, h.Run(id).Failure)
			}
			house.Done(t, h.Settled(id))
		})
	}
}
