package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

func unit(run string, attempt int64) string { return fleet.UnitName(run, attempt) }

func (w *world) wantUnits(what string, want ...string) {
	w.t.Helper()
	if got := w.units(); !slices.Equal(got, want) {
		w.t.Errorf("%s: units %q, want %q", what, got, want)
	}
}

func (w *world) wantWhy(run, want string) {
	w.t.Helper()
	if got := w.why(run); !strings.Contains(got, want) {
		w.t.Errorf("%s waits because of %q, want %q in it", run, got, want)
	}
}

func TestLimitsKeepWorkHere(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 3, MemoryMB: 1000}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{MemoryMB: 600}, "run_a", "run_b")
		w.submit(fleet.Needs{MemoryMB: 100}, "run_c", "run_d", "run_e")
		w.wantUnits("b does not fit beside a, and three are the most", unit("run_a", 1), unit("run_c", 1), unit("run_d", 1))
		w.wantWhy("run_a", "is running")
		w.wantWhy("run_b", "waits for")
		w.wantWhy("run_e", "waits for a slot: 3 of 3 in use")
		w.taken("run_a")
		w.wantUnits("whoever waits is not started by that", unit("run_a", 1), unit("run_c", 1), unit("run_d", 1))
		w.wantWhy("run_b", "waits for")
		w.move("run_c", settled)
		w.move("run_d", settled)
		w.wantUnits("they have ended for the queue, and still run", unit("run_a", 1), unit("run_c", 1), unit("run_d", 1))
		w.pass(grace)
		w.wantUnits("b needs memory, not a slot; e goes before it", unit("run_a", 1), unit("run_e", 1))
		w.wantWhy("run_b", "waits for memory: 700 of 1000 MiB in use and the run declares 600")
		w.move("run_a", settled)
		w.pass(grace)
		w.wantUnits("then b", unit("run_b", 1), unit("run_e", 1))
	})
}

func TestABudgetOfCPUKeepsWorkHere(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 3, CPU: 2000}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{CPU: 1500}, "run_a", "run_b")
		w.submit(fleet.Needs{CPU: 500}, "run_c")
		w.submit(fleet.Needs{}, "run_d")
		w.wantUnits("b does not fit beside a", unit("run_a", 1), unit("run_c", 1), unit("run_d", 1))
		w.move("run_c", settled)
		w.move("run_d", settled)
		w.pass(grace)
		w.wantUnits("b needs CPU, not a slot", unit("run_a", 1))
		w.wantWhy("run_b", "waits for CPU: 1.5 of 2 cores in use and the run declares 1.5")
		w.move("run_a", settled)
		w.pass(grace)
		w.wantUnits("then b", unit("run_b", 1))
	})
}

// A launch that takes long holds up nothing else, and counts against the limits.
func TestASlowLaunch(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		w.slow = map[string]bool{"run_a": true}
		w.submit(fleet.Needs{}, "run_a")
		w.submit(fleet.Needs{}, "run_b", "run_c")
		w.wantWhy("run_a", "is launching")
		w.wantWhy("run_b", "is running")
		w.wantWhy("run_c", "waits for a slot: 2 of 2 in use")
		w.taken("run_b")
		w.move("run_b", settled)
		w.pass(grace) // its unit goes
		w.wantWhy("run_c", "is running")
		w.wantWhy("run_a", "is launching")
		w.move("run_a", settled) // cancelled, with its launch still going on
		w.pass(slowLaunch + grace)
		w.wantUnits("nobody wants a", unit("run_c", 1))
		if n := w.cluster.Launches(); n != 3 {
			t.Errorf("%d units were ever made, want 3", n)
		}
	})
}

func TestARestartGoesOn(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 3}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b", "run_c")
		w.taken("run_a")
		w.stop()
		w.move("run_b", settled) // while nobody looked
		w.begin()
		w.pass(grace - 2*time.Second)
		w.wantUnits("before the grace is over", unit("run_a", 1), unit("run_b", 1), unit("run_c", 1))
		w.pass(2 * time.Second)
		w.wantUnits("after it", unit("run_a", 1), unit("run_c", 1))
		if n := w.cluster.Launches(); n != 3 {
			t.Errorf("%d units were ever made, want 3", n)
		}
	})
}

