package main

import (
	"testing"
	"time"

	"github.com/everdict/everdict/cmd/everdict/cli"
)

// TestPendingTimeoutIsHeeded: what is configured is what the fleet is made with.
func TestPendingTimeoutIsHeeded(t *testing.T) {
	t.Parallel()
	c := coordinatorConfig(cli.CoordinatorOptions{Launch: cli.LaunchOptions{PendingTimeout: 15 * time.Minute}})
	if c.Launch.PendingTimeout != 15*time.Minute {
		t.Errorf("the fleet waits for %v", c.Launch.PendingTimeout)
	}
}
