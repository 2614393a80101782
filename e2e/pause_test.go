package e2e

import (
	"slices"
	"sync"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// witness remembers what a runner says of itself.
type witness struct {
	mu     sync.Mutex
	events []agent.Event
}

func (w *witness) observe(e agent.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// saw waits for an event.
func (w *witness) saw(t *testing.T, what string, is func(agent.Event) bool) {
	t.Helper()
	house.Eventually(t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.events, is)
	})
}

// heldStill is whether a runner says that it holds an attempt of a run still.
func heldStill(run string) func(agent.Event) bool {
	return func(e agent.Event) bool {
		held, ok := e.(agent.AttemptHeld)
		return ok && held.Run == run && held.Held
	}
}

// A paused runner keeps its session and takes nothing; what ran is not touched. The observer hears each step.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	var w witness
	r := h.Runner("mine", func(c *agent.Config) { c.Slots, c.Observe, c.Paused = 2, w.observe, "not yet" })
	w.saw(t, "a session", func(e agent.Event) bool { up, ok := e.(agent.SessionUp); return ok && up.Runner == r.ID })
	req := house.Scripted("print 2 lines\nhang")
	req.Runtime = r.Target
	id := h.Submit(req)
	h.Blocked(id, "not yet")
	r.Agent().Resume()
	h.Running(id)
	w.saw(t, "the attempt in its phase run", func(e agent.Event) bool {
		p, ok := e.(agent.AttemptPhase)
		return ok && p.Run == id && p.Phase == executor.PhaseRun
	})
	r.Agent().Pause("lunch")
	second := house.Scripted("say hello")
	second.Runtime = r.Target
	other := h.Submit(second)
	h.Blocked(other, "lunch")
	if run := h.Run(id); run.Status != protocol.StatusRunning {
		t.Errorf("the run that was there is %s after a pause", run.Status)
	}
	r.Agent().StopNow("enough")
	w.saw(t, "the attempt's end", func(e agent.Event) bool {
		end, ok := e.(agent.AttemptEnded)
		return ok && end.Run == id && end.Stopped != nil && end.Stopped.Reason == executor.StopPaused && end.Result.Failure != nil
	})
	h.Until(id, "it is back in the queue", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
	if n := r.Agent().Taken(); n != 1 {
		t.Errorf("the paused runner has taken %d attempts, want 1", n)
	}
	if _, err := h.Client.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	r.Agent().Resume()
	if run := h.Settled(other); run.Status != protocol.StatusSucceeded {
		t.Errorf("after the resume the other run is %s", run.Status)
	}
}

// A runner that takes one person's runs refuses another's, whatever the coordinator thinks.
func TestRunnerRefusesOthersRuns(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	var w witness
	r := h.Runner("hers", func(c *agent.Config) { c.OnlyFor, c.Observe = "somebody-else", w.observe })
	req := house.Scripted("say hello")
	req.Runtime = r.Target
	id := h.Submit(req)
	w.saw(t, "the refusal", func(e agent.Event) bool { d, ok := e.(agent.Degraded); return ok && d.Why != "" })
	if run := h.Run(id); run.Status != protocol.StatusQueued || r.Agent().Taken() != 0 {
		t.Errorf("the run is %s, %d attempts were begun", run.Status, r.Agent().Taken())
	}
}
