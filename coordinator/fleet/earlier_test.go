package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/fleettest"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

func (w *world) wantUnitsOf(c *fleettest.Cluster, what string, want ...string) {
	w.t.Helper()
	if got := unitsOf(c); !slices.Equal(got, want) {
		w.t.Errorf("%s: units %q, want %q", what, got, want)
	}
}

// logged is how many warnings have some words in them. The fleet must not run.
func (w *world) logged(words string) (n int) {
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

const unheard = "place of an earlier version does not answer"

// The units that a coordinator has left where an earlier version had them are its own
// after a restart, too.
func TestARestartFindsWhereEarlierVersionsWere(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b", "run_c")
		w.taken("run_a")
		w.taken("run_b")
		w.stop()
		now := w.moveTo("b")
		w.version("2.0.0") // as if just before the end
		w.move("run_b", settled)
		w.begin()
		w.submit(fleet.Needs{}, "run_d")
		w.pass(grace - 3*time.Second)
		w.wantUnits("before the grace is over", unit("run_a", 1), unit("run_b", 1), unit("run_c", 1))
		w.wantUnitsOf(now, "c is where it was, and not launched twice", unit("run_d", 1))
		w.pass(3 * time.Second)
		w.wantUnits("b is swept, a goes on", unit("run_a", 1), unit("run_c", 1))
		w.taken("run_c")
		w.taken("run_d")
		looks, _ := w.f.Looks()
		w.pass(time.Hour)
		if n, _ := w.f.Looks(); n-looks > 200 {
			t.Errorf("%d looks in an hour in which nothing happens, want two a minute", n-looks)
		}
		if all := append(w.told(&w.foretold), append(w.told(&w.ended), w.told(&w.unplaced)...)...); len(all) > 0 {
			t.Errorf("told %+v of runs that go on, want nothing", all)
		}
		if n := w.cluster.Watchers(); n != 1 {
			t.Errorf("%d clients watch the earlier place while units are there, want 1", n)
		}
		w.move("run_a", settled)
		w.move("run_c", settled)
		w.pass(grace + time.Second)
		w.wantUnits("when all are over")
		if n := w.cluster.Watchers(); n != 0 {
			t.Errorf("%d clients watch the earlier place when nothing is there, want none", n)
		}
		w.wantUnitsOf(now, "the latest version's goes on", unit("run_d", 1))
		asked := w.cluster.Asked()
		w.pass(time.Hour)
		if n := w.cluster.Asked() - asked; n != 0 {
			t.Errorf("an earlier place where nothing is was asked %d times in an hour, want never", n)
		}
	})
}

// A place that cannot be reached is said once, asked again ever less often, and holds up
// nothing.
func TestAnEarlierPlaceThatIsAway(t *testing.T) {
	for name, away := range map[string]func(c *fleettest.Cluster, yes bool){
		"refuses": func(c *fleettest.Cluster, yes bool) { c.Down(unless(!yes, errors.New("connection refused"))) },
		"forbids": func(c *fleettest.Cluster, yes bool) {
			c.Down(unless(!yes, &fleet.AuthError{Credential: "authSecret old", Err: errors.New("403")}))
		},
		"silent": (*fleettest.Cluster).Silence,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
				w.submit(fleet.Needs{}, "run_a", "run_b")
				w.taken("run_a")
				w.taken("run_b")
				w.stop()
				now := w.moveTo("b")
				w.version("2.0.0")
				w.move("run_b", settled)
				away(w.cluster, true)
				asked := w.cluster.Asked()
				w.begin()
				w.pass(2 * time.Second)
				for i := range 3 { // while it is asked
					id := fmt.Sprintf("run_c%d", i)
					w.submit(fleet.Needs{}, id)
					w.wantWhy(id, "is running")
					w.taken(id)
				}
				w.pass(time.Hour)
				w.wantUnitsOf(now, "the latest version's go on", unit("run_c0", 1), unit("run_c1", 1), unit("run_c2", 1))
				if n := w.cluster.Asked() - asked; n < 30 || n > 80 {
					t.Errorf("asked %d times in an hour, want about one a minute", n)
				}
				if all := w.told(&w.foretold); len(all) == 0 || !strings.Contains(all[len(all)-1].Message, "does not answer") {
					t.Errorf("foretold %+v, want that nobody knows", all)
				}
				away(w.cluster, false)
				w.pass(time.Minute + grace + 2*time.Second)
				w.wantUnits("when it is back", unit("run_a", 1))
				if all := w.told(&w.foretold); all[len(all)-1].run != "run_a" || all[len(all)-1].Reason != "" {
					t.Errorf("foretold %+v, want it taken back", all)
				}
				w.move("run_a", settled)
				w.pass(grace + time.Second)
				w.wantUnits("when all are over")
				if n := w.cluster.Watchers(); n != 0 {
					t.Errorf("%d clients watch it when nothing is there, want none", n)
				}
				w.stop()
				if n := w.logged(unheard); n != 1 {
					t.Errorf("said %d times that it is away, want once:\n%s", n, w.log.String())
				}
				w.begin()
			})
		})
	}
}

