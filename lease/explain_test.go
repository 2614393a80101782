package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/everdict/everdict/lease"
)

// TestP9_F9_Explain asks why a job is queued, or where else it is. Each row's queue is at 2000-01-01 00:00 UTC.
func TestP9_F9_Explain(t *testing.T) {
	t.Parallel()
	gpu := job("j")
	gpu.Requirements.Capabilities = []string{"gpu", "docker"}
	arm := job("j")
	arm.Requirements.OS, arm.Requirements.Arch = "linux", "arm64"
	large := job("j")
	large.Requirements.MemoryMB = 64000
	some := job("j")
	some.Requirements.MemoryMB = 600
	parked := job("j")
	parked.Parked = "waits for approval"
	online := func(t *testing.T, q *lease.Queue, rs ...lease.Runner) {
		for _, r := range rs {
			if err := q.SetRunner(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	limited := func(t *testing.T, q *lease.Queue, l lease.Limit) {
		if err := q.SetLimit(t.Context(), "p", l); err != nil {
			t.Fatal(err)
		}
	}
	const at = "; settles as unschedulable at 2000-01-02T00:00:00Z"
	rows := []struct {
		name  string
		setup func(t *testing.T, q *lease.Queue)
		want  lease.Explanation
	}{
		{"no runner", func(t *testing.T, q *lease.Queue) {
			other := plain("other")
			other.Serves = []string{"elsewhere"}
			online(t, q, other)
			enqueue(t, q, gpu)
		}, lease.Explanation{Why: lease.WhyNoRunner, Sentence: "no runner is connected for p" + at}},
		{"runner went away", func(t *testing.T, q *lease.Queue) {
			online(t, q, plain("r1"))
			if err := q.RemoveRunner(t.Context(), "r1"); err != nil {
				t.Fatal(err)
			}
			enqueue(t, q, job("j"))
		}, lease.Explanation{Why: lease.WhyNoRunner, Sentence: "no runner is connected for p" + at}},
		{"capability", func(t *testing.T, q *lease.Queue) {
			online(t, q, plain("r1"))
			enqueue(t, q, gpu)
		}, lease.Explanation{Why: lease.WhyCapabilities, Online: 1, Lacking: []string{"gpu"}, Offered: []string{"docker", "git"},
			Sentence: "no runner offers gpu; 1 online runner offers: docker, git" + at}},
		{"capabilities on different runners", func(t *testing.T, q *lease.Queue) {
			bare := plain("r2")
			bare.Capabilities = []string{"gpu"}
			online(t, q, plain("r1"), bare)
			enqueue(t, q, gpu)
		}, lease.Explanation{Why: lease.WhyCapabilities, Online: 2, Lacking: []string{"docker", "gpu"}, Offered: []string{"docker", "git", "gpu"},
			Sentence: "no runner offers docker, gpu together; 2 online runners offer: docker, git, gpu" + at}},
		{"platform", func(t *testing.T, q *lease.Queue) {
			online(t, q, plain("r1"), plain("r2"))
			enqueue(t, q, arm)
		}, lease.Explanation{Why: lease.WhyPlatform, Online: 2, Sentence: "no runner runs linux/arm64; 2 runners online: linux/amd64" + at}},
		{"too large", func(t *testing.T, q *lease.Queue) {
			small := plain("r1")
			small.MemoryMB = 16000
			online(t, q, small)
			enqueue(t, q, large)
		}, lease.Explanation{Why: lease.WhyTooLarge, Online: 1, InUse: 64000, Limit: 16000,
			Sentence: "needs 64000 MiB of memory; the largest of 1 runner online has 16000 MiB" + at}},
		{"paused", func(t *testing.T, q *lease.Queue) {
			r := plain("r1")
			r.Paused = "on battery"
			online(t, q, r)
			enqueue(t, q, job("j"))
		}, lease.Explanation{Why: lease.WhyPaused, Online: 1, Sentence: "runner r1 takes no runs: on battery" + at}},
		{"several paused, one too small", func(t *testing.T, q *lease.Queue) {
			r, s, small := plain("r1"), plain("r2"), plain("r3")
			r.Paused, s.Paused, small.Paused, small.MemoryMB = "on battery", "paused by its owner", "asleep", 100
			online(t, q, r, s, small)
			enqueue(t, q, large)
		}, lease.Explanation{Why: lease.WhyPaused, Online: 3, Sentence: "2 runners that could take it are paused; runner r1: on battery" + at}},
		{"slots", func(t *testing.T, q *lease.Queue) {
			limited(t, q, lease.Limit{MaxConcurrent: 1})
			enqueue(t, q, job("first"), job("j"))
			take(t, q, plain("r1"))
		}, lease.Explanation{Why: lease.WhySlots, Online: 1, Able: 1, Home: "p", InUse: 1, Limit: 1,
			Sentence: "waits for a slot: pool p has 1 of 1 in use"}},
		{"budget", func(t *testing.T, q *lease.Queue) {
			limited(t, q, lease.Limit{MemoryMB: 1000})
			first := some
			first.ID = "first"
			enqueue(t, q, first, some)
			take(t, q, plain("r1"))
		}, lease.Explanation{Why: lease.WhyMemory, Online: 1, Able: 1, Home: "p", InUse: 600, Limit: 1000,
			Sentence: "waits for memory: pool p has 600 of 1000 MiB in use and the job declares 600"}},
		{"CPU budget", func(t *testing.T, q *lease.Queue) {
			limited(t, q, lease.Limit{CPU: 2000})
			first, second := job("first"), job("j")
			first.Requirements.CPU, second.Requirements.CPU = 1500, 1000
			enqueue(t, q, first, second)
			take(t, q, plain("r1"))
		}, lease.Explanation{Why: lease.WhyCPU, Online: 1, Able: 1, Home: "p", InUse: 1500, Limit: 2000,
			Sentence: "waits for CPU: pool p has 1.5 of 2 cores in use and the job declares 1"}},
		{"runner's memory", func(t *testing.T, q *lease.Queue) {
			r := plain("r1")
			r.MemoryMB = 1000
			first := some
			first.ID = "first"
			enqueue(t, q, first, some)
			take(t, q, r)
		}, lease.Explanation{Why: lease.WhyMemory, Online: 1, Able: 1, Home: "p", InUse: 600, Limit: 1000,
			Sentence: "waits for memory: runner r1 has 600 of 1000 MiB in use and the job declares 600"}},
		{"behind", func(t *testing.T, q *lease.Queue) {
			batch, other := job("batch"), job("other")
			batch.Class = lease.Batch
			other.Workspace = "w2"
			enqueue(t, q, batch, other, job("a"), arm1("b"), job("j"), job("after"))
			online(t, q, plain("r1"))
		}, lease.Explanation{Why: lease.WhyBehind, Online: 1, Able: 1, Ahead: 2, Sentence: "waits behind 2 runs of this workspace"}},
		{"busy", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("first"), job("j"))
			take(t, q, plain("r1"))
		}, lease.Explanation{Why: lease.WhyBusy, Online: 1, Able: 1,
			Sentence: "next of this workspace: waits for one of 1 runner to become free"}},
		{"parked", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, parked)
		}, lease.Explanation{State: lease.Parked, Why: lease.WhyParked, Reason: "waits for approval", Sentence: "parked: waits for approval"}},
		{"starting", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			take(t, q, plain("r1"))
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyStarting, Runner: "r1", Attempt: 1,
			Sentence: "leased to runner r1 as attempt 1, which must acknowledge the start by 2000-01-01T00:00:30Z"}},
		{"running", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			start(t, q, take(t, q, plain("r1")))
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyRunning, Runner: "r1", Attempt: 1, Sentence: "attempt 1 runs on runner r1"}},
		{"away", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			start(t, q, take(t, q, plain("r1")))
			time.Sleep(31 * time.Second)
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyAway, Runner: "r1", Attempt: 1,
			Sentence: "runner r1, which has attempt 1, is not connected; the attempt is given up at 2000-01-01T00:01:00Z"}},
		{"fenced", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			start(t, q, take(t, q, plain("r1")))
			if err := q.Fence(t.Context(), "r1"); err != nil {
				t.Fatal(err)
			}
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyFenced, Runner: "r1", Attempt: 1,
			Sentence: "runner r1, which has attempt 1, was revoked; the attempt is given up at 2000-01-01T00:01:00Z"}},
		{"fenced before its start", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			take(t, q, plain("r1"))
			if err := q.Fence(t.Context(), "r1"); err != nil {
				t.Fatal(err)
			}
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyFenced, Runner: "r1", Attempt: 1,
			Sentence: "runner r1, which has attempt 1, was revoked; the attempt is given up at 2000-01-01T00:00:30Z"}},
		{"held", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			if err := q.ParkLease(t.Context(), take(t, q, plain("r1")).Ref, "may I?"); err != nil {
				t.Fatal(err)
			}
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyParked, Runner: "r1", Attempt: 1, Reason: "may I?",
			Sentence: "parked on runner r1: may I?"}},
		{"stopping", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			take(t, q, plain("r1"))
			if _, err := q.Cancel(t.Context(), "j", "a typo"); err != nil {
				t.Fatal(err)
			}
		}, lease.Explanation{State: lease.Leased, Why: lease.WhyStopping, Runner: "r1", Attempt: 1, Reason: "a typo",
			Sentence: "runner r1 has been asked to stop attempt 1: a typo"}},
		{"settled", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, job("j"))
			if _, err := q.Cancel(t.Context(), "j", "a typo"); err != nil {
				t.Fatal(err)
			}
		}, lease.Explanation{State: lease.Settled, Why: lease.WhySettled, Outcome: lease.Cancelled, Reason: "a typo",
			Sentence: "settled as cancelled: a typo"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := openQueue(t, openDB(t), lease.Config{})
				row.setup(t, q)
				got, err := q.Explain(t.Context(), "j")
				if err != nil {
					t.Fatal(err)
				}
				row.want.Job = "j"
				if row.want.State == lease.Queued {
					row.want.Deadline = time.Now().Add(24 * time.Hour)
				}
				if diff := cmp.Diff(row.want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); diff != "" {
					t.Errorf("explanation (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// arm1 is a job that plain runners may take, in a lane of its own.
func arm1(id string) lease.Job {
	j := job(id)
	j.Requirements.Capabilities = []string{"docker"}
	return j
}

// TestF9_Unschedulable waits until the deadline that Explain names.
func TestF9_Unschedulable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, openDB(t), lease.Config{})
		if err := q.SetRunner(t.Context(), plain("r1")); err != nil {
			t.Fatal(err)
		}
		j := job("j")
		j.Requirements.Capabilities = []string{"gpu"}
		j.QueueDeadline = 90 * time.Minute
		enqueue(t, q, j)
		time.Sleep(90*time.Minute - time.Nanosecond)
		synctest.Wait()
		wantState(t, q, "j", lease.Queued, lease.OutcomeNone)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s := wantState(t, q, "j", lease.Settled, lease.Unschedulable)
		if want := "queued for 1h30m0s: no runner offers gpu; 1 online runner offers: docker, git"; s.Reason != want {
			t.Errorf("reason %q, want %q", s.Reason, want)
		}
	})
}

