package nomad

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// change adapts a house and its runtime before they start.
type change func(*coordinator.Config, *protocol.RuntimeSpec)

// launching is a house that launches on a cluster, with the runtime "cluster".
func launching(t *testing.T, c *cluster, changes ...change) *house.House {
	t.Helper()
	h := &house.House{T: t, Address: house.FreeAddress(t), Config: coordinator.Config{DataDir: t.TempDir(), Version: "test", Log: house.Log(t, "coordinator")}}
	house.Lasting(&h.Config)
	h.Config.Lease.StartAck, h.Config.Timing.StartAck = 20*time.Second, 20*time.Second // a runner may have a twentieth of a core
	h.Config.Launch = coordinator.Launch{URL: h.URL(), NomadHostNetwork: true, Grace: 2 * time.Second, PendingTimeout: 5 * time.Second}
	perCore := 1000
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.0", Addr: c.url, Image: made.runnerImage, Namespace: c.ns,
		AuthSecret: "nomad-token", CPUMHzPerCore: &perCore}
	for _, f := range changes {
		f(&h.Config, &spec)
	}
	h.Start()
	t.Cleanup(h.Stop)
	h.SetSecret("nomad-token", c.token)
	h.Register(spec)
	return h
}

// on is a run of the scripted agent on the cluster.
func on(script string) *protocol.RunRequest {
	r := house.Scripted(script)
	r.Runtime = "cluster"
	r.Case.Resources = &protocol.Resources{CPU: 50, MemoryMB: 64}
	return r
}

// once makes the first attempt the last.
func once(c *coordinator.Config, _ *protocol.RuntimeSpec) { c.Lease.MaxAttempts = 1 }

// expiring lets leases run out within seconds.
func expiring(c *coordinator.Config, _ *protocol.RuntimeSpec) {
	c.Lease.TTL, c.Timing.LeaseTTL = 6*time.Second, 6*time.Second
}

// patient waits for a place as long as a test may take.
func patient(c *coordinator.Config, _ *protocol.RuntimeSpec) {
	c.Launch.PendingTimeout = 5 * time.Minute
}

// waiting is a run that runs until open is called.
func waiting(t *testing.T, h *house.House) (id string, open func()) {
	t.Helper()
	wait, open := house.Gate(t)
	id = h.Submit(on("run " + wait))
	h.Running(id)
	return id, open
}

// TestP12_ARunOnTheCluster: it succeeds in an allocation of its own, with evidence. The
// job is given what the case declares and no credential, and the token cannot be read
// from what the cluster shows of it.
func TestP12_ARunOnTheCluster(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	wait, open := house.Gate(t)
	id := h.Submit(on("say hello from an allocation\nrun cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; id -u; env; " + wait))
	h.Running(id)
	unit := fleet.UnitName(id, 1)
	checkJob(t, c, unit)
	open()
	run := h.Settled(id)
	house.Done(t, run)
	if run.Placement.Runtime == nil || run.Placement.Runtime.ID != "cluster" || run.Provenance.RunnerLabel != unit {
		t.Errorf("placement %+v, provenance %+v; want the runtime and the unit", run.Placement, run.Provenance)
	}
	log := h.RawLog(id)
	for _, want := range []string{"67108864", "20250"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: want the declared memory as the limit, and a user that is not root:\n%s", want, log)
		}
	}
	for _, secret := range []string{protocol.JoinTokenPrefix, protocol.RunnerTokenPrefix, c.token, "NOMAD_"} {
		if strings.Contains(log, secret) {
			t.Errorf("the job's environment has %s...:\n%s", secret, log)
		}
	}
	c.empty(t)
}

// checkJob reads what the cluster shows of a unit, which is everybody's who may read
// jobs.
func checkJob(t *testing.T, c *cluster, unit string) {
	t.Helper()
	q := &api.QueryOptions{Namespace: c.ns}
	j, _, err := c.Jobs().Info(unit, q)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{protocol.JoinTokenPrefix, protocol.RunnerTokenPrefix, c.token} {
		if strings.Contains(string(doc), secret) {
			t.Errorf("the job shows %s...", secret)
		}
	}
	g := j.TaskGroups[0]
	if *g.RestartPolicy.Attempts != 0 || *g.ReschedulePolicy.Attempts != 0 || *g.ReschedulePolicy.Unlimited || *g.Disconnect.Replace {
		t.Errorf("the cluster may run it again: %+v %+v %+v", g.RestartPolicy, g.ReschedulePolicy, g.Disconnect)
	}
	if r := g.Tasks[0].Resources; *r.CPU != 50 || *r.MemoryMB != 64 {
		t.Errorf("resources %+v, want 50 MHz (0.05 of a core of 1,000) and 64 MiB", r)
	}
	v, _, err := c.Variables().Read("nomad/jobs/"+unit+"/unit/runner", q)
	if err != nil || !strings.HasPrefix(v.Items["token"], protocol.JoinTokenPrefix) {
		t.Errorf("the unit's variable is %+v, %v; want its token there", v, err)
	}
}

