package fleettest_test

import (
	"context"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/protocol"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := fleettest.NewCluster(fleettest.Config{})
	t.Cleanup(c.Close)
	fleettest.Run(t, fleettest.Subject{
		Opener: c, Spec: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s},
		Wrong: protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, AuthSecret: "wrong"}, Names: "wrong",
		MissingImage: "missing:1", OtherImage: "other:1", BadImage: "UPPER::bad",
		Evict: func(_ context.Context, unit string) error { c.Evict(unit); return nil },
	})
}
