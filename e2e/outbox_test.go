package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestP5_ResultOutlivesItsRunner: a runner ends, at once or in order, with a result in its
// outbox that the network did not let through. Its next start holds the lease until the
// coordinator has that result: the job is not run again.
func TestP5_ResultOutlivesItsRunner(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*house.Process){
		"killed":     (*house.Process).Kill,
		"terminated": func(p *house.Process) { p.Terminate() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := house.New(t, house.Steady)
			proxy := h.Proxy()
			state, effects := t.TempDir(), filepath.Join(t.TempDir(), "effects")
			r := house.RunnerProcess(t, binary(t), proxy.URL(), h.Pair("laptop", "git").Token, "--state-dir="+state)
			wait, open := house.Gate(t)
			id := h.Submit(house.Scripted("run " + wait + "; echo worked >> " + effects))
			h.Running(id)
			proxy.Hold()
			open()
			result := filepath.Join(state, "outbox", id+".1", "result.json")
			house.Eventually(t, "the result lies in the outbox", func() bool { return size(result) > 0 })
			end(r)
			if size(result) == 0 {
				t.Fatal("the runner has ended, and there is no result in its outbox any more")
			}
			proxy.Cut()
			proxy.Release()
			r.Start()

			run := h.Settled(id)
			if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
				t.Errorf("run: got %s at attempt %d (%+v), want succeeded at attempt 1", run.Status, run.Attempt, run.Failure)
			}
			if b, err := os.ReadFile(effects); err != nil || string(b) != "worked\n" {
				t.Errorf("the job has left %q, %v; want that it ran once", b, err)
			}
			attempts, err := h.Client.Attempts(context.Background(), id)
			if err != nil || len(attempts) != 1 {
				t.Errorf("attempts: %+v, %v; want one", attempts, err)
			}
			if got := kinds(t, h, id); strings.Count(got, protocol.RunSettled) != 1 || strings.Contains(got, protocol.RunRequeued) {
				t.Errorf("events: %s; want that the run was settled once and never queued again", got)
			}
		})
	}
}
