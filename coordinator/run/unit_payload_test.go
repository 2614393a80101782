package run

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// cluster is a world with a runtime that has one slot.
func (w *world) cluster() {
	w.t.Helper()
	one := 1
	w.keeping()
	w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", MaxConcurrent: &one, Payload: true})
	w.s.OnLaunch(launcher{})
}

// handOutTo gives a run to a unit for an hour.
func (w *world) handOutTo(id string, before int64, unit string) (*protocol.Payload, error) {
	w.t.Helper()
	doc, err := w.s.HandOutTo(w.t.Context(), "default", id, before, "cluster", unit, time.Hour)
	if err != nil {
		return nil, err
	}
	p, err := protocol.DecodePayload(doc)
	if err != nil {
		w.t.Fatalf("the payload of %s: %v", id, err)
	}
	if size, err := w.s.PayloadSize(w.t.Context(), id); err != nil || size < len(doc) {
		w.t.Errorf("the payload of %s has %d bytes, and at most %d were announced, %v", id, len(doc), size, err)
	}
	return p, nil
}

// of is the lease of a run.
func (w *world) of(id string) lease.Lease {
	w.t.Helper()
	all, err := w.q.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range all {
		if l.Job == id {
			return l
		}
	}
	w.t.Fatalf("nobody holds %s", id)
	return lease.Lease{}
}

// TestP3_AUnitHoldsItsPayload: it has a slot of its pool, nobody takes it back, silence and a
// restart do not end it, and the word of its cluster does.
func TestP3_AUnitHoldsItsPayload(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster()
		id, next := w.submit(request("cluster")), w.submit(request("cluster"))
		p, err := w.handOutTo(id, 0, "unit-1")
		if err != nil || p.Attempt != 1 {
			t.Fatalf("hand out: %v, %v", p, err)
		}
		if r, err := w.runners.Get(t.Context(), "default", w.of(id).Runner); err != nil || r.Unit != "unit-1" || r.Runtime != "cluster" || r.Job != id {
			t.Errorf("the holder is %+v, %v; want the unit's", r, err)
		}
		if _, err := w.handOutTo(next, 0, "unit-2"); code(err) != protocol.CodeConflict {
			t.Errorf("beyond the pool's limit: %v, want a conflict", err)
		}
		if err := w.s.TakeBack(t.Context(), ann, id); code(err) != protocol.CodeConflict || !strings.Contains(err.Error(), "unit-1") {
			t.Errorf("taken back: %v, want that the unit has it", err)
		}
		w.restart()
		w.keeping()
		w.s.OnLaunch(launcher{})
		time.Sleep(50 * time.Minute)
		l := w.of(id)
		if l.Attempt != 1 {
			t.Fatalf("attempt %d is held, want 1", l.Attempt)
		}
		f := protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassInfra, Reason: protocol.ReasonEvicted, Code: protocol.CodeUpstreamError,
			Message: "unit-1 is gone", Retryable: true}
		if err := w.s.Ended(t.Context(), l, f); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if p, err = w.handOutTo(id, 1, "unit-3"); err != nil || p.Attempt != 2 {
			t.Fatalf("the next attempt: %v, %v", p, err)
		}
		if got := w.deliver(id, 2, passed(true)); got.Late {
			t.Errorf("delivered by hand: %+v", got)
		}
		if got := w.record(id).Provenance; got.RunnerLabel != "unit-3" || got.Attempt != 2 {
			t.Errorf("provenance %+v", got)
		}
	})
}

// TestAUnitThatIsNeverHeardOf costs its time and no more, and says what is known.
func TestAUnitThatIsNeverHeardOf(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster()
		id := w.submit(request("cluster"))
		if _, err := w.handOutTo(id, 0, "unit-1"); err != nil {
			t.Fatal(err)
		}
		w.s.Foretell(id, 1, protocol.Failure{Reason: protocol.ReasonLost, Message: "unit-1 is on a node that does not answer"})
		time.Sleep(61 * time.Minute)
		f := w.record(id).Failure
		if f == nil || f.Reason != protocol.ReasonLost || f.Retryable || !strings.Contains(f.Message, "as a payload to unit-1") || !strings.Contains(f.Message, "does not answer") {
			t.Errorf("the failure is %s, want it lost for good, with what was known", dump(f))
		}
	})
}