// A unit of an attempt that has passed is no unit for the next one.
func TestEachAttemptHasAUnitOfItsOwn(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.taken("run_a")
		w.move("run_a", func(j *job) { j.State = lease.Queued }) // given back
		w.wantUnits("both", unit("run_a", 1), unit("run_a", 2))
		w.pass(grace)
		w.wantUnits("the second alone", unit("run_a", 2))
		w.move("run_a", func(j *job) { j.State, j.Attempt, j.runner = lease.Leased, 2, "somebody's laptop" })
		w.pass(grace)
		w.wantUnits("another runner has it")
	})
}

func TestTroubleOfAUnitThatIsAwaited(t *testing.T) {
	exit := 137
	for _, c := range []struct {
		name    string
		trouble fleet.Trouble
		after   time.Duration
		class   string
		reason  string
		retry   bool
	}{
		{"no image", fleet.Trouble{Cause: fleet.CauseImage, Message: "not found", Final: true}, 0, protocol.ClassConfig, protocol.ReasonImage, false},
		{"a registry that is away", fleet.Trouble{Cause: fleet.CauseImage, Message: "i/o timeout"}, pending, protocol.ClassInfra, protocol.ReasonImage, true},
		{"no node", fleet.Trouble{Cause: fleet.CauseUnschedulable, Message: "0/3 nodes"}, pending, protocol.ClassInfra, protocol.ReasonUnschedulable, true},
		{"a quota", fleet.Trouble{Cause: fleet.CauseQuota, Message: "exceeded quota"}, pending, protocol.ClassInfra, protocol.ReasonUnschedulable, true},
		{"a policy", fleet.Trouble{Cause: fleet.CausePolicy, Message: "violates", Final: true}, 0, protocol.ClassConfig, protocol.ReasonStart, false},
		{"evicted", fleet.Trouble{Cause: fleet.CauseEvicted, Message: "preempted", Final: true, Dead: true}, 0, protocol.ClassInfra, protocol.ReasonEvicted, true},
		{"out of memory", fleet.Trouble{Cause: fleet.CauseOOM, Message: "OOMKilled", Final: true, Dead: true, ExitCode: &exit}, 0, protocol.ClassInfra, protocol.ReasonOOM, false},
		{"ended", fleet.Trouble{Cause: fleet.CauseExited, Message: "exit code 2", Final: true, Dead: true}, 0, protocol.ClassInfra, protocol.ReasonLost, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
				w.submit(fleet.Needs{MemoryMB: 64}, "run_a")
				w.cluster.Say(unit("run_a", 1), &c.trouble)
				w.pass(time.Second)
				if c.after > 0 {
					w.wantWhy("run_a", string(c.trouble.Cause)+": "+c.trouble.Message)
					if len(w.told(&w.unplaced)) > 0 {
						t.Errorf("told %+v at once, want it to wait", w.told(&w.unplaced))
					}
					w.pass(c.after)
				}
				if len(w.told(&w.unplaced)) != 1 {
					t.Fatalf("told %+v, want one attempt ended", w.told(&w.unplaced))
				}
				f := w.told(&w.unplaced)[0]
				if f.attempt != 1 || f.Class != c.class || f.Reason != c.reason || f.Retryable != c.retry || f.Stage != protocol.StageDispatch ||
					!strings.Contains(f.Message, c.trouble.Message) {
					t.Errorf("told %+v, want %s/%s, retryable %v, in the cluster's words", f, c.class, c.reason, c.retry)
				}
				w.pass(grace + time.Second)
				if c.retry {
					w.wantUnits("the next attempt", unit("run_a", 2))
				} else {
					w.wantUnits("nothing is left")
				}
			})
		})
	}
}