// order enqueues nothing and takes everything that is queued, by one runner, and tells in which order it came.
func order(t *testing.T, q *lease.Queue, n int) string {
	t.Helper()
	var ids []string
	for range n {
		l := take(t, q, plain("r1"))
		ids = append(ids, l.Job)
		if err := q.Settle(t.Context(), l.Ref, lease.Result{Outcome: lease.Succeeded}); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(ids, " ")
}

func of(workspace, id string, class lease.Class) lease.Job {
	j := job(id)
	j.Workspace, j.Class = workspace, class
	return j
}

// TestOrder takes a whole queue and looks at the order.
func TestOrder(t *testing.T) {
	t.Parallel()
	const inter, batch = lease.Interactive, lease.Batch
	rows := []struct {
		name  string
		setup func(t *testing.T, q *lease.Queue)
		want  string
	}{
		{"first in, first out", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, of("w", "a", inter), arm1("b"), of("w", "c", inter), arm1("d"))
		}, "a b c d"},
		{"interactive before batch", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, of("w", "a", batch), of("v", "b", batch), of("w", "c", inter))
		}, "c b a"}, // w has been served, so v is next
		{"batch ages", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, of("w", "a", batch))
			time.Sleep(59 * time.Second)
			enqueue(t, q, of("w", "b", batch))
			time.Sleep(time.Second)
			enqueue(t, q, of("w", "c", inter))
		}, "a c b"},
		{"workspaces take turns", func(t *testing.T, q *lease.Queue) {
			for i := range 4 {
				enqueue(t, q, of("big", fmt.Sprintf("b%d", i), inter))
			}
			enqueue(t, q, of("small", "s0", inter), of("small", "s1", inter))
		}, "b0 s0 b1 s1 b2 b3"},
		{"weights", func(t *testing.T, q *lease.Queue) {
			if err := q.SetWeight(t.Context(), "heavy", 2); err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				enqueue(t, q, of("light", fmt.Sprintf("l%d", i), inter))
			}
			for i := range 4 {
				enqueue(t, q, of("heavy", fmt.Sprintf("h%d", i), inter))
			}
		}, "l0 h0 h1 l1 h2 h3 l2 l3"},
		{"what cannot be placed is skipped", func(t *testing.T, q *lease.Queue) {
			gpu := of("w", "x", inter)
			gpu.Requirements.Capabilities = []string{"gpu"}
			enqueue(t, q, gpu, of("w", "a", inter))
		}, "a"},
		{"a returned job keeps its place", func(t *testing.T, q *lease.Queue) {
			enqueue(t, q, of("w", "a", inter), of("w", "b", inter), of("w", "c", inter))
			l := take(t, q, plain("r2"))
			if _, err := q.GiveBack(t.Context(), l.Ref, lease.Return{Reason: "drain"}); err != nil {
				t.Fatal(err)
			}
		}, "a b c"},
		{"a lane longer than its window", func(t *testing.T, q *lease.Queue) {
			for i := range 300 {
				enqueue(t, q, of("w", fmt.Sprintf("%03d", i), inter))
			}
			for _, id := range []string{"007", "150", "299"} { // in the window, behind it, the last
				if _, err := q.Cancel(t.Context(), id, ""); err != nil {
					t.Fatal(err)
				}
			}
		}, func() string {
			var ids []string
			for i := range 300 {
				if id := fmt.Sprintf("%03d", i); !slices.Contains([]string{"007", "150", "299"}, id) {
					ids = append(ids, id)
				}
			}
			return strings.Join(ids, " ")
		}()},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := openQueue(t, openDB(t), lease.Config{})
				row.setup(t, q)
				if got := order(t, q, len(strings.Fields(row.want))); got != row.want {
					t.Errorf("order %s, want %s", got, row.want)
				}
			})
		})
	}
}

// TestPrune lets settled jobs be forgotten: payloads soon, jobs after the retention, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		q := openQueue(t, db, lease.Config{Retention: time.Hour, QueueDeadline: 240 * time.Hour})
		for i := range 2000 {
			enqueue(t, q, job(fmt.Sprintf("j%d", i)))
		}
		order(t, q, 1990)
		rows := func(table string) (n int) {
			if err := db.Reader().QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		time.Sleep(5 * time.Minute)
		if p, j := rows("lease_payload"), rows("lease_job"); p != 10 || j != 2000 {
			t.Errorf("after minutes: %d payloads and %d jobs, want 10 and 2000", p, j)
		}
		time.Sleep(time.Hour)
		if p, j := rows("lease_payload"), rows("lease_job"); p != 10 || j != 10 {
			t.Errorf("after the retention: %d payloads and %d jobs, want 10 and 10", p, j)
		}
		if got := order(t, q, 1); got != "j1990" {
			t.Errorf("the next job is %s", got)
		}
	})
}
