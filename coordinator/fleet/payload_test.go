package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

const first = "everdict-a-1"

// withPayloads is inWorld with a runtime whose units are given payloads.
func withPayloads(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, lease.Limit{MaxConcurrent: 2}, protocol.RuntimeSpec{Payload: true}, test)
}

// comesTo waits for the end of the first run's first attempt, which is the only one.
func (w *world) comesTo(reason, class string, retryable bool, words string) {
	w.t.Helper()
	all := w.told(&w.ended)
	if len(all) != 1 || all[0].run != "run_a" || all[0].attempt != 1 {
		w.t.Fatalf("ended were %+v, want attempt 1 of run_a", all)
	}
	f := all[0].Failure
	if f.Reason != reason || f.Class != class || f.Retryable != retryable || !strings.Contains(f.Message, words) {
		w.t.Errorf("the failure is %+v, want %s %s, retryable %v, with %q", f, class, reason, retryable, words)
	}
	if got := w.units(); len(got) > 0 {
		w.t.Errorf("left are %v, want nothing", got)
	}
	if n := len(w.handouts()); n != 1 {
		w.t.Errorf("%d payloads were handed out, want 1", n)
	}
}

// noneEnded says that no attempt has ended.
func (w *world) noneEnded(when string) {
	w.t.Helper()
	if all := append(w.told(&w.ended), w.told(&w.unplaced)...); len(all) > 0 {
		w.t.Fatalf("%s, ended were %+v; want nothing", when, all)
	}
}

// TestPayloadUnit: a unit is given its run once and for all, nobody else finds it on the
// cluster once the unit runs, and the result is that in its output.
func TestPayloadUnit(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a", "run_b", "run_c")
		if got, want := w.units(), []string{first, "everdict-b-1"}; !slices.Equal(got, want) || !slices.Equal(w.handouts(), want) {
			t.Fatalf("units %v, payloads %v; want %v, as many as the pool has slots", got, w.handouts(), want)
		}
		if doc := w.cluster.Document(first); doc != "" {
			t.Errorf("the cluster still has %q of the unit that runs", doc)
		}
		w.stop()
		w.begin()
		w.pass(3 * time.Hour)
		w.noneEnded("after hours of silence and a restart")
		w.cluster.Print(first, "log\n"+protocol.ResultSentinel+"{}\n")
		w.cluster.Exit(first)
		w.pass(time.Minute)
		if !slices.Equal(w.adopted, []string{"run_a {}"}) {
			t.Errorf("adopted were %v, want the result of run_a", w.adopted)
		}
		if got, want := w.units(), []string{"everdict-b-1", "everdict-c-1"}; !slices.Equal(got, want) {
			t.Errorf("units %v, want %v", got, want)
		}
	})
}

// TestP3_PayloadUnitThatDoesNotBegin: an attempt whose unit does not come to run it ends
// with the unit, and not before.
func TestP3_PayloadUnitThatDoesNotBegin(t *testing.T) {
	away := errors.New("the cluster is away")
	for name, c := range map[string]struct {
		needs     fleet.Needs
		before    func(w *world)
		meanwhile func(w *world)
		after     time.Duration
		reason    string
		class     string
		retryable bool
		words     string
	}{
		"no such image": {needs: fleet.Needs{Image: "missing"}, reason: protocol.ReasonImage, class: protocol.ClassConfig, words: "missing is not present"},
		"no room for too long": {needs: fleet.Needs{MemoryMB: 4096}, after: pending, reason: protocol.ReasonUnschedulable, class: protocol.ClassInfra, retryable: true,
			words: "insufficient memory"},
		"nothing is heard of its start": {meanwhile: func(w *world) { w.cluster.Lag(first) }, after: 2*pending + time.Minute, reason: protocol.ReasonStart, class: protocol.ClassInfra,
			retryable: true, words: "did not start within"},
		"refused when it was given": {before: func(w *world) {
			w.cluster.Break(&fleet.RefusedError{Cause: fleet.CausePolicy, Message: "no such units"})
		}, reason: protocol.ReasonStart, class: protocol.ClassConfig, words: "no such units"},
		"refused, and a newer version follows": {before: func(w *world) {
			w.cluster.Break(&fleet.RefusedError{Cause: fleet.CausePolicy, Message: "no such units"})
		}, meanwhile: func(w *world) {
			w.spec.Image = "runner:2"
			w.version("2.0.0")
		}, reason: protocol.ReasonStart, class: protocol.ClassConfig, words: "no such units"},
		"refused, and a newer version follows elsewhere": {before: func(w *world) {
			w.cluster.Break(&fleet.RefusedError{Cause: fleet.CausePolicy, Message: "no such units"})
		}, meanwhile: func(w *world) {
			w.moveTo("b")
			w.version("2.0.0")
		}, reason: protocol.ReasonStart, class: protocol.ClassConfig, words: "no such units"},
		"the coordinator died in its launch": {before: func(w *world) { w.cluster.Break(away) }, meanwhile: func(w *world) {
			w.stop()
			w.cluster.Break(nil)
			w.begin()
		}, reason: protocol.ReasonEvicted, class: protocol.ClassInfra, retryable: true, words: "its launch was cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			withPayloads(t, func(t *testing.T, w *world) {
				w.cluster.Keep(away)
				if c.before != nil {
					c.before(w)
				}
				w.submit(c.needs, "run_a")
				if c.meanwhile != nil {
					c.meanwhile(w)
				}
				w.pass(c.after + 5*time.Minute)
				w.noneEnded("while the unit is there")
				w.cluster.Keep(nil)
				w.pass(5 * time.Minute)
				w.comesTo(c.reason, c.class, c.retryable, c.words)
			})
		})
	}
}

