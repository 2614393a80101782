package run

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// waits checks that a question has no answer yet.
func (a *asked) waits(t *testing.T, when string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		t.Errorf("%s: the question ended with %+v, %v", when, a.answer, a.err)
	default:
	}
}

// heard checks the answer that came.
func (a *asked) heard(t *testing.T, when, id string, approved bool, by string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
	default:
		t.Fatalf("%s: the question still waits", when)
	}
	if a.err != nil || a.answer.ID != id || a.answer.Approved != approved || a.answer.By != by {
		t.Errorf("%s: heard %+v, %v; want %s %v by %s", when, a.answer, a.err, id, approved, by)
	}
}

// TestP4_Ask: a question suspends the run, is asked once however often it is put,
// and its answer is there for whoever asks again with its id.
func TestP4_Ask(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, w *world, h Holder, l lease.Lease){
		"asked again after the answer": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			first := w.ask(h, l.Ref, "q1", "May I?")
			first.waits(t, "before the answer")
			w.decide(l.Job, true, "")
			first.heard(t, "after the answer", "q1", true, "bob")
			w.ask(h, l.Ref, "q1", "May I?").heard(t, "asked again", "q1", true, "bob")
			w.tells(l.Job, "running attempt 1", "1 active [q1 true by bob]",
				"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (approved by bob)")
		},
		"the same question on two sessions": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			first, second := w.ask(h, l.Ref, "q1", "May I?"), w.ask(h, l.Ref, "q1", "May I?")
			w.decide(l.Job, true, "")
			first.heard(t, "first", "q1", true, "bob")
			second.heard(t, "second", "q1", true, "bob")
			w.tells(l.Job, "running attempt 1", "1 active [q1 true by bob]",
				"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (approved by bob)")
		},
		"two questions, one after the other": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			first, second := w.ask(h, l.Ref, "q1", "May I?"), w.ask(h, l.Ref, "q2", "Really?")
			w.tells(l.Job, "suspended attempt 1 ask q1: May I?", "1 active", "submitted, leased 1, started 1, suspended 1 (May I?)")
			w.decide(l.Job, true, "")
			first.heard(t, "first", "q1", true, "bob")
			second.waits(t, "its turn")
			w.decide(l.Job, false, "no")
			second.heard(t, "second", "q2", false, "bob")
			w.tells(l.Job, "running attempt 1", "1 active [q1 true by bob] [q2 false by bob]",
				"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (approved by bob), suspended 1 (Really?), resumed 1 (rejected by bob: no)")
		},
		"a no is an answer": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			q := w.ask(h, l.Ref, "q1", "May I?")
			if _, err := w.s.Reject(t.Context(), bob, l.Job, protocol.Decision{Comment: strings.Repeat("x", protocol.MaxComment+1)}); code(err) != protocol.CodeBadRequest {
				t.Errorf("a comment that no record has room for: %v, want BAD_REQUEST", err)
			}
			run, err := w.s.Reject(t.Context(), bob, l.Job, protocol.Decision{Comment: "use the other one"})
			if err != nil || run.Status != protocol.StatusRunning {
				t.Errorf("rejecting a question left the run %s, %v", run.Status, err)
			}
			q.heard(t, "rejected", "q1", false, "bob")
			if q.answer.Comment != "use the other one" || q.answer.Question != "May I?" {
				t.Errorf("heard %+v", q.answer)
			}
			w.finish(h, l.Ref, passed(true))
			if r := w.record(l.Job); r.Status != protocol.StatusSucceeded {
				t.Errorf("the run is %s", dump(r))
			}
		},
		"answered while the session was away": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			q := w.ask(h, l.Ref, "q1", "May I?")
			q.leave()
			<-q.done
			if !errors.Is(q.err, context.Canceled) {
				t.Errorf("who leaves hears %v", q.err)
			}
			w.decide(l.Job, true, "")
			w.ask(h, l.Ref, "q1", "May I?").heard(t, "back again", "q1", true, "bob")
		},
		"withdrawn": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			first, second := w.ask(h, l.Ref, "q1", "May I?"), w.ask(h, l.Ref, "q2", "Really?")
			withdraw := func(ref lease.Ref, id string) {
				t.Helper()
				if err := w.s.Withdraw(t.Context(), ref, id); err != nil {
					t.Errorf("withdraw %s: %v", id, err)
				}
				synctest.Wait()
			}
			second.leave()
			withdraw(l.Ref, "q2") // it had not been put
			w.tells(l.Job, "suspended attempt 1 ask q1: May I?", "1 active", "submitted, leased 1, started 1, suspended 1 (May I?)")
			first.leave()
			withdraw(l.Ref, "q1")
			withdraw(l.Ref, "q1") // again
			w.tells(l.Job, "running attempt 1", "1 active",
				"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (the job withdrew its question)")
			third := w.ask(h, l.Ref, "q3", "And this?")
			other := l.Ref
			other.Attempt++
			withdraw(other, "q3")
			third.waits(t, "after another attempt's withdrawal")
			w.decide(l.Job, true, "")
			third.heard(t, "third", "q3", true, "bob")
			w.finish(h, l.Ref, passed(true))
			withdraw(l.Ref, "q3")
		},
		"open over a restart": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			w.ask(h, l.Ref, "q1", "May I?").leave()
			synctest.Wait()
			w.restart()
			again := w.ask(h, l.Ref, "q1", "May I?")
			again.waits(t, "after the restart")
			w.tells(l.Job, "suspended attempt 1 ask q1: May I?", "1 active", "submitted, leased 1, started 1, suspended 1 (May I?)")
			w.decide(l.Job, true, "")
			again.heard(t, "after the restart", "q1", true, "bob")
		},
		"answered, then a restart": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			w.ask(h, l.Ref, "q1", "May I?").leave()
			synctest.Wait()
			w.decide(l.Job, true, "")
			w.restart()
			w.ask(h, l.Ref, "q1", "May I?").heard(t, "after the restart", "q1", true, "bob")
		},
		"the run ends meanwhile": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			q := w.ask(h, l.Ref, "q1", "May I?")
			w.finish(h, l.Ref, passed(true))
			synctest.Wait()
			if !errors.Is(q.err, lease.ErrAlreadySettled) {
				t.Errorf("heard %+v, %v", q.answer, q.err)
			}
		},
		"the lease is lost meanwhile": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			q := w.ask(h, l.Ref, "q1", "May I?")
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if _, stale := lease.IsStale(q.err); !stale {
				t.Errorf("heard %+v, %v", q.answer, q.err)
			}
			// The next attempt asks for itself.
			next := w.begin(h)
			w.ask(h, next.Ref, "q1", "May I?").waits(t, "the next attempt")
		},
		"for days": func(t *testing.T, w *world, h Holder, l lease.Lease) {
			q := w.ask(h, l.Ref, "q1", "May I?")
			w.renew(h, l.Ref, 72*time.Hour)
			q.waits(t, "after three days")
			w.decide(l.Job, true, "")
			q.heard(t, "after three days", "q1", true, "bob")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				test(t, w, mac, w.begin(mac))
			})
		})
	}
}

