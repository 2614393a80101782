package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// launching is a house that launches real job-runners, as processes of this machine
// that a cluster in memory keeps, for the runtime "cluster" with two slots.
func launching(t *testing.T) (*house.House, *fleettest.Cluster) {
	t.Helper()
	program := jobRunner(t)
	dir := t.TempDir()
	cluster := fleettest.NewCluster(fleettest.Config{Container: func(ctx context.Context, c fleettest.Container) (int, *fleet.Trouble) {
		return contain(ctx, c, program, filepath.Join(dir, c.Unit))
	}})
	h := &house.House{T: t, Address: house.FreeAddress(t), Config: coordinator.Config{DataDir: t.TempDir(), Version: "test", Log: house.Log(t, "coordinator")}}
	house.Lasting(&h.Config)
	h.Config.Launch = coordinator.Launch{URL: h.URL(), Grace: 2 * time.Second, Openers: map[string]fleet.Opener{protocol.RuntimeK8s: cluster}}
	h.Start()
	t.Cleanup(cluster.Close)
	t.Cleanup(h.Stop)
	if _, err := h.Client.RegisterRuntime(t.Context(), []byte(`{"kind":"k8s","id":"cluster","version":"1.0.0","image":"runner:1","maxConcurrent":2}`)); err != nil {
		t.Fatal(err)
	}
	return h, cluster
}

// contain is a unit's container.
func contain(ctx context.Context, c fleettest.Container, program, dir string) (int, *fleet.Trouble) {
	token := filepath.Join(dir, "token")
	err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(token, []byte(c.Secret), 0o600))
	if err != nil {
		return 1, nil
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "EVERDICT_API_URL=" + c.URL, "EVERDICT_JOIN_TOKEN_FILE=" + token, "EVERDICT_RUNNER_DIR=" + dir, "EVERDICT_DRAIN_TIMEOUT=0s"}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out := print{c.Print}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, nil
}

type print struct{ to func(string) }

func (p print) Write(b []byte) (int, error) {
	p.to(string(b))
	return len(b), nil
}

func cluster(script string) *protocol.RunRequest {
	r := house.Scripted(script)
	r.Runtime = "cluster"
	return r
}

// noUnits waits until the cluster has no unit.
func noUnits(t *testing.T, c *fleettest.Cluster) {
	t.Helper()
	house.Eventually(t, "no unit is left", func() bool { return len(c.Units()) == 0 })
}

// TestP4_LaunchedRunners: each run has a runner of its own, two at a time, and a
// restart of the coordinator in the middle changes nothing.
func TestP4_LaunchedRunners(t *testing.T) {
	t.Parallel()
	h, c := launching(t)
	file := filepath.Join(t.TempDir(), "gate")
	var ids []string
	for range 4 {
		ids = append(ids, h.Submit(cluster("run while [ ! -e "+file+" ]; do sleep 0.02; done")))
	}
	h.Running(ids[0])
	h.Running(ids[1])
	h.Until(ids[3], "the last waits", func(r protocol.Run) bool {
		return r.Placement != nil && strings.Contains(r.Placement.BlockedReason, "runtime cluster: waits for a slot: 2 of 2 in use")
	})
	h.Stop()
	h.Start()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		run := h.Settled(id)
		if run.Status != protocol.StatusSucceeded || run.Attempt != 1 || run.Provenance.RunnerLabel != fleet.UnitName(id, 1) {
			t.Errorf("%s: %s, attempt %d, on %+v, %+v; want it done at once by its own runner", id, run.Status, run.Attempt, run.Provenance, run.Failure)
		}
	}
	if n := c.Launches(); n != len(ids) {
		t.Errorf("%d units were ever made, want %d", n, len(ids))
	}
	noUnits(t, c)
}

// TestF17_ALaunchedRunnerIsTakenAway: the run is tried again by another, and a cancel
// ends it with all that is there.
func TestF17_ALaunchedRunnerIsTakenAway(t *testing.T) {
	t.Parallel()
	h, c := launching(t)
	id := h.Submit(cluster("run while :; do sleep 0.02; done"))
	h.Running(id)
	c.Evict(fleet.UnitName(id, 1))
	h.Until(id, "the second attempt runs", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt == 2 })
	if _, err := h.Client.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Failure == nil || run.Failure.Reason != protocol.ReasonCancelled {
		t.Errorf("the run is %s, %+v; want it cancelled", run.Status, run.Failure)
	}
	noUnits(t, c)
}

