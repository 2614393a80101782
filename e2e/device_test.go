package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
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
	runners, err := h.Client.Runners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(runners) != 1 || !runners[0].Device || !runners[0].Online {
		t.Errorf("the runners are %+v, want the device, online", runners)
	}
}

// TestF35_P3_DeviceRevokedWhileFrozen: a device that is revoked while it cannot be reached and holds
// its run still learns it when it is back, and its run takes no further step.
func TestF35_P3_DeviceRevokedWhileFrozen(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	proxy := h.Proxy()
	runner, key := h.Device("laptop", protocol.NewDeviceKey())
	file := filepath.Join(t.TempDir(), "ticks")
	req := house.Scripted("run while :; do echo x >> " + file + "; sleep 0.05; done")
	req.Runtime = runner.Target
	id := h.Submit(req)
	var w witness
	r := h.DeviceRunner(runner, key, func(c *agent.Config) { c.URL, c.Observe = proxy.URL(), w.observe })
	h.Running(id)
	grows(t, file)
	proxy.Hold()
	w.saw(t, "the run is held still", heldStill(id))
	before := size(file)
	if err := h.Client.RevokeRunner(t.Context(), runner.ID); err != nil {
		t.Fatal(err)
	}
	proxy.Release()
	var revoked *link.RevokedError
	if err := r.Wait(); !errors.As(err, &revoked) {
		t.Errorf("the runner ended with %v, want revoked", err)
	}
	if after := size(file); after != before {
		t.Errorf("the run wrote %d bytes before it was revoked and %d in all, want no step more", before, after)
	}
	h.Until(id, "it waits in vain and says so", func(run protocol.Run) bool {
		return run.Placement != nil && strings.Contains(run.Placement.BlockedReason, "was revoked and cannot come back")
	})
}

// TestF35_DeviceRevoked: a device that is revoked, whatever its run is doing, is told so by
// name and does not come back; its processes are gone, and the run is not lost: it waits
// and says that it waits in vain.
func TestF35_DeviceRevoked(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		script string
		// until is when the run is where it is to be; nil: it waits for a runner that has
		// not come yet.
		until func(h *house.House, id, file string)
	}{
		"queued": {script: "sleep 60s"},
		"running": {script: "run while :; do echo x >> FILE; sleep 0.05; done", until: func(h *house.House, id, file string) {
			h.Running(id)
			grows(h.T.(*testing.T), file)
		}},
		"asking": {script: "ask May I?", until: func(h *house.House, id, _ string) {
			h.Until(id, "it asks", func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := house.New(t, house.Quick)
			runner, key := h.Device("laptop", protocol.NewDeviceKey())
			file := filepath.Join(t.TempDir(), "ticks")
			req := house.Scripted(strings.ReplaceAll(row.script, "FILE", file))
			req.Runtime = runner.Target
			id := h.Submit(req)
			var r *house.Runner
			if row.until != nil {
				r = h.DeviceRunner(runner, key, func(c *agent.Config) { c.Executable = binary(t) })
				row.until(h, id, file)
			}
			if err := h.Client.RevokeRunner(t.Context(), runner.ID); err != nil {
				t.Fatal(err)
			}
			if row.until != nil {
				run := h.Run(id)
				if events := kinds(t, h, id); run.Status != protocol.StatusRunning || run.Suspended != nil ||
					!strings.Contains(run.Placement.BlockedReason, "was revoked") || !strings.Contains(events, protocol.RunRunnerRevoked) {
					t.Errorf("the run is %s and says %q, and its life is %s, want that its runner was revoked, at once", run.Status, run.Placement.BlockedReason, events)
				}
				if _, err := h.Client.Approve(t.Context(), id, protocol.Decision{}); err == nil {
					t.Error("a question was answered that nobody asks any more")
				}
			}
			var revoked *link.RevokedError
			if r == nil {
				r = h.DeviceRunner(runner, key)
			} else {
				if err := r.Wait(); !errors.As(err, &revoked) {
					t.Errorf("the runner ended with %v, want revoked", err)
				}
				r.Start()
			}
			if err := r.Wait(); !errors.As(err, &revoked) || revoked.Code != "revoked" || !strings.Contains(revoked.Message, "laptop") {
				t.Errorf("started again, it ended with %v, want revoked, by name", err)
			}
			if name == "running" {
				standsStill(t, file)
			}
			h.Until(id, "it waits in vain and says so", func(run protocol.Run) bool {
				return run.Placement != nil && strings.Contains(run.Placement.BlockedReason, "was revoked and cannot come back")
			})
		})
	}
}

// TestF35_RevokedAsItIsGivenARun: a device that is revoked at whatever moment between the
// submit of a run and its work ends, and what it had begun ends with it.
func TestF35_RevokedAsItIsGivenARun(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	for round := range 12 {
		runner, key := h.Device("laptop", protocol.NewDeviceKey())
		r := h.DeviceRunner(runner, key)
		file := filepath.Join(t.TempDir(), "ticks")
		req := house.Scripted("run while :; do echo x >> " + file + "; sleep 0.05; done")
		req.Runtime = runner.Target
		id := h.Submit(req)
		// From at once to when the run is long at work, in steps of the run's own life.
		if round > 0 {
			h.Until(id, "it is far enough", func(run protocol.Run) bool {
				return run.Attempt > 0 && (round < 4 || run.StartedAt != nil) && (round < 8 || size(file) > 0)
			})
		}
		if err := h.Client.RevokeRunner(t.Context(), runner.ID); err != nil {
			t.Fatal(err)
		}
		var revoked *link.RevokedError
		if err := r.Wait(); !errors.As(err, &revoked) {
			t.Errorf("round %d: the runner ended with %v, want revoked", round, err)
		}
		standsStill(t, file)
		if _, err := h.Client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		h.Settled(id)
	}
}