// TestP4_AskedBeforeTheStartWasAcknowledged: the question of a job and the
// acknowledgement of its start race each other; the run is suspended either way.
func TestP4_AskedBeforeTheStartWasAcknowledged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.take(mac)
		q := w.ask(mac, l.Ref, "q1", "May I?")
		if err := w.s.Started(t.Context(), l.Ref, mac); err != nil {
			t.Fatal(err)
		}
		q.waits(t, "after the start")
		w.tells(l.Job, "suspended attempt 1 ask q1: May I?", "1 active", "submitted, leased 1, started 1, suspended 1 (May I?)")
		w.decide(l.Job, true, "")
		q.heard(t, "after the start", "q1", true, "bob")
	})
}

// TestP2_DecisionsInEachState: what approve, reject and cancel do to a run in each
// state. A refusal changes nothing.
func TestP2_DecisionsInEachState(t *testing.T) {
	t.Parallel()
	const conflict = protocol.CodeConflict
	type outcome struct {
		status protocol.Status
		code   protocol.Code
	}
	to := func(s protocol.Status) outcome { return outcome{status: s} }
	refused := outcome{code: conflict}
	const queued, running, suspended, succeeded, failed = protocol.StatusQueued, protocol.StatusRunning, protocol.StatusSuspended, protocol.StatusSucceeded, protocol.StatusFailed
	for name, row := range map[string]struct {
		edit                    func(*protocol.RunRequest)
		do                      func(w *world, id string, h Holder)
		approve, reject, cancel outcome
	}{
		"queued":   {approve: refused, reject: refused, cancel: to(failed)},
		"leased":   {do: func(w *world, id string, h Holder) { w.take(h) }, approve: refused, reject: refused, cancel: to(queued)},
		"running":  {do: func(w *world, id string, h Holder) { w.begin(h) }, approve: refused, reject: refused, cancel: to(running)},
		"requeued": {do: func(w *world, id string, h Holder) { w.giveBack(w.begin(h).Ref, "x") }, approve: refused, reject: refused, cancel: to(failed)},
		"parked":   {edit: beforeStart, approve: to(queued), reject: to(failed), cancel: to(failed)},
		"asking": {do: func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?") },
			approve: to(running), reject: to(running), cancel: to(suspended)},
		"stopping":            {do: func(w *world, id string, h Holder) { w.begin(h); w.cancel(id) }, approve: refused, reject: refused, cancel: to(running)},
		"asking and stopping": {do: func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?"); w.cancel(id) }, approve: to(running), reject: to(running), cancel: to(suspended)},
		"succeeded":           {do: func(w *world, id string, h Holder) { w.finish(h, w.begin(h).Ref, passed(true)) }, approve: refused, reject: refused, cancel: refused},
		"failed": {do: func(w *world, id string, h Holder) {
			w.finish(h, w.begin(h).Ref, broke(protocol.ClassAgent, protocol.ReasonCrashed, false))
		},
			approve: refused, reject: refused, cancel: refused},
		"cancelled": {do: func(w *world, id string, h Holder) { w.cancel(id) }, approve: refused, reject: refused, cancel: to(failed)},
		"rejected": {edit: beforeStart, do: func(w *world, id string, h Holder) { w.decide(id, false, "") },
			approve: refused, reject: refused, cancel: to(failed)},
	} {
		type op struct {
			want outcome
			do   func(s *Service, ctx context.Context, p auth.Principal, id string) (protocol.Run, error)
		}
		for verb, o := range map[string]op{
			"approve": {row.approve, func(s *Service, ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
				return s.Approve(ctx, p, id, protocol.Decision{})
			}},
			"reject": {row.reject, func(s *Service, ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
				return s.Reject(ctx, p, id, protocol.Decision{})
			}},
			"cancel": {row.cancel, (*Service).Cancel},
		} {
			t.Run(verb+" "+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					mac := w.pair("ann", "mac")
					edit := row.edit
					if edit == nil {
						edit = func(*protocol.RunRequest) {}
					}
					id := w.submit(request(protocol.TargetSelfPrefix+mac.Runner.ID, edit))
					if row.do != nil {
						row.do(w, id, mac)
					}
					before := w.story(id)
					run, err := o.do(w.s, t.Context(), bob, id)
					if code(err) != o.want.code || run.Status != o.want.status {
						t.Errorf("the run is %s, %v; want %s, %s", run.Status, err, o.want.status, o.want.code)
					}
					if p := new(protocol.Problem); errors.As(err, &p) && !strings.Contains(p.Hint, id) {
						t.Errorf("%v has the hint %q, want a next step for %s", err, p.Hint, id)
					}
					after := w.story(id)
					if err != nil && after != before {
						t.Errorf("the refusal changed the run to\n%s\nfrom\n%s", after, before)
					}
					// Of another workspace there is nothing to decide.
					if _, err := o.do(w.s, t.Context(), auth.Principal{Subject: "bob", Workspace: "other"}, id); code(err) != protocol.CodeNotFound {
						t.Errorf("in another workspace: %v, want NOT_FOUND", err)
					}
					if got := w.story(id); got != after {
						t.Errorf("another workspace changed the run to\n%s", got)
					}
				})
			})
		}
	}
}

