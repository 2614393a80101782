package nomad

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/e2e/nomad/standin"
	"github.com/everdict/everdict/protocol"
)

// keepsReady makes the runtime keep one allocation ready, of the size that on declares.
func keepsReady(_ *coordinator.Config, s *protocol.RuntimeSpec) {
	s.Warm, s.WarmSize = 1, &protocol.Resources{CPU: 50, MemoryMB: 64}
}

// ready are the units whose allocation runs, and which no run has.
func (c *cluster) ready(t *testing.T) (units []string) {
	t.Helper()
	jobs, _, err := c.Jobs().List(&api.QueryOptions{Namespace: c.ns})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if !strings.HasPrefix(j.ID, "everdict-standing-") || j.Stop {
			continue
		}
		if s := j.JobSummary; s != nil && s.Summary["unit"].Running == 1 {
			units = append(units, j.ID)
		}
	}
	return units
}

// oneReady waits until one allocation is ready that is not among others.
func (c *cluster) oneReady(t *testing.T, others ...string) string {
	t.Helper()
	var now []string
	house.Eventually(t, "one is ready", func() bool {
		now = c.ready(t)
		for _, other := range others {
			if len(now) == 1 && now[0] == other {
				return false
			}
		}
		return len(now) == 1
	})
	return now[0]
}

// keepsNothing registers a version of the runtime that keeps no allocation.
func (c *cluster) keepsNothing(t *testing.T, h *house.House) {
	t.Helper()
	perCore := 1000
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "2.0.0", Addr: c.url, Image: made.runnerImage, Namespace: c.ns,
		AuthSecret: "nomad-token", CPUMHzPerCore: &perCore})
	c.empty(t)
}

// TestAnAllocationThatIsKeptReady takes the run that comes, a restart of the coordinator
// does not end it, and another is made ready. A run of another size has its own.
func TestAnAllocationThatIsKeptReady(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, keepsReady)
	first := c.oneReady(t)
	h.Stop()
	h.Start()
	run := h.Settled(h.Submit(on("say hello")))
	house.Done(t, run)
	if run.Provenance.RunnerLabel != first {
		t.Errorf("the run was in %s, want what was ready, %s", run.Provenance.RunnerLabel, first)
	}
	second := c.oneReady(t, first)
	big := on("say hello")
	big.Case.Resources = &protocol.Resources{CPU: 50, MemoryMB: 80}
	id := h.Submit(big)
	run = h.Settled(id)
	house.Done(t, run)
	if run.Provenance.RunnerLabel != fleet.UnitName(id, 1) {
		t.Errorf("a run of another size was in %s, want one of its own", run.Provenance.RunnerLabel)
	}
	if now := c.ready(t); len(now) != 1 || now[0] != second {
		t.Errorf("ready is %v, want still %s", now, second)
	}
	c.keepsNothing(t, h)
}

// TestAnAllocationThatIsKeptReadyIsLost: the run that comes just then costs no attempt,
// whichever unit has it in the end: that which is told to end may finish it first.
func TestAnAllocationThatIsKeptReadyIsLost(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, keepsReady, once, func(c *coordinator.Config, _ *protocol.RuntimeSpec) {
		// The run may be offered to a runner that has just gone, and waits that long for it.
		c.Lease.StartAck, c.Timing.StartAck = 5*time.Second, 5*time.Second
	})
	if err := c.stopAlloc(c.oneReady(t)); err != nil {
		t.Fatal(err)
	}
	// What is given back by a runner that has not begun it is leased anew, which is no attempt of the one that it has.
	if run := h.Settled(h.Submit(on("say hello"))); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run is %s, attempt %d, %+v; want it done", run.Status, run.Attempt, run.Failure)
	}
	c.keepsNothing(t, h)
}

// TestAllocationsAreNotUsedAgain: what a job leaves in its allocation cannot be removed for
// certain, so that idleSeconds is refused.
func TestAllocationsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	spec := `{"kind":"nomad","id":"again","version":"1.0.0","addr":"` + c.url + `","image":"i","idleSeconds":60}`
	if _, err := h.Client.RegisterRuntime(t.Context(), []byte(spec)); err == nil || !strings.Contains(err.Error(), "cannot be removed for certain") {
		t.Errorf("idleSeconds: %v, want it refused with the reason", err)
	}
}

// TestStandin_TrustZones: under per-tenant a runtime that says nothing has its allocations
// in the workspace's namespace and under a hardened container runtime, and one that says
// otherwise is refused. What the stand-in runs under that name encloses as little as any
// other: that the task asks for it is what is tested.
func TestStandin_TrustZones(t *testing.T) {
	t.Parallel()
	const ns = "everdict-default"
	c := pretend(t, func(cfg *standin.Config) { cfg.Runtimes = map[string]string{"runsc": "runc"} })
	another := c.ns
	if _, err := c.Namespaces().Register(&api.Namespace{Name: ns}, nil); err != nil {
		t.Fatal(err)
	}
	zone := *c
	zone.ns, zone.token = ns, c.grant(t, policy(t, ns))
	h := launching(t, &zone, func(cfg *coordinator.Config, s *protocol.RuntimeSpec) {
		cfg.Launch.Isolation = fleet.Isolation{Mode: fleet.IsolationPerTenant}
		s.Namespace = ""
	})
	for _, change := range []func(*protocol.RuntimeSpec){
		func(s *protocol.RuntimeSpec) { s.Namespace = another },
		func(s *protocol.RuntimeSpec) { s.Runtime = "runc" },
		func(s *protocol.RuntimeSpec) { s.Image, s.Driver, s.Command = "", protocol.NomadRawExec, made.runner },
	} {
		spec := protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "loose", Version: "1.0.0", Addr: c.url, Image: made.runnerImage}
		change(&spec)
		doc, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Client.RegisterRuntime(t.Context(), doc); err == nil || !strings.Contains(err.Error(), "runtime loose does not meet this coordinator's trust zones") {
			t.Errorf("register %s: %v, want it refused by name", doc, err)
		}
	}
	id, open := waiting(t, h)
	j, _, err := c.Jobs().Info(fleet.UnitName(id, 1), &api.QueryOptions{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	if got := j.TaskGroups[0].Tasks[0].Config["runtime"]; got != "runsc" {
		t.Errorf("the task's container runtime is %v, want runsc", got)
	}
	open()
	house.Done(t, h.Settled(id))
	zone.empty(t)
}