// A runner that cannot be read for a while may be that of a unit, which is left alone.
func TestRunnersThatCannotBeRead(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.unread = errors.New("database is locked")
		w.taken("run_a")
		w.pass(time.Minute)
		w.mu.Lock()
		w.unread = nil
		w.mu.Unlock()
		w.pass(5 * time.Minute)
		w.wantUnits("it holds its run", unit("run_a", 1))
		if all := w.told(&w.foretold); len(all) > 0 {
			t.Errorf("foretold %+v, want nothing", all)
		}
		w.move("run_a", settled)
		w.pass(grace)
		w.wantUnits("when the run is over")
	})
}

func TestTroubleOfAUnitThatHoldsItsRun(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{MemoryMB: 64}, "run_dead", "run_lost", "run_gone", "run_fine")
		for _, id := range []string{"run_dead", "run_lost", "run_gone", "run_fine"} {
			w.taken(id)
		}
		w.cluster.Say(unit("run_dead", 1), &fleet.Trouble{Cause: fleet.CauseOOM, Message: "OOMKilled", Final: true, Dead: true})
		w.cluster.Say(unit("run_lost", 1), &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "no word of it", Final: true})
		w.cluster.Vanish(unit("run_gone", 1))
		w.pass(time.Second)
		if len(w.told(&w.ended)) != 1 || w.told(&w.ended)[0].run != "run_dead" || w.told(&w.ended)[0].Reason != protocol.ReasonOOM || w.told(&w.ended)[0].Limit == nil || w.told(&w.ended)[0].Limit.Configured != 64 {
			t.Errorf("ended %+v, want the one that is surely dead, with the limit", w.told(&w.ended))
		}
		reasons := map[string]string{}
		for _, f := range w.told(&w.foretold) {
			reasons[f.run] = f.Reason
		}
		if len(reasons) != 2 || reasons["run_lost"] != protocol.ReasonLost || reasons["run_gone"] != protocol.ReasonEvicted {
			t.Errorf("foretold %v, want of the two of which nobody knows", reasons)
		}
		if len(w.told(&w.unplaced)) != 0 {
			t.Errorf("unplaced %+v, want none", w.told(&w.unplaced))
		}
		w.cluster.Say(unit("run_lost", 1), nil)
		w.pass(time.Second)
		if all := w.told(&w.foretold); !slices.ContainsFunc(all, func(f told) bool { return f.run == "run_lost" && f.Reason == "" }) {
			t.Errorf("foretold %+v, want it taken back when the node is there again", all)
		}
	})
}

// The result that a runner could not deliver is in its output.
func TestAResultInTheOutput(t *testing.T) {
	for name, c := range map[string]struct {
		output  string
		adopted string
	}{
		"the last one":    {"log\n" + protocol.ResultSentinel + "{\"a\":1}\nlog\n" + protocol.ResultSentinel + "{\"a\":2}\nlog\n", `run_a {"a":2}`},
		"the first line":  {protocol.ResultSentinel + "{}\n", "run_a {}"},
		"one that is cut": {"log\n" + protocol.ResultSentinel + "{\"a\":", ""},
		"none":            {"log of " + protocol.ResultSentinel + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
				w.submit(fleet.Needs{}, "run_a")
				w.taken("run_a")
				w.cluster.Print(unit("run_a", 1), c.output)
				w.cluster.Say(unit("run_a", 1), &fleet.Trouble{Cause: fleet.CauseExited, Message: "exit code 2", Final: true, Dead: true})
				w.pass(time.Second)
				w.mu.Lock()
				defer w.mu.Unlock()
				if c.adopted != "" && (!slices.Equal(w.adopted, []string{c.adopted}) || len(w.ended) > 0) {
					t.Errorf("adopted %q, ended %+v; want %q adopted", w.adopted, w.ended, c.adopted)
				}
				if c.adopted == "" && (len(w.adopted) > 0 || len(w.ended) != 1) {
					t.Errorf("adopted %q, ended %+v; want the attempt ended", w.adopted, w.ended)
				}
			})
		})
	}
}

