package main

import (
	"context"

	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/cmd/everdict/cli"
)

// findLanes finds the sandboxes that a runner is to have.
func findLanes(ctx context.Context, o cli.SandboxOptions, stateDir, workDir string, slots int, offered []string) *lanes.Lanes {
	return lanes.Find(ctx, lanes.Config{
		Driver: o.Driver, StateDir: stateDir, WorkDir: workDir, Slots: slots, Offered: offered, ShowFiles: !o.HideFiles, Roster: o.RosterDir,
		Image: o.Image, Runtime: o.Runtime, Network: o.Network, ReadOnly: o.ReadOnly, AllowEmulation: o.AllowEmulation, Warm: o.Warm,
	})
}