// TestPayloadUnitLaunchedAgain: a launch that fails on the way goes on, with the payload
// that was handed out.
func TestPayloadUnitLaunchedAgain(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.cluster.Break(errors.New("the cluster is away"))
		w.submit(fleet.Needs{}, "run_a")
		w.pass(time.Minute)
		w.noneEnded("while the cluster was away")
		w.cluster.Break(nil)
		w.pass(2 * time.Minute)
		if us := w.cluster.Units(); len(us) != 1 || us[0].State != fleet.Running || len(w.handouts()) != 1 {
			t.Errorf("units %+v, payloads %v; want one that runs, and one", us, w.handouts())
		}
		w.noneEnded("after that")
	})
}

// TestPayloadUnitIsSeenLate: a list that does not show yet that a launch is complete is no
// launch that was cut off.
func TestPayloadUnitIsSeenLate(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.cluster.Behind(true)
		w.submit(fleet.Needs{}, "run_a")
		w.pass(20 * time.Second)
		w.cluster.Behind(false)
		w.pass(time.Minute)
		if us := w.cluster.Units(); len(us) != 1 || us[0].State != fleet.Running || len(w.handouts()) != 1 || w.cluster.Launches() != 1 {
			t.Errorf("units %+v, payloads %v; want one that runs, and one", us, w.handouts())
		}
		w.noneEnded("all the while")
	})
}

// TestPayloadUnitVanishes: whether a unit that is gone by itself still runs somewhere is not
// known, and its attempt has its time.
func TestPayloadUnitVanishes(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.cluster.Vanish(first)
		w.pass(time.Hour)
		w.noneEnded("although nobody knows")
		if all := w.told(&w.foretold); len(all) == 0 || !strings.Contains(all[0].Message, "not on the cluster any more") {
			t.Errorf("foretold was %+v, want that it is gone", all)
		}
	})
}

// TestPayloadUnitOfALostNode: it may be at work, and is left alone for as long as one may take
// to begin. Then it is told to end, and its run is tried again when it is gone.
func TestPayloadUnitOfALostNode(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.cluster.Lag(first)
		w.cluster.Say(first, &fleet.Trouble{Cause: fleet.CauseNodeLost, Message: "node n is not ready", Final: true})
		w.pass(19 * time.Minute)
		w.noneEnded("although nobody knows")
		if got := w.units(); !slices.Equal(got, []string{first}) {
			t.Errorf("units %v, want it left alone", got)
		}
		if all := w.told(&w.foretold); len(all) == 0 || !strings.Contains(all[0].Message, "does not answer") {
			t.Errorf("foretold was %+v, want that its node is lost", all)
		}
		w.pass(2 * time.Minute)
		if got := w.units(); slices.Contains(got, first) {
			t.Errorf("units %v, want it removed", got)
		}
		if all := w.told(&w.ended); len(all) == 0 || !strings.Contains(all[0].Message, "does not answer") {
			t.Errorf("ended was %+v, want that its node is lost", all)
		}
	})
}

// TestP3_PayloadUnitBesideAnother: a unit that has run to its end, and is called pending for
// what its cluster has started beside it, has its result taken.
func TestP3_PayloadUnitBesideAnother(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.submit(fleet.Needs{}, "run_a")
		w.cluster.Print(first, protocol.ResultSentinel+"{}\n")
		w.cluster.Lag(first)
		w.pass(time.Minute)
		if !slices.Equal(w.adopted, []string{"run_a {}"}) || len(w.units()) > 0 {
			t.Errorf("adopted were %v, left are %v; want the result of run_a, and nothing", w.adopted, w.units())
		}
	})
}

