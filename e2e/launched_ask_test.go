package e2e

import (
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestLaunchedAsk: the job of a launched runner asks a person as any job does, although
// nothing of Everdict but its runner is there.
func TestLaunchedAsk(t *testing.T) {
	t.Parallel()
	h, c := launching(t)
	req := cluster(`run everdict runs list && exit 1; everdict install /tmp/x && exit 1; everdict && everdict ask "May I?"`)
	id := h.Submit(req)
	run := h.Until(id, "it asks", func(r protocol.Run) bool { return r.Status.Terminal() || suspended(r) })
	if run.Suspended == nil || run.Suspended.Question != "May I?" {
		t.Fatalf("the run is %s, %+v, %+v; want its question", run.Status, run.Suspended, run.Failure)
	}
	if _, err := h.Client.Approve(t.Context(), id, protocol.Decision{Comment: "you may"}); err != nil {
		t.Fatal(err)
	}
	house.Done(t, h.Settled(id))
	noUnits(t, c)
}