// A result that was printed and never delivered is kept before the unit that has it is
// removed, also one that is printed when it is told to end.
func TestP2_AResultInTheOutputOfAUnitThatIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		spec protocol.RuntimeSpec
		ends func(w *world, unit string)
		want []string
	}{
		"it has ended": {ends: func(w *world, unit string) {
			w.cluster.Print(unit, protocol.ResultSentinel+"{}\n")
			w.cluster.Exit(unit)
		}, want: []string{"run_a/1 {}"}},
		"it is told to end": {ends: func(w *world, unit string) {
			w.cluster.OnTerminate(func(print func(string)) time.Duration {
				print(protocol.ResultSentinel + "{}\n")
				return 2 * time.Second
			})
		}, want: []string{"run_a/1 {}"}},
		"there is none": {ends: func(*world, string) {}, want: []string{"run_a/1 "}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, lease.Limit{MaxConcurrent: 1}, c.spec, func(t *testing.T, w *world) {
				w.submit(fleet.Needs{}, "run_a")
				w.taken("run_a")
				c.ends(w, unit("run_a", 1))
				w.expires("run_a")
				w.pass(grace + time.Minute)
				w.wantUnits("it is removed")
				w.mu.Lock()
				defer w.mu.Unlock()
				if !slices.Equal(w.late, c.want) {
					t.Errorf("kept %q, want %q", w.late, c.want)
				}
			})
		})
	}
}

// A unit that was told to end has its slot while nobody knows that it has, and whoever waits
// for that is told which it is.
func TestASlotOfALostNode(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.taken("run_a")
		w.cluster.Say(unit("run_a", 1), &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node n1 is not ready", Final: true})
		w.cluster.OnTerminate(func(func(string)) time.Duration { return 1000 * time.Hour })
		w.move("run_a", func(j *job) { j.State = lease.Queued })
		w.pass(24 * time.Hour)
		w.wantUnits("it has its slot", unit("run_a", 1))
		w.wantWhy("run_a", "waits for a slot: 1 of 1 in use, 1 of them by what may still run on a node that does not answer, as unit "+unit("run_a", 1)+" on node memory: if")
	})
}

// A unit whose runner never comes does not keep its run for ever.
func TestARunnerThatNeverComes(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.pass(pending + 10*time.Minute)
		if len(w.told(&w.unplaced)) != 1 || !strings.Contains(w.told(&w.unplaced)[0].Message, "did not come within 20m") {
			t.Errorf("told %+v, want that it did not come", w.told(&w.unplaced))
		}
	})
}

// What an image lacks is known as soon as its runner is there.
func TestAnImageThatLacksSomething(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{Image: "bare"}, "run_a")
		got := w.told(&w.unplaced)
		if len(got) != 1 || got[0].Class != protocol.ClassConfig || got[0].Retryable || !strings.Contains(got[0].Message, "no runner offers git") {
			t.Errorf("told %+v, want the matcher's words, for good", got)
		}
	})
}

func TestAClusterThatIsAway(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		w.cluster.Down(errors.New("connection refused"))
		w.submit(fleet.Needs{}, "run_a")
		w.wantWhy("run_a", "connection refused; trying again")
		w.pass(time.Hour)
		w.wantUnits("while it is away")
		w.cluster.Down(nil)
		w.pass(time.Minute)
		w.wantUnits("when it is back", unit("run_a", 1))
		w.wantWhy("run_a", "is running")
		if len(w.told(&w.unplaced)) != 0 {
			t.Errorf("told %+v, want nothing: the cluster was away, not the unit", w.told(&w.unplaced))
		}
	})
}

// What happens while a cluster is away asks it before its time, and does not put off when it
// is asked next. Of a unit that is not seen nothing is said but that.
func TestAClusterThatIsAwayAndABusyQueue(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.wantWhy("run_a", "is running")
		w.cluster.Down(errors.New("connection refused"))
		w.pass(time.Second)
		w.wantWhy("run_a", "cannot see what runs on its cluster: connection refused; trying again")
		for i := range 20 {
			w.f.Committed([]lease.Event{{Pool: "default/prod"}})
			w.pass(50 * time.Millisecond)
			if n := w.logged("cluster failed"); n > 3 {
				t.Fatalf("after %d changes of the queue the cluster has failed %d times, want one in a second and then fewer", i, n)
			}
		}
	})
}

