package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// wantUnschedulable checks how the attempts of a run ended.
func (w *world) wantUnschedulable(all []told, run string, attempts int) {
	w.t.Helper()
	n := 0
	for _, e := range all {
		if e.run != run {
			continue
		}
		n++
		if e.Reason != protocol.ReasonUnschedulable || e.Class != protocol.ClassInfra || !e.Retryable || !strings.Contains(e.Message, "exceeded quota") ||
			e.Limit == nil || e.Limit.Name != "pendingTimeout" || e.Limit.Measured < pending.Seconds() {
			w.t.Errorf("an attempt ended with %+v, limit %+v; want a quota that had no room for too long", e.Failure, e.Limit)
		}
	}
	if n != attempts {
		w.t.Errorf("%d attempts of %s ended, want %d: %+v", n, run, attempts, all)
	}
}

// TestF9_AQuotaOfUnits: a run that a quota has no room for says so, holds up no other, has the
// place of a unit that has gone, and ends if it waits for too long.
func TestF9_AQuotaOfUnits(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 4}, func(t *testing.T, w *world) {
		w.cluster.Quota(2)
		for _, run := range []string{"run_a", "run_b"} {
			w.submit(fleet.Needs{}, run)
			w.taken(run)
		}
		w.submit(fleet.Needs{}, "run_c")
		w.wantUnits("there is room for two", unit("run_a", 1), unit("run_b", 1))
		const why = " waits: quota: exceeded quota: 2 of 2 units"
		for range 5 {
			w.pass(time.Minute)
			if got := w.why("run_c"); got != "unit "+unit("run_c", 1)+why {
				t.Errorf("run_c waits because of %q, want %q", got, why)
			}
		}
		if log := w.log.String(); strings.Contains(log, "cluster failed") {
			t.Errorf("a quota is taken for a failure of the cluster:\n%s", log)
		}
		w.move("run_a", settled)
		w.pass(grace)
		w.wantUnits("the place that has become free is taken at once", unit("run_b", 1), unit("run_c", 1))
		w.taken("run_c")
		w.submit(fleet.Needs{}, "run_d")
		w.pass(pending - 5*time.Second)
		w.wantUnschedulable(w.told(&w.unplaced), "run_d", 0)
		w.pass(10 * time.Second)
		w.wantUnschedulable(w.told(&w.unplaced), "run_d", 1)
		w.wantWhy("run_d", unit("run_d", 2)+why)
		w.cluster.Quota(0)
		w.pass(time.Minute)
		w.wantUnits("there is room", unit("run_b", 1), unit("run_c", 1), unit("run_d", 2))
	})
}

// TestF9_AQuotaOfWhatAUnitNeeds: the same of a unit that is there, half launched.
func TestF9_AQuotaOfWhatAUnitNeeds(t *testing.T) {
	inWorld(t, lease.Limit{MaxConcurrent: 4}, func(_ *testing.T, w *world) {
		w.cluster.Break(&fleet.QuotaError{Message: "exceeded quota: secrets"})
		w.submit(fleet.Needs{}, "run_a")
		w.wantWhy("run_a", unit("run_a", 1)+" waits: quota: exceeded quota: secrets")
		w.pass(time.Minute)
		w.wantWhy("run_a", unit("run_a", 1)+" waits: quota: exceeded quota: secrets")
		w.pass(pending)
		w.wantUnschedulable(w.told(&w.unplaced), "run_a", 1)
		w.cluster.Break(nil)
		w.pass(time.Minute)
		w.wantUnits("what was half launched is removed, and the next goes", unit("run_a", 2))
		w.wantWhy("run_a", "is running")
	})
	t.Run("with a payload", func(t *testing.T) {
		withPayloads(t, func(_ *testing.T, w *world) {
			w.cluster.Break(&fleet.QuotaError{Message: "exceeded quota: secrets"})
			w.submit(fleet.Needs{}, "run_a")
			w.pass(pending - time.Minute)
			w.noneEnded("while it may pass")
			w.pass(3 * time.Minute)
			w.wantUnschedulable(w.told(&w.ended), "run_a", 1)
			w.wantUnits("nothing is left of it")
		})
	})
}

// TestAQuotaOfWarmUnits: what is to be kept ready does not hurry the cluster.
func TestAQuotaOfWarmUnits(t *testing.T) {
	inWorldOf(t, lease.Limit{MaxConcurrent: 4}, protocol.RuntimeSpec{Warm: 1}, func(t *testing.T, w *world) {
		w.cluster.Break(&fleet.QuotaError{Message: "exceeded quota: secrets"})
		w.cluster.Vanish(w.units()[0])
		w.pass(time.Minute)
		asked := w.cluster.Asked()
		w.pass(10 * time.Minute)
		if n := w.cluster.Asked() - asked; n > 60 {
			t.Errorf("%d calls in ten minutes", n)
		}
		w.cluster.Break(nil)
		w.pass(2 * time.Minute)
		if us := w.cluster.Units(); len(us) != 1 || us[0].State != fleet.Running {
			t.Errorf("units %+v, want one that is ready", us)
		}
	})
}
