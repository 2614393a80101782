package agent

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// leave lays attempts into the outbox of a runner that has not begun yet, as an earlier
// life of it has left them.
func leave(t *testing.T, r *Runner, finished bool, attempts ...outbox.Attempt) {
	t.Helper()
	result := ""
	if finished {
		result = `{}`
	}
	leaveResult(t, r, result, attempts...)
}

// leaveResult is leave with a result; empty: they are not finished.
func leaveResult(t *testing.T, r *Runner, result string, attempts ...outbox.Attempt) {
	t.Helper()
	out, err := outbox.Open(outbox.Config{Dir: filepath.Join(r.cfg.StateDir, outboxDir)})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts {
		spool, err := out.Create(a)
		if err == nil && result != "" {
			err = spool.Finish(json.RawMessage(result))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func epochs(held []link.HeldLease) (of []int64) {
	for _, l := range held {
		of = append(of, l.Epoch)
	}
	slices.Sort(of)
	return of
}

// beat has the runner renew its leases now.
func (w *world) beat() {
	w.t.Helper()
	w.r.mu.Lock()
	s := w.r.session
	w.r.mu.Unlock()
	if _, err := s.Heartbeat(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestP5_ResultsOfAnEarlierLifeAreHeld: a restarted runner names the leases of the results
// that wait in its outbox, in the hello and in each heartbeat until they are delivered.
// What it finds unfinished it does not hold any more, and what is another coordinator's it
// never held here.
func TestP5_ResultsOfAnEarlierLifeAreHeld(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t)
	d.deaf = true
	w := newWorldOf(d, func(r *Runner) {
		of := func(epoch int64, coordinator string) outbox.Attempt {
			return outbox.Attempt{Run: "run_1", Job: "job_1", Epoch: epoch, Token: "t", Coordinator: coordinator}
		}
		leave(t, r, true, of(1, r.cfg.URL), of(2, r.cfg.URL), of(4, "http://127.0.0.2:1"))
		leave(t, r, false, of(3, r.cfg.URL))
		r.cfg.DeliverTimeout = time.Millisecond // what is the other's stays
	})
	w.until("the hello", func() bool { return w.session != nil })
	saw[SessionUp](w)
	w.beat()
	w.mu.Lock()
	for name, held := range map[string][]link.HeldLease{"hello": w.greeted, "heartbeat": w.renewed} {
		if got := epochs(held); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("the %s names %v, want the results 1 and 2", name, got)
		}
		for _, l := range held {
			if l.Run != "run_1" || l.Job != "job_1" || l.Token != "t" || !l.Started || !l.Finished {
				t.Errorf("the %s holds %+v of attempt %d", name, l, l.Epoch)
			}
		}
	}
	w.mu.Unlock()
	if n := w.r.Undelivered(); n != 2 {
		t.Errorf("%d results wait for the coordinator, want 2", n)
	}
	w.note(func() { w.deaf = false })
	w.until("the results", func() bool { return w.results[1] == 1 && w.results[2] == 1 && w.results[3] == 1 })
	saw[Delivered](w)
	saw[Delivered](w)
	w.beat()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.r.Undelivered(); n != 0 || len(w.renewed) != 0 || w.results[4] != 0 {
		t.Errorf("delivered, %d results wait, the leases %v are renewed, and the other coordinator's result came %d times", n, epochs(w.renewed), w.results[4])
	}
}

// TestNothingIsLeftOfARunner: not even who waits for the coordinator to take its results.
func TestNothingIsLeftOfARunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fails with what is left
		r := New(Config{StateDir: t.TempDir()})
		leave(t, r, true, outbox.Attempt{Run: "run_1", Job: "job_1", Epoch: 1}, outbox.Attempt{Run: "run_1", Job: "job_1", Epoch: 2})
		out, err := outbox.Open(outbox.Config{Dir: filepath.Join(r.cfg.StateDir, outboxDir)})
		if err != nil {
			t.Fatal(err)
		}
		r.out = out
		r.takeUp(out.Finished())
		slot := newSlot()
		<-slot.free
		r.aside(func(ctx context.Context) { slot.rest(ctx, r.draining) })
		r.endAsides()
		r.aside(func(context.Context) { t.Error("begun after the end") })
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if n := r.Undelivered(); n != 2 {
			t.Errorf("%d results wait, want 2", n)
		}
	})
}

// However many results wait, the leases that are named fit into a message: what is worked
// on comes first, then the newest results.
func TestHeldLeasesAreBounded(t *testing.T) {
	t.Parallel()
	r := New(Config{StateDir: t.TempDir()})
	var err error
	if r.out, err = outbox.Open(outbox.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.out.Close(); err != nil {
			t.Error(err)
		}
	})
	const all = link.MaxLeases + 3
	for epoch := range int64(all) {
		r.enlist(&attempt{ref: link.AttemptRef{Run: "run_1", Job: "job_1", Epoch: epoch}, finished: epoch != 1})
	}
	got := epochs(r.held(true))
	if len(got) != link.MaxLeases || got[0] != 1 || got[1] != 4 || got[len(got)-1] != all-1 {
		t.Errorf("%d leases are named, %d of them below 4: %v; want attempt 1, which runs, and the newest %d results", len(got), slices.Index(got, 4), got, link.MaxLeases-1)
	}
}

// TestP8_ResultThatIsTooLarge: the coordinator hears of it as a failure that is not tried
// again, whoever has put it into the outbox.
func TestP8_ResultThatIsTooLarge(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("&", link.MaxResult/6+1) // six bytes each, in JSON
	w := newWorld(t, func(r *Runner) {
		leaveResult(t, r, `{"caseId":"c0","harness":"h","snapshot":{"kind":"repo","headSha":"`+strings.Repeat("f", link.MaxResult)+`"}}`,
			outbox.Attempt{Run: "run_0", Job: "job_0", Epoch: 7, Token: "t", Coordinator: r.cfg.URL})
		r.cfg.Paused = "the result of the earlier start comes first"
	})
	w.harness.outcome.Version = long
	check := func(epoch int64, caseID string) {
		t.Helper()
		w.until("the result", func() bool { return w.results[epoch] == 1 })
		w.mu.Lock()
		defer w.mu.Unlock()
		f := w.last.Failure
		if w.last.CaseID != caseID || f == nil || f.Reason != protocol.ReasonOverLimit || f.Class != protocol.ClassAgent || f.Retryable ||
			f.Limit == nil || f.Limit.Configured != link.MaxResult || f.Limit.Measured <= link.MaxResult {
			t.Errorf("the coordinator got a result of case %q with the failure %+v, want %s of case %s with its limit", w.last.CaseID, f, protocol.ReasonOverLimit, caseID)
		}
	}
	check(7, "c0")
	w.r.Resume()
	w.offer(1)
	w.wait("the job", w.harness.begun)
	close(w.harness.end)
	check(1, "c1")
}
