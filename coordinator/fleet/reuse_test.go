package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// ready are the units that were launched without a job.
func (w *world) ready() []string {
	return slices.DeleteFunc(w.units(), func(name string) bool { return !strings.HasPrefix(name, "everdict-standing-") })
}

func (w *world) wantReady(what string, n int) []string {
	w.t.Helper()
	ready := w.ready()
	if len(ready) != n {
		w.t.Errorf("%s: %q were launched without a job, want %d", what, ready, n)
	}
	return ready
}

func (w *world) wantNothingTold() {
	w.t.Helper()
	if told := w.told(&w.unplaced); len(told) > 0 {
		w.t.Errorf("told %+v, want no attempt ended", told)
	}
}

// Units that are kept ready count as others do, take what is of their size, and are
// replaced as far as there is room.
func TestWarm(t *testing.T) {
	spec := protocol.RuntimeSpec{Warm: 2, WarmSize: &protocol.Resources{CPU: 100, MemoryMB: 64}}
	inWorldOf(t, lease.Limit{MaxConcurrent: 3}, spec, func(_ *testing.T, w *world) {
		before := w.wantReady("at the start", 2)
		w.submit(fleet.Needs{CPU: 100, MemoryMB: 64}, "run_a", "run_b")
		w.wantReady("each takes one, and there is room for one more", 3)
		a, b := w.boundTo("run_a"), w.boundTo("run_b")
		if a == b || !slices.Contains(before, a) || !slices.Contains(before, b) {
			w.t.Errorf("the runs were given to %q and %q, want the two that were ready: %q", a, b, before)
		}
		w.wantWhy("run_a", "unit "+a+" is running")
		w.takenBy("run_a", a)
		w.takenBy("run_b", b)
		w.wantReady("they are held", 3)
		w.move("run_a", settled)
		w.cluster.Exit(a)
		w.pass(grace + time.Second)
		ready := w.wantReady("it takes one job, and another is made ready", 3)
		if slices.Contains(ready, a) {
			w.t.Errorf("%s is there yet", a)
		}
		w.wantNothingTold()
	})
}

// Runs that do not fit what is ready have its place.
func TestWarmGivesWay(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 2}, protocol.RuntimeSpec{Warm: 2}, func(_ *testing.T, w *world) {
		w.wantReady("at the start", 2)
		w.submit(fleet.Needs{MemoryMB: 64}, "run_a")
		w.pass(time.Second)
		w.wantReady("one had to go", 1)
		if units := w.units(); !slices.Contains(units, unit("run_a", 1)) || len(units) != 2 {
			w.t.Errorf("units %q, want that of the run and one that is ready", units)
		}
		w.taken("run_a")
		w.move("run_a", settled)
		w.pass(grace + time.Second)
		w.wantReady("there is room again", 2)
		w.spec.Warm = 1
		w.version("2.0.0")
		w.pass(grace + time.Second)
		w.wantReady("a version that wants fewer", 1)
	})
}

func TestWarmGivesItsMemory(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 5, MemoryMB: 100}, protocol.RuntimeSpec{Warm: 1, WarmSize: &protocol.Resources{MemoryMB: 64}}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{MemoryMB: 50}, "run_a")
		w.pass(time.Second)
		w.wantUnits("memory is what is short", unit("run_a", 1))
		w.wantWhy("run_a", "is running")
	})
}

// Warm units give way to jobs that they keep out, and to no others.
func TestWarmGivesWayNotInVain(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 3, CPU: 2000}, protocol.RuntimeSpec{Warm: 2}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{CPU: 3000}, "run_never")
		w.pass(time.Minute)
		w.wantReady("a job that never fits", 2)
		w.wantWhy("run_never", "waits for CPU: 0 of 2 cores in use and the run declares 3")
		w.submit(fleet.Needs{CPU: 1500}, "run_a")
		w.taken("run_a")
		w.submit(fleet.Needs{CPU: 1000}, "run_b")
		w.pass(time.Minute)
		w.wantReady("they hold no CPU", 2)
		w.move("run_a", settled)
		w.pass(time.Minute)
		w.wantWhy("run_b", "is running")
		w.wantReady("there are three slots", 2)
	})
}

