package e2e

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestF44_P3_BusyLoopsDoNotStarveTheHeartbeat: a runner whose slots are four times its
// cores, every one of them burning what it can get, renews its leases in time through
// many heartbeats: no run is given away, frozen or begun again.
func TestF44_P3_BusyLoopsDoNotStarveTheHeartbeat(t *testing.T) {
	// Not parallel: it takes every core there is, for seconds.
	for name, image := range map[string]string{process.Name: "", docker.Name: busybox} {
		t.Run(name, func(t *testing.T) { burn(t, image) })
	}
}

func burn(t *testing.T, image string) {
	const heartbeats = 30
	ctx := context.Background()
	slots := 4 * runtime.NumCPU()
	h := house.New(t, house.Quick, func(c *coordinator.Config) {
		// A quarter of a real lease, and not less: what others do on this machine is no fault of the runner's.
		c.Lease.TTL, c.Timing.LeaseTTL = 15*time.Second, 15*time.Second
		c.Lease.OnlineWindow, c.Timing.HeartbeatTimeout, c.Timing.DeadPeer = 10*time.Second, 6*time.Second, 10*time.Second
	})
	paired := h.Pair("laptop")
	house.RunnerProcess(t, binary(t), h.URL(), paired.Token, fmt.Sprintf("--max-concurrent=%d", slots))
	h.Online(paired.Runner.ID)
	var ids []string
	for range slots {
		ids = append(ids, h.Submit(inImage(image, "run (while :; do :; done) & (while :; do :; done) & echo burning; while :; do :; done")))
	}
	for _, id := range ids {
		h.Running(id)
		house.Eventually(t, id+" burns", func() bool {
			log, err := h.Client.Log(ctx, id, protocol.LogQuery{})
			return err == nil && log.Bytes > 0
		})
	}
	// A heartbeat that left before the last run began says less, once.
	house.Eventually(t, "a heartbeat tells of every run", func() bool {
		all, err := h.Client.Runners(ctx)
		return err == nil && len(all) == 1 && all[0].Busy == slots && all[0].LastSeenAt != nil
	})

	var last time.Time
	var longest time.Duration
	seen := 0
	house.Eventually(t, fmt.Sprintf("%d heartbeats with every core busy", heartbeats), func() bool {
		all, err := h.Client.Runners(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("runners: %+v, %v", all, err)
		}
		r := all[0]
		if !r.Online || r.LastSeenAt == nil || r.Busy != slots {
			t.Fatalf("after %d heartbeats: online %v with %d runs, last seen %v, wanted it online with %d", seen, r.Online, r.Busy, r.LastSeenAt, slots)
		}
		if at := r.LastSeenAt.Time; at.After(last) {
			if seen > 0 {
				longest = max(longest, at.Sub(last))
			}
			last = at
			seen++
		}
		return seen > heartbeats
	})
	t.Logf("%d busy loops on %d cores: %d heartbeats, the longest pause between two %s", 3*slots, runtime.NumCPU(), seen, longest)

	for _, id := range ids {
		if run := h.Run(id); run.Status != protocol.StatusRunning || run.Attempt != 1 {
			t.Errorf("%s: got %s at attempt %d, wanted it running at attempt 1", id, run.Status, run.Attempt)
		}
		if events := kinds(t, h, id); strings.Count(events, protocol.RunStarted) != 1 || strings.Contains(events, protocol.RunRequeued) || strings.Contains(events, protocol.RunSuspended) {
			t.Errorf("%s: its events are %s", id, events)
		}
		if _, err := h.Client.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		run := h.Settled(id)
		if f := run.Failure; f == nil || f.Reason != protocol.ReasonCancelled || run.Result.Timing.FrozenMs != 0 {
			t.Errorf("%s: got %+v, frozen for %g ms, wanted cancelled and never frozen", id, f, run.Result.Timing.FrozenMs)
		}
		if image != "" {
			gone(t, id)
		}
	}
}

// TestF15_P8_DefaultShare: a run that declares nothing has its slot's share of the
// machine; the record says so, and the failure what helps.
func TestF15_P8_DefaultShareOfASlot(t *testing.T) {
	t.Parallel()
	const slots = 300
	h := house.New(t)
	paired := h.Pair("laptop")
	house.RunnerProcess(t, binary(t), h.URL(), paired.Token, fmt.Sprintf("--max-concurrent=%d", slots))
	for _, image := range []string{"", busybox} {
		// A child is killed, not who started it: no exit code tells.
		run := h.Settled(h.Submit(inImage(image, "run tail -n 1 /dev/zero > /dev/null || true")))
		e := run.Result.Execution
		if _, limited := e.Limits["memory"]; !limited && image == "" {
			continue // nothing on this machine limits processes of its own
		}
		f := run.Failure
		if f == nil || f.Reason != protocol.ReasonOOM || f.Limit == nil || f.Limit.Configured <= 0 || f.Limit.Measured <= 0 || f.Limit.Measured > f.Limit.Configured {
			t.Errorf("image %q: got %+v with limits %v, want oom with the configured and the measured value", image, f, e.Limits)
			continue
		}
		if !strings.Contains(f.Hint, fmt.Sprint(slots)) || !strings.Contains(f.Hint, "memoryMb") {
			t.Errorf("image %q: the hint is %q, want the %d slots and what to declare", image, f.Hint, slots)
		}
		if got := strings.Join(e.DefaultLimits, " "); !strings.Contains(got, "memory") || !strings.Contains(got, "pids") {
			t.Errorf("image %q: defaults are %q, want memory and pids", image, got)
		}
	}
	declared := inImage(busybox, "say hello")
	declared.Case.Resources = &protocol.Resources{MemoryMB: 512}
	e := h.Settled(h.Submit(declared)).Result.Execution
	if got := fmt.Sprint(e.Limits["memory"]); got != fmt.Sprint(float64(512<<20)) || strings.Join(e.DefaultLimits, " ") != "pids" {
		t.Errorf("declared: limits %v with defaults %v, want the 512 MiB and none by default but pids", e.Limits, e.DefaultLimits)
	}
}
