package power

import (
	"context"
	"testing"
	"time"
)

func TestSupply(t *testing.T) {
	t.Parallel()
	const charger = "change@/devices/LNXSYSTM:00/ACPI0003:00/power_supply/AC\x00ACTION=change\x00SUBSYSTEM=power_supply\x00POWER_SUPPLY_ONLINE=0\x00SEQNUM=1\x00"
	if !supply([]byte(charger)) {
		t.Error("a message of a charger was not seen")
	}
	const disk = "change@/devices/virtual/block/loop0\x00ACTION=change\x00SUBSYSTEM=block\x00NAME=SUBSYSTEM=power_supply2\x00"
	if supply([]byte(disk)) || supply(nil) {
		t.Error("a message of a disk was taken for one of a charger")
	}
}

// TestChangesEnd: it listens, and stops with its context.
func TestChangesEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	changed, err := Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case _, ok := <-changed:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("it listens after its context has ended")
		}
	}
}
