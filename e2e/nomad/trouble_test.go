package nomad

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

func TestF16_AnImageThatIsNowhere(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]change{"token": func(*coordinator.Config, *protocol.RuntimeSpec) {}, "payload": payloads} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			// That there is no place for it would be known after minutes.
			h := launching(t, c, patient, how, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = "everdict-test/nowhere:0" })
			house.Failed(t, h.Settled(h.Submit(on("say hello"))), protocol.ClassConfig, protocol.ReasonImage, "everdict-test/nowhere:0", "Failed to pull")
			c.empty(t)
		})
	}
}

func TestF16_ANameThatIsNoImage(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	req := on("say hello")
	req.Case.Image = "UPPER::bad"
	house.Failed(t, h.Settled(h.Submit(req)), protocol.ClassConfig, protocol.ReasonImage, "UPPER::bad")
	c.empty(t)
}

// TestF15_MemoryRunsOut: whichever process the kernel ends, the run says why.
func TestF15_MemoryRunsOut(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, once) // a container at its limit may stand still for seconds before the kernel ends something in it
	house.Failed(t, h.Settled(h.Submit(on("run head -c 300000000 /dev/zero | tail -n 1 | wc -c"))), protocol.ClassInfra, protocol.ReasonOOM)
	c.empty(t)
}

// TestF17_AnAllocationIsTakenAway: by a person, with nomad alloc stop, after which Nomad
// makes another one. That one is stopped, does not get the run, and is not taken for the
// unit. And with nomad job stop -purge: nobody knows what became of it, and the lease
// runs out. Either run is tried again in a unit of its own.
func TestF17_AnAllocationIsTakenAway(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, expiring)
	wait, open := house.Gate(t)
	ids := []string{h.Submit(on("run " + wait)), h.Submit(on("run " + wait))}
	for _, id := range ids {
		h.Running(id)
	}
	if err := c.stopAlloc(fleet.UnitName(ids[0], 1)); err != nil {
		t.Fatal(err)
	}
	purged := fleet.UnitName(ids[1], 1)
	if _, _, err := c.Jobs().Deregister(purged, true, &api.WriteOptions{Namespace: c.ns}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		h.Until(id, "the second attempt runs", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt == 2 })
	}
	open()
	for _, id := range ids {
		if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 2 {
			t.Errorf("the run is %s, attempt %d, %+v; want it done at the second", run.Status, run.Attempt, run.Failure)
		}
	}
	// A job that others remove leaves its variable, with a token that is used up.
	if _, err := c.Variables().Delete("nomad/jobs/"+purged+"/unit/runner", &api.WriteOptions{Namespace: c.ns}); err != nil {
		t.Fatal(err)
	}
	c.empty(t)
}

// TestF18_AStopWithGrace: the run may end in the time that its runner drains, and is not
// tried again.
func TestF18_AStopWithGrace(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	id, open := waiting(t, h)
	if _, _, err := c.Jobs().Deregister(fleet.UnitName(id, 1), false, &api.WriteOptions{Namespace: c.ns}); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the runner drains", func() bool {
		for _, r := range h.Pool("cluster").Runners {
			if r.Status != nil && strings.Contains(r.Status.Text, "draining") {
				return true
			}
		}
		return false
	})
	open()
	house.Done(t, h.Settled(id))
	c.empty(t)
}

// TestP6_Cancel: of a run in its allocation, and of one that finds no client.
func TestP6_Cancel(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, patient)
	wait, _ := house.Gate(t)
	running := h.Submit(on("run " + wait))
	big := on("say hello")
	big.Case.Resources = &protocol.Resources{MemoryMB: 1 << 24}
	pending := h.Submit(big)
	h.Running(running)
	h.Blocked(pending, `unschedulable: Resources exhausted on`)
	h.Blocked(pending, `Dimension "memory" exhausted on`)
	for _, id := range []string{running, pending} {
		if _, err := h.Client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		house.Failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonCancelled)
	}
	c.empty(t)
}