// TestPayloadNotForAUnit: what cannot be handed out is said, and changes nothing.
func TestPayloadNotForAUnit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster()
		id := w.submit(request("cluster"))
		for name, try := range map[string]func() error{
			"a later attempt": func() error { _, err := w.handOutTo(id, 1, "unit-1"); return err },
			"no such run":     func() error { _, err := w.handOutTo("run_x", 0, "unit-1"); return err },
		} {
			if err := try(); code(err) != protocol.CodeConflict {
				t.Errorf("%s: %v, want a conflict", name, err)
			}
		}
		if r := w.record(id); r.Status != protocol.StatusQueued || r.Attempt != 0 {
			t.Errorf("the run is %s, attempt %d; want it untouched", r.Status, r.Attempt)
		}
	})
}

// TestP12_NoPayloadWithSecrets: a harness that names secrets is refused where units are given
// payloads, by name and among several, and is sent past them; what was accepted before the
// runtime changed has no payload.
func TestP12_NoPayloadWithSecrets(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeping()
		w.s.OnLaunch(launcher{})
		w.setSecret(ofAnn, protocol.SecretWorkspace, "NAME", "value")
		keyed := w.deploys("KEY=NAME")
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster"})
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "other"})
		before := w.submit(request("cluster", keyed))
		w.register(protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "cluster", Version: "1.0.1", Payload: true})
		for _, target := range []string{"cluster", "other,cluster"} {
			_, err := w.s.Submit(t.Context(), ann, request(target, keyed))
			if code(err) != protocol.CodeBadRequest || !strings.Contains(err.Error(), "names secrets") || !strings.Contains(err.Error(), "NAME") {
				t.Errorf("%s: %v, want it refused with the secret's name", target, err)
			}
		}
		if run, err := w.s.Submit(t.Context(), ann, request("", keyed)); err != nil || run.Placement.Runtime == nil || run.Placement.Runtime.ID != "other" {
			t.Errorf("without a runtime: %v, %s; want the other one", err, dump(run.Placement))
		}
		if _, err := w.s.Submit(t.Context(), ann, request("cluster")); err != nil {
			t.Errorf("without secrets: %v", err)
		}
		if _, err := w.s.PayloadSize(t.Context(), before); code(err) != protocol.CodeBadRequest {
			t.Errorf("the payload of what was accepted before: %v, want that there is none", err)
		}
		if _, err := w.handOutTo(before, 0, "unit-1"); code(err) != protocol.CodeBadRequest {
			t.Errorf("handed out: %v, want that it cannot be", err)
		}
	})
}

// TestP2_AResultThatAUnitHasLeft: of an attempt that its unit's runner held and that has no
// result, it is late evidence. Of any other nobody asks for it.
func TestP2_AResultThatAUnitHasLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster()
		id := w.submit(request("cluster"))
		if _, err := w.handOutTo(id, 0, "unit-1"); err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(passed(true))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		keep := func(attempt int64, unit string, doc []byte) {
			t.Helper()
			err := w.s.Recover(t.Context(), "default", id, attempt, unit, func(context.Context) []byte { asked++; return doc })
			if err != nil {
				t.Fatalf("recover attempt %d of %s: %v", attempt, unit, err)
			}
		}
		time.Sleep(25 * time.Hour) // its time is over
		before := w.record(id)
		keep(1, "unit-2", doc)
		keep(2, "unit-1", doc)
		if asked != 0 {
			t.Errorf("asked %d times for the result of other attempts", asked)
		}
		keep(1, "unit-1", nil)
		keep(1, "unit-1", doc)
		keep(1, "unit-1", doc)
		a, err := w.s.Attempts(t.Context(), ann, id)
		if err != nil || asked != 2 || len(a) != 1 || a[0].LateAt == nil || a[0].Result == nil {
			t.Errorf("asked %d times, attempts %s, %v; want the late result, asked for until it was there", asked, dump(a), err)
		}
		if after := w.record(id); after.Status != before.Status || dump(after.Failure) != dump(before.Failure) {
			t.Errorf("the run was %s and is %s, want it unchanged", dump(before), dump(after))
		}
	})
}