// TestARunAsAProcess: the runner's program is on the client, and needs no container.
func TestARunAsAProcess(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		s.Driver, s.Command, s.Image = protocol.NomadRawExec, made.runner, ""
	})
	req := on("run env")
	req.Case.Resources = nil
	id := h.Submit(req)
	house.Done(t, h.Settled(id))
	if log := h.RawLog(id); strings.Contains(log, "NOMAD_") || strings.Contains(log, "EVERDICT_API_URL") {
		t.Errorf("the job has the runner's variables:\n%s", log)
	}
	c.empty(t)
}

// TestTheImageOfACase: the runner is brought into it.
func TestTheImageOfACase(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c)
	req := on("run ls /usr/local/bin/job-runner || echo in another image")
	req.Case.Image = caseImage
	id := h.Submit(req)
	house.Done(t, h.Settled(id))
	if log := h.RawLog(id); !strings.Contains(log, "in another image") {
		t.Errorf("log %q", log)
	}
	c.empty(t)
}

// TestTheLimitHolds: a pool of two never has three allocations, as the cluster's own
// events have it; whoever waits is told so, and all runs are done.
func TestTheLimitHolds(t *testing.T) {
	t.Parallel()
	c := start(t)
	most := c.mostAtATime(t)
	h := launching(t, c, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		two := 2
		s.MaxConcurrent = &two
	})
	wait, open := house.Gate(t)
	var ids []string
	for range 5 {
		ids = append(ids, h.Submit(on("run "+wait)))
	}
	h.Running(ids[0])
	h.Running(ids[1])
	h.Blocked(ids[4], "waits for a slot: 2 of 2 in use")
	open()
	for _, id := range ids {
		house.Done(t, h.Settled(id))
	}
	if n := most(); n != 2 {
		t.Errorf("at most %d allocations ran at a time, want 2", n)
	}
	c.empty(t)
}

// mostAtATime follows the cluster's events until what it returns is called, which is how
// many allocations of the namespace ran at a time at most.
func (c *cluster) mostAtATime(t *testing.T) func() int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	events, err := c.EventStream().Stream(ctx, map[api.Topic][]string{api.TopicAllocation: {"*"}}, 0, &api.QueryOptions{Namespace: c.ns})
	if err != nil {
		t.Fatal(err)
	}
	running, most := map[string]bool{}, 0
	var following sync.WaitGroup
	following.Go(func() {
		for batch := range events {
			for i := range batch.Events {
				a, err := batch.Events[i].Allocation()
				if err != nil {
					t.Errorf("read an event: %v", err)
					return
				}
				delete(running, a.ID)
				if a.ClientStatus == api.AllocClientStatusRunning {
					running[a.ID] = true
				}
				most = max(most, len(running))
			}
		}
	})
	return func() int {
		stop()
		following.Wait()
		return most
	}
}

// TestP4_TheCoordinatorIsRestarted: a run in its allocation does not notice, one that
// waits is launched by the next life, and no unit is made twice.
func TestP4_TheCoordinatorIsRestarted(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		one := 1
		s.MaxConcurrent = &one
	})
	wait, open := house.Gate(t)
	first, second := h.Submit(on("run "+wait)), h.Submit(on("run "+wait))
	h.Running(first)
	h.Stop()
	h.Start()
	h.Until(first, "it runs on", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning })
	h.Blocked(second, "waits for a slot: 1 of 1 in use")
	open()
	for _, id := range []string{first, second} {
		house.Done(t, h.Settled(id))
	}
	c.empty(t)
}

// untaken is a run whose coordinator is away when it ends, and whose allocation does not
// wait for it: the result is in its output.
func untaken(t *testing.T, c *cluster) (*house.House, string) {
	t.Helper()
	// What runs is lost only if nobody looks at the cluster within the lease.
	h := launching(t, c, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = made.impatientImage })
	id, open := waiting(t, h)
	h.Stop()
	open()
	house.Eventually(t, "the allocation has ended", func() bool {
		all, err := c.allocs(fleet.UnitName(id, 1))
		return err == nil && len(all) == 1 && all[0].ClientStatus != api.AllocClientStatusRunning
	})
	return h, id
}

// TestP5_AResultThatNobodyTook is taken from the output, after the sentinel, when the
// coordinator is back.
func TestP5_AResultThatNobodyTook(t *testing.T) {
	t.Parallel()
	c := start(t)
	h, id := untaken(t, c)
	h.Start()
	house.Done(t, h.Settled(id))
	c.empty(t)
}