func unless(no bool, err error) error {
	if no {
		return nil
	}
	return err
}

// Versions at one place have one client, however many units there are, and whether they
// follow each other before a restart or after it.
func TestVersionsAtOnePlaceHaveOneClient(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b")
		w.taken("run_a")
		for i := range 5 {
			w.spec.Image = fmt.Sprintf("runner:%d", i)
			w.version(fmt.Sprintf("1.%d.0", i+1))
			w.pass(time.Second)
		}
		if n := w.cluster.Watchers(); n != 1 {
			t.Errorf("%d clients watch after six versions at one place, want 1", n)
		}
		w.stop()
		w.begin()
		if n := w.cluster.Watchers(); n != 1 {
			t.Errorf("%d clients watch after a restart, want 1", n)
		}
		w.wantUnits("they go on", unit("run_a", 1), unit("run_b", 1))
		other := w.moveTo("b") // and back
		w.version("2.0.0")
		w.pass(time.Second)
		w.submit(fleet.Needs{}, "run_c")
		w.taken("run_c")
		w.spec.Server = ""
		w.version("3.0.0")
		w.pass(time.Second)
		if n, o := w.cluster.Watchers(), other.Watchers(); n != 1 || o != 1 {
			t.Errorf("%d and %d clients watch the two places, want one each", n, o)
		}
		w.move("run_a", settled)
		w.move("run_c", settled)
		w.pass(grace + time.Second)
		w.wantUnits("a is over", unit("run_b", 1))
		w.wantUnitsOf(other, "c is over")
		if n := other.Watchers(); n != 0 {
			t.Errorf("%d clients watch the place that was left, want none", n)
		}
	})
}

// Of many places that a runtime has had, those of its last versions are looked at.
func TestAFewEarlierPlacesAreLookedAt(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.stop()
		var all []*fleettest.Cluster
		for i := range 12 {
			all = append(all, w.moveTo(fmt.Sprintf("place %d", i)))
			w.version(fmt.Sprintf("2.%d.0", i))
		}
		w.begin()
		var asked []int
		for i, c := range all {
			if c.Asked() > 0 {
				asked = append(asked, i)
			}
		}
		if want := []int{3, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(asked, want) {
			t.Errorf("asked places %v, want %v: the latest and eight before it", asked, want)
		}
		w.stop()
		if w.logged("more places") != 1 {
			t.Errorf("want it said that there are more:\n%s", w.log.String())
		}
		w.begin()
	})
}

// A launch that goes on when a version at the same place follows is that version's.
func TestALaunchThatANewVersionMeets(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		w.slow = map[string]bool{"run_a": true}
		w.submit(fleet.Needs{}, "run_a")
		w.spec.Image = "runner:2"
		w.version("2.0.0")
		w.moveTo("b")
		w.version("3.0.0")
		w.pass(slowLaunch)
		w.wantUnits("it is complete", unit("run_a", 1))
		w.taken("run_a")
		w.move("run_a", settled)
		w.pass(grace + time.Second)
		w.wantUnits("and swept where it is")
		if n := w.cluster.Watchers(); n != 0 {
			t.Errorf("%d clients watch the place that was left, want none", n)
		}
	})
}

