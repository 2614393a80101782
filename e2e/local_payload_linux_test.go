package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// secluded is a house whose units on this machine are given their runs, and never find the
// coordinator.
func secluded(t *testing.T) *house.House {
	t.Helper()
	work, err := os.MkdirTemp("", "units-") // as short as it can be: there are sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	h := house.New(t, house.Quick, func(c *coordinator.Config) {
		c.Launch = coordinator.Launch{Deliver: 200 * time.Millisecond, Grace: time.Second, PendingTimeout: 5 * time.Second, Machine: &coordinator.Machine{
			URL: "http://127.0.0.1:1", WorkDir: work, Keeper: []string{binary(t), "unit-keeper"}, Runner: []string{jobRunner(t)}, Drain: time.Second,
		}}
	})
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "here", Version: "1.0.0", Payload: true})
	return h
}

// noUnitLeft waits until nothing of its units is in a house's data directory.
func noUnitLeft(t *testing.T, h *house.House) {
	t.Helper()
	house.Eventually(t, "no unit is left", func() bool {
		left, err := filepath.Glob(filepath.Join(h.Config.DataDir, "units", "*", "*"))
		return err == nil && len(left) == 0
	})
}

// TestP4_APayloadInAUnitOfThisMachine: a run is carried out by a unit that never reaches the
// coordinator, while that is silent for longer than any lease and is restarted; nobody else
// gets it, the job does not find the payload, and the result is the one in the output.
func TestP4_APayloadInAUnitOfThisMachine(t *testing.T) {
	t.Parallel()
	h := secluded(t)
	gate := filepath.Join(t.TempDir(), "gate")
	id := h.Submit(seen("run ls -A "+h.Config.DataDir+" > listed; env > env\n"+waiting(gate), `[ -e listed ] && [ ! -s listed ] && ! grep -E "EVERDICT_(PAYLOAD|HIDE|RUNNER|API)" env`))
	unit := fleet.UnitName(id, 1)
	house.Eventually(t, "its runner has taken the payload", func() bool {
		dirs, err := filepath.Glob(filepath.Join(h.Config.DataDir, "units", "*", unit))
		if err != nil || len(dirs) != 1 {
			return false
		}
		_, running := os.Stat(filepath.Join(dirs[0], "keeper.json"))
		_, there := os.Stat(filepath.Join(dirs[0], "payload.json"))
		return running == nil && os.IsNotExist(there)
	})
	if err := h.Client.TakeBack(t.Context(), id); err == nil {
		t.Error("the payload of a unit that is at work was taken back")
	}
	until := time.Now().Add(2 * h.Config.Lease.TTL)
	h.Stop()
	h.Start()
	h.Until(id, "its lease is older than any that nobody renews", func(r protocol.Run) bool {
		if r.Status != protocol.StatusRunning || r.Attempt != 1 {
			t.Fatalf("the run is %s, attempt %d, %+v; want it running", r.Status, r.Attempt, r.Failure)
		}
		return time.Now().After(until)
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := h.Settled(id)
	house.Done(t, run)
	if run.Verdict == nil || !*run.Verdict || run.Provenance.RunnerLabel != unit {
		t.Errorf("verdict %v of %+v by %s; want it passed in its unit", run.Verdict, run.Scores, run.Provenance.RunnerLabel)
	}
	noUnitLeft(t, h)
}

// TestP6_APayloadInAUnitIsCancelled: the run is over at once, and its unit is ended.
func TestP6_APayloadInAUnitIsCancelled(t *testing.T) {
	t.Parallel()
	h := secluded(t)
	id := h.Submit(here("run sleep 600"))
	h.Running(id)
	if _, err := h.Client.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	house.Failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonCancelled)
	noUnitLeft(t, h)
}

// TestP12_NoSecretInTheUnitOfAPayload: a harness that names secrets is refused at submit
// where its units are given payloads, and a runtime that would not give them is unaffected.
func TestP12_NoSecretInTheUnitOfAPayload(t *testing.T) {
	t.Parallel()
	h := secluded(t)
	h.SetSecret("MODEL_KEY", "value")
	spec := `{"kind":"command","id":"keyed","version":"1.0.0","env":{"KEY":{"secretRef":"MODEL_KEY"}},"command":"true"}`
	if _, err := h.Client.RegisterHarness(t.Context(), json.RawMessage(spec)); err != nil {
		t.Fatal(err)
	}
	req := here("say hello")
	req.Harness = protocol.HarnessRef{ID: "keyed"}
	_, err := h.Client.Submit(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), "names secrets, which the runners of a runtime with payload are not given: MODEL_KEY") {
		t.Errorf("submitted: %v, want it refused with the secret's name", err)
	}
	h.Register(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "here", Version: "1.0.1"})
	if _, err := h.Client.Submit(t.Context(), req); err != nil {
		t.Errorf("to a runtime without payload: %v", err)
	}
}
