package run

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestAutoDoesNotWaitForABusyMachine: a run without a runtime goes to a machine that is free,
// else to the launched runtime that has room and the fewest runs, and waits for a machine
// that is there only where none of those has room.
func TestAutoDoesNotWaitForABusyMachine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := 1
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "a", MaxConcurrent: &one})
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "b"})
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "nobodys"})
		w.s.OnLaunch(launcher{unknown: "nobodys"})
		goes := func(when, pool string, words ...string) {
			t.Helper()
			run, err := w.s.Submit(t.Context(), ann, request("", repo))
			if err != nil || run.Placement.Pool != pool || strings.Contains(run.Placement.Why, "nobodys") {
				t.Fatalf("%s, a run without a runtime: %v, %s; want it in pool %q", when, err, dump(run.Placement), pool)
			}
			contains(t, "why it went there "+when, run.Placement.Why, words...)
		}
		auto, a, b := autoPool("default", "ann").String(), RuntimePool("default", "a").String(), RuntimePool("default", "b").String()

		laptop := w.online(w.pair("ann", "laptop"), protocol.CapGit)
		leased := make(chan error, 1)
		pull := func(h Holder) {
			r := w.leaseRunner(h)
			r.MemoryMB = 1000
			go func() {
				_, err := w.q.Pull(t.Context(), lease.PullRequest{RequestID: "of " + h.Runner.Label, Runner: r})
				leased <- err
			}()
			synctest.Wait()
		}
		pull(laptop)
		goes("with a free machine", auto, "any pool of the workspace that can run it")
		if err := <-leased; err != nil {
			t.Fatalf("the free machine did not take it: %v", err)
		}

		w.s.OnLaunch(launcher{unknown: "nobodys", says: "cannot see the cluster", of: "a"})
		goes("with a busy machine, and a away", b, "no runner that could take it is free: runtime b launches one")
		w.s.OnLaunch(launcher{unknown: "nobodys"})
		goes("with a run in b", a, "runtime a launches one, of a, b the one with the fewest runs")
		goes("with a full", b, "runtime b launches one")
		goes("with a full", b)
		w.s.OnLaunch(launcher{unknown: "nobodys", says: "cannot see the cluster"})
		goes("with no room anywhere", auto)

		// A machine that is free, and too small for one run.
		desk := w.online(w.pair("ann", "desk"), protocol.CapGit)
		pull(desk)
		if err := <-leased; err != nil { // the run that waited
			t.Fatal(err)
		}
		w.s.OnLaunch(launcher{unknown: "nobodys"})
		other := w.online(w.pair("ann", "other"), protocol.CapGit)
		pull(other)
		large := func(r *protocol.RunRequest) { r.Case.Resources = &protocol.Resources{MemoryMB: 1001} }
		run, err := w.s.Submit(t.Context(), ann, request("", large))
		if err != nil || run.Placement.Pool != b {
			t.Errorf("a run that is too large for the free machine: %v, %s; want it in pool %q", err, dump(run.Placement), b)
		}
		goes("with a machine that is free", auto)
		if err := <-leased; err != nil {
			t.Fatal(err)
		}
	})
}