// What is at an earlier place is looked after whatever the latest version's is like, and
// whether the coordinator was started again meanwhile.
func TestALatestVersionThatIsNotReached(t *testing.T) {
	for name, next := range map[string]func(w *world){
		"its place is away":                            func(w *world) { w.moveTo("b").Down(errors.New("connection refused")) },
		"its place is silent":                          func(w *world) { w.moveTo("b").Silence(true) },
		"it has no client":                             func(w *world) { w.spec.Server = "nowhere" },
		"its credential is refused, at the same place": func(w *world) { w.spec.AuthSecret = "wrong" },
		"its runners are not launched":                 func(w *world) { w.spec.Kind = protocol.RuntimeLocal },
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, again), func(t *testing.T) {
				inWorld(t, lease.Limit{MaxConcurrent: 5}, func(t *testing.T, w *world) {
					all := []string{"run_oom", "run_over", "run_done", "run_goes_on"}
					w.submit(fleet.Needs{}, all...)
					for _, id := range all {
						w.taken(id)
					}
					next(w)
					if again {
						w.stop()
					}
					w.version("2.0.0")
					if again {
						w.begin()
					}
					w.pass(time.Minute)
					w.cluster.Say(unit("run_oom", 1), &fleet.Trouble{Cause: fleet.CauseOOM, Message: "OOMKilled", Final: true, Dead: true})
					w.cluster.Print(unit("run_done", 1), protocol.ResultSentinel+"{}\n")
					w.cluster.Exit(unit("run_done", 1))
					w.move("run_over", settled)
					w.submit(fleet.Needs{}, "run_new")
					w.pass(5 * time.Minute)
					w.wantUnits("what is over is removed", unit("run_goes_on", 1))
					if ended := w.told(&w.ended); len(ended) != 1 || ended[0].run != "run_oom" || ended[0].Reason != protocol.ReasonOOM {
						t.Errorf("ended %+v, want the one that ran out of memory", ended)
					}
					if !slices.Equal(w.adopted, []string{"run_done {}"}) {
						t.Errorf("adopted %q, want the result in the output", w.adopted)
					}
					if all := w.told(&w.foretold); len(all) > 0 {
						t.Errorf("foretold %+v, want nothing: the units are seen", all)
					}
					launches := w.spec.Kind != protocol.RuntimeLocal
					if word := w.why("run_new"); w.f.Launches("default", "prod") != launches || (word != "") != launches {
						t.Errorf("launches %v, and the run that waits says %q; want that it cannot be launched where runners are launched, else nothing", !launches, word)
					}
					w.spec = protocol.RuntimeSpec{}
					w.version("3.0.0")
					w.pass(2 * time.Minute)
					w.wantUnits("a version that can be reached", unit("run_goes_on", 1), unit("run_new", 1))
					if n := w.cluster.Watchers(); n != 1 {
						t.Errorf("%d clients watch the place, want 1", n)
					}
				})
			})
		}
	}
}

// A secret that names another place moves the runtime as a version does: what runs where it was
// goes on, and is swept there when it is over.
func TestASecretThatMoves(t *testing.T) {
	for name, next := range map[string]string{"to another place": "b", "to nowhere": "", "to the same place": "a"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
				w.vault = map[string]string{"config": "a"}
				a, b := w.moveTo("a"), w.moveTo("b")
				w.spec = protocol.RuntimeSpec{KubeconfigSecret: "config", Warm: 1}
				w.version("2.0.0")
				w.submit(fleet.Needs{MemoryMB: 64}, "run_a", "run_b")
				w.taken("run_a")
				w.taken("run_b")
				if n := len(a.Units()); n != 3 {
					t.Fatalf("%d units, want two and one that is kept ready", n)
				}
				ready := strings.Join(unitsOf(a), " ")
				w.secret("another", "b")
				w.secret("config", next)
				w.submit(fleet.Needs{MemoryMB: 64}, "run_c")
				w.pass(grace + time.Second)
				switch next {
				case "b":
					w.wantUnitsOf(a, "what runs goes on, and what is kept ready is not wanted", unit("run_a", 1), unit("run_b", 1))
					if got := unitsOf(b); len(got) != 2 || got[0] != unit("run_c", 1) {
						t.Errorf("units %q at the new place, want that of c and one that is kept ready", got)
					}
				case "":
					w.wantWhy("run_c", "cannot reach its cluster: "+fleet.ErrNoSecret.Error())
				case "a":
					if got := strings.Join(unitsOf(a), " "); !strings.Contains(got, unit("run_c", 1)) || strings.ReplaceAll(got, unit("run_c", 1)+" ", "") != ready {
						t.Errorf("units %q, want %q and that of c", got, ready)
					}
					if n := a.Watchers(); n != 1 {
						t.Errorf("%d clients watch it, want 1", n)
					}
				}
				w.move("run_a", settled)
				w.pass(grace + time.Second)
				if got := unitsOf(a); slices.Contains(got, unit("run_a", 1)) || !slices.Contains(got, unit("run_b", 1)) {
					t.Errorf("units %q where the runtime was, want b and no a", got)
				}
				for _, id := range []string{"run_b", "run_c"} {
					w.move(id, settled)
				}
				w.secret("config", "b")
				w.submit(fleet.Needs{MemoryMB: 64}, "run_d")
				w.pass(time.Minute)
				w.wantUnitsOf(a, "when all there is over")
				if got := unitsOf(b); len(got) != 2 || got[0] != unit("run_d", 1) || a.Watchers() != 0 || b.Watchers() != 1 {
					t.Errorf("units %q at the last place, %d and %d clients watch; want two, none and one", got, a.Watchers(), b.Watchers())
				}
			})
		})
	}
}
