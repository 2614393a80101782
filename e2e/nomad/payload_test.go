package nomad

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// payloads makes the runtime one whose runners are given their runs.
func payloads(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Payload = true }

// unreachable is that, where no runner finds the coordinator.
func unreachable(c *coordinator.Config, s *protocol.RuntimeSpec) {
	s.Payload = true
	c.Launch.URL, c.Launch.Deliver = "http://127.0.0.1:1", time.Second
}

// asProcess runs the runner's program on the client.
func asProcess(_ *coordinator.Config, s *protocol.RuntimeSpec) {
	s.Driver, s.Command, s.Image = protocol.NomadRawExec, made.runner, ""
}

// TestP12_APayloadInAnAllocation: a run is carried out where its runner never reaches the
// coordinator, and its result is the one in the output. While it runs, neither the cluster
// nor the job finds the payload.
func TestP12_APayloadInAnAllocation(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]change{"docker": func(*coordinator.Config, *protocol.RuntimeSpec) {}, "raw_exec": asProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			h := launching(t, c, unreachable, how)
			wait, open := house.Gate(t)
			var found atomic.Bool
			tell := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { found.Store(true) }))
			defer tell.Close()
			req := on("run if env | grep -E 'EVERDICT_(PAYLOAD|API)|NOMAD_' || [ -e /secrets/everdict-token ] || [ -e /secrets/everdict-payload ] || [ -e /alloc/everdict-payload ]; then " +
				"wget -q -O /dev/null " + tell.URL + "; fi; " + wait)
			if name == "raw_exec" {
				req.Case.Resources = nil
			}
			id := h.Submit(req)
			unit := fleet.UnitName(id, 1)
			c.forgotten(t, unit)
			j, _, err := c.Jobs().Info(unit, &api.QueryOptions{Namespace: c.ns})
			if err != nil {
				t.Fatal(err)
			}
			if doc, err := json.Marshal(j); err != nil || strings.Contains(string(doc), protocol.RunnerTokenPrefix) || strings.Contains(string(doc), "EVERDICT_(PAYLOAD") {
				t.Errorf("the job shows the payload, %v:\n%s", err, doc)
			}
			open()
			run := h.Settled(id)
			house.Done(t, run)
			if run.Provenance.RunnerLabel != unit || found.Load() {
				t.Errorf("it was run by %s, want its unit; the job found what is not its own: %v", run.Provenance.RunnerLabel, found.Load())
			}
			c.empty(t)
		})
	}
}

// TestAPayloadThatIsTooLargeForAVariable fails before anything is launched.
func TestAPayloadThatIsTooLargeForAVariable(t *testing.T) {
	t.Parallel()
	c := start(t)
	h := launching(t, c, unreachable)
	req := on("say hello")
	req.Case.Task = strings.Repeat("long ", 14<<10)
	house.Failed(t, h.Settled(h.Submit(req)), protocol.ClassConfig, protocol.ReasonStart, "a variable of Nomad holds")
	c.empty(t)
}

// forgotten waits until the only allocation of a unit has begun and the cluster has the
// payload no more. (Before it was made, the cluster has none either.)
func (c *cluster) forgotten(t *testing.T, unit string) (first *api.AllocationListStub) {
	t.Helper()
	house.Eventually(t, "the cluster has forgotten the payload of what runs", func() bool {
		all, err := c.allocs(unit)
		if err != nil || len(all) != 1 || all[0].TaskStates["runner"] == nil || all[0].TaskStates["runner"].StartedAt.IsZero() {
			return false
		}
		first = all[0]
		vars, _, err := c.Variables().PrefixList("nomad/jobs/"+unit, &api.QueryOptions{Namespace: c.ns})
		return err == nil && len(vars) == 0
	})
	return first
}

// TestStandin_P3_APayloadUnitIsStartedTwice: what an older Nomad starts in place of a lost
// client's allocation finds no payload and runs nothing; the first goes on with the run.
func TestStandin_P3_APayloadUnitIsStartedTwice(t *testing.T) {
	t.Parallel()
	c := pretend(t, two, old)
	h := launching(t, c, payloads)
	id, open := waiting(t, h)
	unit := fleet.UnitName(id, 1)
	first := c.forgotten(t, unit).NodeName
	c.standin.Lose(first)
	house.Eventually(t, "there is a second allocation", func() bool {
		all, err := c.allocs(unit)
		return err == nil && slices.ContainsFunc(all, func(a *api.AllocationListStub) bool { return a.NodeName != first })
	})
	if run := h.Run(id); run.Status != protocol.StatusRunning || run.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d, %+v; want it to go on", run.Status, run.Attempt, run.Failure)
	}
	open()
	house.Done(t, h.Settled(id))
	all, err := c.allocs(unit)
	for _, a := range all {
		if s := a.TaskStates["runner"]; err != nil || a.NodeName != first && s != nil && !s.StartedAt.IsZero() {
			t.Errorf("the runner of the second allocation has begun: %+v, %v", s, err)
		}
	}
	c.standin.Find(first)
	c.empty(t)
}

// TestAVersionAtABadAddress: what runs where the version before it was is looked after all the
// same: a result is taken, and what is not wanted any more is removed.
func TestAVersionAtABadAddress(t *testing.T) {
	t.Parallel()
	c := start(t)
	var spec protocol.RuntimeSpec
	h := launching(t, c, patient, unreachable, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { spec = *s })
	wait, open := house.Gate(t)
	id, cancelled := h.Submit(on("run "+wait)), h.Submit(on("run "+wait))
	c.forgotten(t, fleet.UnitName(id, 1))
	c.forgotten(t, fleet.UnitName(cancelled, 1))
	spec.Version, spec.Addr = "2.0.0", "http://127.0.0.1:9"
	h.Register(spec)
	if _, err := h.Client.Cancel(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	open()
	house.Done(t, h.Settled(id))
	c.empty(t)
}
