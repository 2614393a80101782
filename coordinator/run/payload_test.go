package run

import (
	"context"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// keeping opens the payloads' keeper, as a coordinator's Serve does.
func (w *world) keeping() {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.s.KeepPayloads(ctx) }()
	closing := w.close
	w.close = func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("keep payloads: %v", err)
		}
		closing()
	}
}

func (w *world) handOut(id string) *protocol.Payload {
	w.t.Helper()
	p, err := w.s.HandOut(w.t.Context(), ann, id, protocol.PayloadRequest{})
	if err != nil {
		w.t.Fatalf("hand out %s: %v", id, err)
	}
	if err := p.Validate(); err != nil {
		w.t.Fatalf("the payload of %s: %v", id, err)
	}
	return p
}

func (w *world) deliver(id string, attempt int64, result *protocol.CaseResult) protocol.PayloadResult {
	w.t.Helper()
	if result.CaseID == "" {
		result.CaseID = "c1"
	}
	got, err := w.s.Deliver(w.t.Context(), ann, id, attempt, result)
	if err != nil {
		w.t.Fatalf("deliver %s: %v", id, err)
	}
	return got
}

// TestP3_APayloadIsTheOnlyAttempt: what is out is given to nobody else, however long
// nothing is heard of it and across a restart, and its result settles the run once.
func TestP3_APayloadIsTheOnlyAttempt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeping()
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelf))
		p := w.handOut(id)
		if p.Attempt != 1 || p.Job.RunID != id || p.Job.Case.ID != "c1" || len(p.Job.Env) > 0 {
			t.Errorf("the payload is %s of attempt %d", dump(p), p.Attempt)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		if l, err := w.q.Pull(ctx, lease.PullRequest{RequestID: "r", Runner: w.leaseRunner(mac)}); err == nil {
			t.Fatalf("while it was out, attempt %d was leased to %s", l.Attempt, l.Runner)
		}
		w.restart()
		w.keeping()
		time.Sleep(3 * time.Hour)
		if r := w.record(id); r.Status != protocol.StatusRunning || r.Attempt != 1 {
			t.Errorf("after a restart the run is %s, attempt %d; want it running as attempt 1", r.Status, r.Attempt)
		}
		for range 2 { // the second is a repeat
			if got := w.deliver(id, 1, passed(true)); got.Late || got.Attempt != 1 {
				t.Errorf("delivered: %+v", got)
			}
		}
		w.tells(id, "succeeded attempt 1 verdict true", "1 settled +result",
			"submitted, leased 1, started 1 (handed out as a payload to ann), settled 1")
		if got := w.record(id).Provenance; got.By != "ann" || got.Attestation != "self_reported" || got.RunnerLabel != "payload" {
			t.Errorf("provenance %+v", got)
		}
	})
}

// TestP2_AResultOfAPayloadThatIsOverIsLate: taken back, cancelled or out for too long,
// the run has gone on, and the result changes nothing.
func TestP2_AResultOfAPayloadThatIsOverIsLate(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w *world, id string)
		want string
	}{
		"taken back": {func(w *world, id string) {
			mac := w.pair("ann", "mac")
			if err := w.s.TakeBack(w.t.Context(), ann, id); err != nil {
				w.t.Fatalf("take back: %v", err)
			}
			l := w.begin(mac)
			if l.Attempt != 2 {
				w.t.Errorf("attempt %d follows, want 2", l.Attempt)
			}
			w.finish(mac, l.Ref, passed(false))
		}, "succeeded"},
		"cancelled": {func(w *world, id string) {
			if _, err := w.s.Cancel(w.t.Context(), ann, id); err != nil {
				w.t.Fatalf("cancel: %v", err)
			}
			time.Sleep(time.Minute)
		}, "cancelled"},
		"out for too long": {func(w *world, id string) {
			time.Sleep(25 * time.Hour)
		}, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.keeping()
				w.pair("ann", "other")
				id := w.submit(request(protocol.TargetSelf))
				w.handOut(id)
				test.end(w, id)
				before := w.record(id)
				got := string(before.Status)
				if before.Failure != nil {
					got = before.Failure.Reason
				}
				if got != test.want {
					t.Fatalf("the run is %s, want %s: %s", got, test.want, dump(before))
				}
				if done := w.deliver(id, 1, passed(true)); !done.Late {
					t.Errorf("the result is not late: %+v", done)
				}
				after := w.record(id)
				if after.Status != before.Status || dump(after.Scores) != dump(before.Scores) || dump(after.Verdict) != dump(before.Verdict) {
					t.Errorf("the late result has changed the record:\n%s\nbefore\n%s", dump(after), dump(before))
				}
				a, err := w.store.Attempt(t.Context(), id, 1)
				if err != nil || a.LateAt == nil || a.Result == nil || len(a.Result.Scores) != 1 {
					t.Errorf("the late result is not kept: %s, %v", dump(a), err)
				}
			})
		})
	}
}

