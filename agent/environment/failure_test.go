package environment

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/agent/evidence/diff"
	"github.com/everdict/everdict/protocol"
)

func TestLimitsOfTheDiffAreTheAgents(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{diff.LimitEntries: "count", diff.LimitPathBytes: "bytes"} {
		f := snapshotError(fmt.Errorf("wrapped: %w", &diff.LimitError{Limit: name, Configured: 10, Measured: 11})).Failure
		want := &protocol.Limit{Name: name, Unit: unit, Configured: 10, Measured: 11}
		if d := cmp.Diff(want, f.Limit); d != "" || f.Class != protocol.ClassAgent || f.Reason != protocol.ReasonSnapshot || f.Retryable {
			t.Errorf("failure %+v of class %s; its limit (-want +got):\n%s", f, f.Class, d)
		}
	}
}