// TestP15_NothingIsLaunchedOnClusters: a coordinator that has no address for runners on
// clusters refuses what only launched runners do, names the flag, and takes the rest.
func TestP15_NothingIsLaunchedOnClusters(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	for kind, address := range map[string]string{protocol.RuntimeK8s: "", protocol.RuntimeNomad: `"addr":"http://127.0.0.1:1",`} {
		spec := `{"kind":"` + kind + `","id":"` + kind + `-cluster","version":"1.0.0",` + address + `"image":"runner:1"`
		for _, field := range []string{`"warm":1`, `"idleSeconds":60`, `"payload":true`} {
			_, err := h.Client.RegisterRuntime(t.Context(), []byte(spec+","+field+"}"))
			var p *protocol.Problem
			if !errors.As(err, &p) || p.Code != protocol.CodeBadRequest || !strings.Contains(p.Message, "it launches none on clusters") || !strings.Contains(p.Hint, "--runner-url") {
				t.Errorf("%s, %s: %v, want it refused with the flag", kind, field, err)
			}
		}
		if _, err := h.Client.RegisterRuntime(t.Context(), []byte(spec+"}")); err != nil {
			t.Errorf("%s: %v, want the same version taken without: runners join its pool with a token", kind, err)
		}
	}
}

// TestARunnerIsReadyBeforeItsRun: it takes the run that comes, and the next one has
// another.
func TestARunnerIsReadyBeforeItsRun(t *testing.T) {
	t.Parallel()
	h, c := launching(t)
	spec := `{"kind":"k8s","id":"cluster","version":"1.1.0","image":"runner:1","maxConcurrent":2,"warm":1}`
	if _, err := h.Client.RegisterRuntime(t.Context(), []byte(spec)); err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for range 3 {
		var ready string
		house.Eventually(t, "a runner is ready", func() bool {
			for _, r := range h.Pool("cluster").Runners {
				if r.Online && r.Busy == 0 && r.Job == "" && !taken[r.Unit] {
					ready = r.Unit
				}
			}
			return ready != ""
		})
		run := h.Settled(h.Submit(cluster("say hello")))
		if run.Status != protocol.StatusSucceeded || run.Attempt != 1 || taken[run.Provenance.RunnerLabel] || !strings.HasPrefix(run.Provenance.RunnerLabel, "everdict-standing-") {
			t.Errorf("%s: %s, attempt %d, on %+v, %+v; want it done at once by a runner that was ready, as %s", run.ID, run.Status, run.Attempt, run.Provenance, run.Failure, ready)
		}
		taken[run.Provenance.RunnerLabel] = true
	}
	if _, err := h.Client.RegisterRuntime(t.Context(), []byte(strings.NewReplacer("1.1.0", "1.2.0", `"warm":1`, `"warm":0`).Replace(spec))); err != nil {
		t.Fatal(err)
	}
	noUnits(t, c)
}

// TestARunnerThatCannotEmptyItsContainer: one that is not the first process of its
// container takes one run, though it may wait for another. A run that is given to it
// meanwhile has another runner, and loses no attempt.
func TestARunnerThatCannotEmptyItsContainer(t *testing.T) {
	t.Parallel()
	h, c := launching(t)
	spec := `{"kind":"k8s","id":"cluster","version":"1.1.0","image":"runner:1","maxConcurrent":1,"idleSeconds":60}`
	if _, err := h.Client.RegisterRuntime(t.Context(), []byte(spec)); err != nil {
		t.Fatal(err)
	}
	units := map[string]bool{}
	for range 3 {
		run := h.Settled(h.Submit(cluster("say hello")))
		if run.Status != protocol.StatusSucceeded || run.Attempt != 1 || units[run.Provenance.RunnerLabel] {
			t.Errorf("%s: %s, attempt %d, on %+v, %+v; want it done at once by a runner of its own", run.ID, run.Status, run.Attempt, run.Provenance, run.Failure)
		}
		units[run.Provenance.RunnerLabel] = true
	}
	noUnits(t, c)
}