// TestP2_DecisionsRace: of an approval, a rejection and a cancellation at the same
// moment, one decides, and the others are told what is.
func TestP2_DecisionsRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	mac := w.pair("ann", "mac")
	for range 20 {
		id := w.submit(request(protocol.TargetSelfPrefix+mac.Runner.ID, beforeStart))
		var approved, rejected, cancelled error
		var all sync.WaitGroup
		all.Go(func() { _, approved = w.s.Approve(t.Context(), bob, id, protocol.Decision{}) })
		all.Go(func() { _, rejected = w.s.Reject(t.Context(), bob, id, protocol.Decision{}) })
		all.Go(func() { _, cancelled = w.s.Cancel(t.Context(), bob, id) })
		all.Wait()
		r := w.record(id)
		for what, err := range map[string]error{"approve": approved, "reject": rejected, "cancel": cancelled} {
			if err != nil && code(err) != protocol.CodeConflict {
				t.Errorf("%s: %v", what, err)
			}
		}
		if approved == nil && rejected == nil {
			t.Errorf("both said to have decided: %s", dump(r))
		}
		if r.Status != protocol.StatusFailed { // approved or not, the cancellation came
			t.Errorf("the run is %s after a cancellation", r.Status)
		}
		if (r.Failure.Reason == protocol.ReasonRejected) != (rejected == nil) {
			t.Errorf("rejected: %v, but the run failed as %s", rejected, r.Failure.Reason)
		}
		events, err := w.s.Events(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		settled := 0
		for _, e := range events {
			if e.Kind == protocol.RunSettled {
				settled++
			}
		}
		if settled != 1 {
			t.Errorf("settled %d times: %s", settled, dump(events))
		}
	}
}

