package e2e

import (
	"errors"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// A machine that was paired without a token works, and a coordinator that is restarted
// while it does, and knows none of the nonces of before, has it back with its run.
func TestDeviceRuns(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	runner, key := h.Device("laptop", protocol.NewDeviceKey())
	h.DeviceRunner(runner, key)
	req := house.Scripted("print 10 lines\nsleep 3s")
	req.Runtime = runner.Target
	id := h.Submit(req)
	h.Running(id)
	h.Stop()
	h.Start()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the run ended %s at attempt %d, want it done at the first: %+v", run.Status, run.Attempt, run.Failure)
	}
}

// TestF35_DeviceRevoked: a device that is revoked while it works is closed at once, told
// so by name, and does not come back.
func TestF35_DeviceRevoked(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	runner, key := h.Device("laptop", protocol.NewDeviceKey())
	r := h.DeviceRunner(runner, key)
	req := house.Scripted("sleep 60s")
	req.Runtime = runner.Target
	h.Running(h.Submit(req))
	if err := h.Client.RevokeRunner(t.Context(), runner.ID); err != nil {
		t.Fatal(err)
	}
	var revoked *link.RevokedError
	if err := r.Wait(); !errors.As(err, &revoked) {
		t.Errorf("the runner ended with %v, want revoked", err)
	}
	r.Start()
	if err := r.Wait(); !errors.As(err, &revoked) || revoked.Code != "revoked" {
		t.Errorf("started again, it ended with %v, want revoked", err)
	}
}