// TestPayloadRefused: what cannot be handed out, taken back or delivered is said, and
// changes nothing.
func TestPayloadRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeping()
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelf))
		admin := auth.Principal{Subject: "root", Workspace: "default", Roles: []string{protocol.RoleAdmin}}
		refused := func(what string, err error, want protocol.Code) {
			t.Helper()
			if got := code(err); got != want {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
		hand := func(p auth.Principal, run string, seconds *int64) error {
			_, err := w.s.HandOut(t.Context(), p, run, protocol.PayloadRequest{ExpiresInSec: seconds})
			return err
		}
		deliver := func(p auth.Principal, attempt int64, caseID string) error {
			r := passed(true)
			r.CaseID = caseID
			_, err := w.s.Deliver(t.Context(), p, id, attempt, r)
			return err
		}
		long := int64(protocol.MaxPayloadLife/time.Second) + 1
		refused("a run that is not there", hand(ann, "run_x", nil), protocol.CodeNotFound)
		refused("somebody else's run", hand(bob, id, nil), protocol.CodeForbidden)
		refused("for too long", hand(ann, id, &long), protocol.CodeBadRequest)
		refused("nothing to take back", w.s.TakeBack(t.Context(), ann, id), protocol.CodeConflict)
		refused("nothing to deliver", deliver(ann, 1, "c1"), protocol.CodeConflict)
		if r := w.record(id); r.Status != protocol.StatusQueued || r.Attempt != 0 {
			t.Errorf("the run is %s, attempt %d; want it untouched", r.Status, r.Attempt)
		}
		w.handOut(id)
		refused("twice", hand(ann, id, nil), protocol.CodeConflict)
		refused("taken back by somebody else", w.s.TakeBack(t.Context(), bob, id), protocol.CodeForbidden)
		refused("delivered by somebody else", deliver(bob, 1, "c1"), protocol.CodeForbidden)
		refused("another attempt", deliver(ann, 2, "c1"), protocol.CodeConflict)
		refused("another case", deliver(ann, 1, "c2"), protocol.CodeBadRequest)
		if err := w.s.TakeBack(t.Context(), admin, id); err != nil {
			t.Errorf("an admin takes it back: %v", err)
		}
		l := w.begin(mac)
		refused("a run that runs", hand(ann, id, nil), protocol.CodeConflict)
		w.finish(mac, l.Ref, passed(true))
		refused("a run that is over", hand(ann, id, nil), protocol.CodeConflict)
	})
}

// TestPayloadOfALimitedPool: a payload runs elsewhere, so the pool's limit does not hold
// it back, and its runner is nobody that another run could go to.
func TestPayloadOfALimitedPool(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeping()
		one := 1
		spec := protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: "lab", Version: "1.0.0", MaxConcurrent: &one}
		if _, err := w.runtimes.Register(t.Context(), "default", "ann", spec); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.handOut(w.submit(request("lab")))
		}
		if _, err := w.s.Submit(t.Context(), ann, request(protocol.TargetSelf)); code(err) != protocol.CodeNotFound {
			t.Errorf("a run for the submitter's own runners: %v, want that there is none", err)
		}
		if list, err := w.runners.List(t.Context(), "default", ""); err != nil || len(list) != 0 {
			t.Errorf("listed are %v, %v; want nobody", list, err)
		}
	})
}