// TestP2_ADecisionIsAboutWhatWasSeen: who approves one question does not answer the
// next one, which opened while they decided.
func TestP2_ADecisionIsAboutWhatWasSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		first := w.ask(mac, l.Ref, "q1", "May I?")
		// While the writer is held up, all of them have read the first question.
		free := make(chan struct{})
		held := make(chan error, 1)
		go func() { held <- w.db.Write(t.Context(), func(*sqlite.Tx) error { <-free; return nil }) }()
		synctest.Wait()
		errs := make(chan error, 2)
		go func() { _, err := w.s.Approve(t.Context(), ann, id, protocol.Decision{}); errs <- err }()
		synctest.Wait()
		second := w.ask(mac, l.Ref, "q2", "May I delete it all?")
		go func() { _, err := w.s.Approve(t.Context(), bob, id, protocol.Decision{}); errs <- err }()
		synctest.Wait()
		close(free)
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		one, two := <-errs, <-errs
		if code(one)+code(two) != protocol.CodeConflict {
			t.Errorf("the decisions were answered %v and %v, want one conflict", one, two)
		}
		first.heard(t, "the first", "q1", true, "ann")
		second.waits(t, "the second")
		w.tells(id, "suspended attempt 1 ask q2: May I delete it all?", "1 active [q1 true by ann]",
			"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (approved by ann), suspended 1 (May I delete it all?)")
	})
}