// A newer version with other limits keeps the units, and launches what fits now.
// TestP9_ALaunchThatIsRefused: the run says what is wrong, and of a unit no more than is
// there.
func TestP9_ALaunchThatIsRefused(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		mayNot := &fleet.AuthError{Credential: "authSecret narrow", Err: errors.New("it may not create")}
		const why = "cannot launch: the cluster refuses authSecret narrow: it may not create; trying again every"
		w.cluster.Refuse(mayNot)
		w.submit(fleet.Needs{}, "run_a")
		for range 3 { // as many tries
			if got := w.why("run_a"); !strings.HasPrefix(got, why) {
				t.Errorf("nothing could be made: it waits because of %q, want %q", got, why)
			}
			w.pass(time.Minute)
		}
		w.wantUnits("none was made")
		w.cluster.Refuse(nil)
		w.cluster.Break(errors.New("no Secret could be made"))
		w.pass(2 * time.Minute)
		w.wantUnits("its launch is not complete", unit("run_a", 1))
		w.wantWhy("run_a", "unit "+unit("run_a", 1)+" is launching; cannot launch: no Secret could be made; trying again every")
		w.cluster.Break(nil)
		w.pass(2 * time.Minute)
		if got, want := w.why("run_a"), "unit "+unit("run_a", 1)+" is running on node memory"; got != want {
			t.Errorf("it goes: it waits because of %q, want %q", got, want)
		}
	})
}

func TestANewerVersion(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b")
		w.wantUnits("one slot", unit("run_a", 1))
		w.mu.Lock()
		w.limit.MaxConcurrent = 2
		w.mu.Unlock()
		w.version("2.0.0")
		w.pass(time.Second)
		w.wantUnits("two slots", unit("run_a", 1), unit("run_b", 1))
		if n := w.cluster.Launches(); n != 2 {
			t.Errorf("%d units were ever made, want 2", n)
		}
	})
}

// However many jobs wait, a look asks for as many as the pool can have.
func TestALongQueueCostsNoMore(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 5}, func(t *testing.T, w *world) {
		var ids []string
		for i := range 10_000 {
			ids = append(ids, fmt.Sprintf("run_%05d", i))
		}
		w.submit(fleet.Needs{}, ids...)
		if n := len(w.units()); n != 5 || w.most() > 10 {
			t.Errorf("%d units, %d jobs asked for at once; want 5 and at most 10", n, w.most())
		}
		w.wantWhy("run_09999", "waits for a slot: 5 of 5 in use")
	})
}

// A unit that the cluster calls pending for a while after its run is over has its place:
// nobody knows that it has ended.
func TestAClusterThatLags(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 2}, func(_ *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b", "run_c", "run_d")
		w.cluster.Lag(unit("run_a", 1))
		w.taken("run_a")
		w.move("run_a", settled)
		w.wantUnits("it may run", unit("run_a", 1), unit("run_b", 1))
		w.wantWhy("run_c", "waits for a slot: 2 of 2 in use")
		w.cluster.Exit(unit("run_a", 1))
		w.pass(time.Second)
		w.wantUnits("it has ended", unit("run_a", 1), unit("run_b", 1), unit("run_c", 1))
	})
}

// A cluster that goes away while units wait to be removed is asked ever less often, and
// those whose place they have are told why.
func TestAClusterThatIsAwayWhenAUnitIsOver(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b")
		w.taken("run_a")
		w.cluster.Refuse(errors.New("connection refused"))
		w.move("run_a", settled)
		w.pass(grace + time.Minute)
		w.wantWhy("run_b", "cannot remove what is over from its cluster: connection refused; trying again")
		before := w.cluster.Refused()
		w.pass(10 * time.Minute)
		if n := w.cluster.Refused() - before; n < 5 || n > 20 {
			t.Errorf("asked %d times in ten minutes, want about one a minute", n)
		}
		w.cluster.Refuse(nil)
		w.pass(time.Minute + time.Second)
		w.wantUnits("the next has its place", unit("run_b", 1))
	})
}