// A runner that waits after its job takes another of the same size, and only that.
func TestReuse(t *testing.T) {
	spec := protocol.RuntimeSpec{IdleSeconds: 60}
	inWorldOf(t, lease.Limit{MaxConcurrent: 6}, spec, func(t *testing.T, w *world) {
		small := fleet.Needs{MemoryMB: 64}
		w.submit(small, "run_a")
		w.taken("run_a")
		a := unit("run_a", 1)
		w.submit(small, "run_b")
		w.wantUnits("whoever is busy takes no other", a, unit("run_b", 1))
		w.move("run_a", settled)
		w.pass(2 * grace)
		w.wantUnits("it waits", a, unit("run_b", 1))
		for name, other := range map[string]fleet.Needs{
			"run_less": {MemoryMB: 63}, "run_image": {MemoryMB: 64, Image: "other"}, "run_long": {MemoryMB: 64, Deadline: 100 * time.Hour},
			"run_closed": {MemoryMB: 64, Network: protocol.NetworkNone},
		} {
			w.submit(other, name)
			if got := w.boundTo(name); got != "" {
				t.Errorf("%s, which needs %+v, was given to %s", name, other, got)
			}
			w.move(name, settled)
			w.pass(grace + time.Second)
		}
		w.submit(small, "run_c")
		if got := w.boundTo("run_c"); got != a {
			t.Errorf("run_c was given to %q, want %s", got, a)
			return
		}
		w.takenBy("run_c", a)
		w.cluster.Say(a, &fleet.Trouble{Cause: fleet.CauseOOM, Message: "OOMKilled", Final: true, Dead: true})
		w.pass(time.Second)
		if ended := w.told(&w.ended); len(ended) != 1 || ended[0].run != "run_c" || ended[0].attempt != 1 {
			t.Errorf("ended %+v, want the run that it has, not the one that it had", ended)
		}
		w.pass(grace)
		w.wantUnits("it is gone, and one of another size waits", unit("run_b", 1), unit("run_less", 1))
		w.wantNothingTold()
	})
}

// A unit that is given a job and does not come to take it costs the job no attempt.
func TestAUnitThatDoesNotTakeItsJob(t *testing.T) {
	for name, act := range map[string]func(w *world, unit string){
		"it ends":          func(w *world, unit string) { w.cluster.Exit(unit); w.pass(time.Second) },
		"it vanishes":      func(w *world, unit string) { w.cluster.Vanish(unit); w.pass(time.Second) },
		"it is taken away": func(w *world, unit string) { w.cluster.Evict(unit); w.pass(time.Second) },
		"it hangs":         func(w *world, _ string) { w.pass(31 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, lease.Limit{MaxConcurrent: 2}, protocol.RuntimeSpec{Warm: 1}, func(t *testing.T, w *world) {
				w.submit(fleet.Needs{}, "run_a")
				w.pass(time.Second)
				given := w.boundTo("run_a")
				act(w, given)
				w.pass(grace + time.Second)
				if slices.Contains(w.units(), given) {
					t.Errorf("%s is there yet", given)
				}
				other := w.boundTo("run_a")
				if own := slices.Contains(w.units(), unit("run_a", 1)); !own && other == "" || other == given {
					t.Errorf("run_a was given to %q, units %q; want another unit than %s", other, w.units(), given)
				}
				w.wantNothingTold()
			})
		})
	}
}

func TestStandingUnitsAfterARestart(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 4}, protocol.RuntimeSpec{Warm: 2, IdleSeconds: 60}, func(t *testing.T, w *world) {
		before := w.wantReady("at the start", 2)
		w.submit(fleet.Needs{}, "run_a")
		a := w.boundTo("run_a")
		w.takenBy("run_a", a)
		w.pass(time.Second)
		n := w.cluster.Launches()
		w.stop()
		w.begin()
		w.pass(grace + time.Second)
		if !slices.Contains(w.units(), before[0]) || !slices.Contains(w.units(), before[1]) || w.cluster.Launches() != n {
			t.Errorf("units %q of %d that were ever made; want what was there before: %q of %d", w.units(), w.cluster.Launches(), before, n)
		}
		w.spec.Image = "another:2"
		w.version("2.0.0")
		w.pass(2*grace + time.Second)
		for _, name := range before {
			if slices.Contains(w.units(), name) != (name == a) {
				t.Errorf("units %q; want of the version before only the one that has a run, %s", w.units(), a)
			}
		}
		w.wantReady("those of the new version", 3)
	})
}

// What cannot be made ready is not tried without end.
func TestWarmThatComesToNothing(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 2}, protocol.RuntimeSpec{Warm: 1}, func(t *testing.T, w *world) {
		for range 60 {
			for _, name := range w.ready() {
				w.cluster.Say(name, &fleet.Trouble{Cause: fleet.CauseImage, Message: "not found", Final: true})
			}
			w.pass(10 * time.Second)
		}
		if n := w.cluster.Launches(); n < 2 || n > 12 {
			t.Errorf("%d launches in ten minutes, want some, and no more than one a minute", n)
		}
	})
}