// TestF9_APlaceThatIsNotThere: the run says what the cluster says, and ends.
func TestF9_APlaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, once, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		s.Constraints = []protocol.Constraint{{Attribute: "${meta.disk}", Operator: "=", Value: "floppy"}}
	})
	id := h.Submit(on("say hello"))
	h.Blocked(id, "${meta.disk} = floppy")
	house.Failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonUnschedulable, "${meta.disk} = floppy", "excluded by filter")
	c.empty(t)
}

// TestF14_ACredentialThatIsRefused: probe and placement name it, and a new value is
// taken without a restart.
func TestF14_ACredentialThatIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	const wrong = "00000000-0000-4000-8000-00000000dead"
	set := func(value string) {
		t.Helper()
		h.SetSecret("other-token", value)
	}
	set(wrong)
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "other", Version: "1.0.0", Addr: c.url, Image: made.runnerImage, Namespace: c.ns, AuthSecret: "other-token"})
	if p := h.Probe("other"); p.Reachable || p.Reason != protocol.ProbeAuth || !strings.Contains(p.Detail, "authSecret other-token") || strings.Contains(p.Detail, wrong) {
		t.Errorf("probe: %+v, want the credential by name", p)
	}
	// A token that may see jobs and make none is told from one that may.
	set(c.grant(t, `namespace "`+c.ns+`" { policy = "read" }`))
	if p := h.Probe("other"); p.Reachable || p.Reason != protocol.ProbeAuth || !strings.Contains(p.Detail, "it may not submit jobs in namespace "+c.ns) {
		t.Errorf("probe: %+v, want what is missing", p)
	}
	req := on("say hello")
	req.Runtime, req.Case.Resources = "other", nil
	id := h.Submit(req)
	h.Blocked(id, "refuses authSecret other-token")
	set(c.token)
	if p := h.Probe("other"); !p.Reachable || !strings.HasPrefix(p.Detail, "nomad 1.") {
		t.Errorf("probe with the good one: %+v", p)
	}
	house.Done(t, h.Settled(id))
	in, err := h.Client.InspectRuntime(context.Background(), "other", protocol.Latest)
	if err != nil || !in.Reachable || in.Nodes == nil || in.Nodes.Ready < 1 || in.Cluster.Namespace != c.ns {
		t.Errorf("inspect: %+v, %v; want the clients", in, err)
	}
	c.empty(t)
}

// TestP4_TheCoordinatorIsKilledWhileItLaunches: kill -9, three times, at the moments at
// which units are being made. Each run is done, and nothing is left.
func TestP4_TheCoordinatorIsKilledWhileItLaunches(t *testing.T) {
	t.Parallel()
	c := start(t)
	binary := filepath.Join(t.TempDir(), "everdict")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/everdict").CombinedOutput(); err != nil {
		t.Fatalf("build everdict: %v: %s", err, out)
	}
	address := house.FreeAddress(t)
	url := "http://" + address
	p := house.Coordinator(t, binary, address, append([]string{"--runner-url=" + url, "--nomad-host-network"}, house.LastingFlags...)...)
	h, err := client.New(client.Config{BaseURL: url, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator answers", func() bool {
		return h.SetSecret(ctx, "nomad-token", protocol.SecretRequest{Value: c.token}) == nil
	})
	three := 3
	doc, err := json.Marshal(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: c.url, Image: made.runnerImage,
		Namespace: c.ns, AuthSecret: "nomad-token", MaxConcurrent: &three})
	if err == nil {
		_, err = h.RegisterRuntime(ctx, doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 6 {
		req := on("say hello")
		req.Case.Resources = nil
		run, err := h.Submit(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.RunID)
	}
	var index uint64
	for range 3 {
		// The next change of a job is a launch, or half of one.
		_, meta, err := c.Jobs().List(&api.QueryOptions{Namespace: c.ns, WaitIndex: index, WaitTime: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		index = meta.LastIndex
		p.Kill()
		p.Start()
	}
	for _, id := range ids {
		var run *protocol.Run
		house.Eventually(t, id+" settles", func() bool {
			run, err = h.Run(ctx, id)
			return err == nil && run.Status.Terminal()
		})
		if run.Status != protocol.StatusSucceeded {
			t.Errorf("%s is %s, %+v; want it done (unit %s)", id, run.Status, run.Failure, fleet.UnitName(id, run.Attempt))
		}
	}
	c.empty(t)
}