// TestP5_AResultThatCannotBeHadYet: a unit that has ended stays, and is asked again, while its
// cluster does not give its output or its result cannot be written down.
func TestP5_AResultThatCannotBeHadYet(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(w *world, err error)
		err   error
	}{
		"it is not read":  {(*world).unreadable, errors.New("dial tcp 10.0.0.5:10250: i/o timeout")},
		"it is not taken": {(*world).untakeable, errors.New("database is locked")},
	} {
		ends := func(w *world) {
			c.fails(w, c.err)
			w.submit(fleet.Needs{}, "run_a")
			w.printed()
			w.pass(pending - time.Minute)
			w.noneEnded("while nobody knows whether there is a result")
		}
		t.Run(name+" for a while", func(t *testing.T) {
			withPayloads(t, func(t *testing.T, w *world) {
				ends(w)
				c.fails(w, nil)
				w.pass(time.Minute)
				w.noneEnded("when it can be had")
				w.pass(grace)
				if !slices.Equal(w.adopted, []string{"run_a {}"}) || len(w.units()) > 0 {
					t.Errorf("adopted were %v, left are %v; want the result of run_a, and nothing", w.adopted, w.units())
				}
			})
		})
		t.Run(name+" for too long", func(t *testing.T) {
			withPayloads(t, func(_ *testing.T, w *world) {
				ends(w)
				w.pass(3 * time.Minute)
				w.comesTo(protocol.ReasonLost, protocol.ClassInfra, true, "could not be had within 10m0s: "+c.err.Error())
			})
		})
	}
	t.Run("it is never taken", func(t *testing.T) {
		withPayloads(t, func(_ *testing.T, w *world) {
			w.untakeable(protocol.Conflict("the attempt is over"))
			w.submit(fleet.Needs{}, "run_a")
			w.printed()
			w.pass(time.Minute)
			w.comesTo(protocol.ReasonLost, protocol.ClassInfra, true, "ended by itself")
		})
	})
}

// printed ends the first unit with a result in its output.
func (w *world) printed() {
	w.cluster.Print(first, protocol.ResultSentinel+"{}\n")
	w.cluster.Exit(first)
}

func (w *world) unreadable(err error) { w.cluster.Unread(err) }

func (w *world) untakeable(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.untaken = err
}

// TestPayloadIsForgottenLater: where the cluster does not forget a payload at once, it is
// asked again, and the run is none the worse.
func TestPayloadIsForgottenLater(t *testing.T) {
	withPayloads(t, func(t *testing.T, w *world) {
		w.cluster.Behind(true)
		w.submit(fleet.Needs{}, "run_a")
		w.cluster.Refuse(errors.New("the cluster is away"))
		w.cluster.Behind(false)
		w.pass(10 * time.Second)
		if doc := w.cluster.Document(first); doc == "" {
			t.Fatal("the cluster has forgotten the payload while it refused to")
		}
		w.cluster.Refuse(nil)
		w.pass(2 * time.Minute)
		if doc := w.cluster.Document(first); doc != "" {
			t.Errorf("the cluster still has %q", doc)
		}
		w.noneEnded("all the while")
	})
}

// TestPayloadNotHandedOut: a run that cannot be handed out says nothing against the cluster.
func TestPayloadNotHandedOut(t *testing.T) {
	t.Run("now", func(t *testing.T) {
		withPayloads(t, func(t *testing.T, w *world) {
			w.unhanded = protocol.Conflict("its slot was taken")
			w.submit(fleet.Needs{}, "run_a")
			w.pass(10 * time.Second)
			if us := w.cluster.Units(); len(us) != 1 || us[0].State != fleet.Launching {
				t.Fatalf("units %+v, want one that waits for its payload", us)
			}
			w.mu.Lock()
			w.unhanded = nil
			w.mu.Unlock()
			w.pass(10 * time.Second)
			if us := w.cluster.Units(); len(us) != 1 || us[0].State != fleet.Running {
				t.Errorf("units %+v, want one that runs", us)
			}
			w.noneEnded("all the while")
		})
	})
	t.Run("P12 ever", func(t *testing.T) {
		withPayloads(t, func(t *testing.T, w *world) {
			w.unsized = protocol.BadRequest("harness h names secrets").WithHint("elsewhere")
			w.submit(fleet.Needs{}, "run_a")
			w.pass(time.Minute)
			all := w.told(&w.unplaced)
			if len(all) != 1 || all[0].Class != protocol.ClassConfig || all[0].Message != "harness h names secrets" || all[0].Retryable {
				t.Errorf("unplaced were %+v, want the run failed for its secrets", all)
			}
			if n := w.cluster.Launches(); n > 0 {
				t.Errorf("%d units were made, want none", n)
			}
		})
	})
}
