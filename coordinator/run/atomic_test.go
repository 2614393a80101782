package run

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// TestP2_RecordAndJobAreOne: when the record cannot be written, the job does not
// change either, whatever the operation, and once it can, all goes on.
func TestP2_RecordAndJobAreOne(t *testing.T) {
	t.Parallel()
	type operation func(w *world, l lease.Lease, h Holder) error
	for name, row := range map[string]struct {
		started bool
		asking  bool
		do      operation
	}{
		"started": {do: func(w *world, l lease.Lease, h Holder) error { return w.s.Started(w.t.Context(), l.Ref, h) }},
		"finish": {started: true, do: func(w *world, l lease.Lease, h Holder) error {
			_, err := w.s.Finish(w.t.Context(), l.Ref, h, []byte(dump(passed(true))))
			return err
		}},
		"finish, to try again": {started: true, do: func(w *world, l lease.Lease, h Holder) error {
			_, err := w.s.Finish(w.t.Context(), l.Ref, h, []byte(dump(broke(protocol.ClassInfra, protocol.ReasonImage, true))))
			return err
		}},
		"give back": {started: true, do: func(w *world, l lease.Lease, h Holder) error { return w.s.GiveBack(w.t.Context(), l.Ref, "draining") }},
		"lost":      {started: true, do: func(w *world, l lease.Lease, h Holder) error { return w.s.Lost(w.t.Context(), l.Ref, "disk full") }},
		"answer": {started: true, asking: true, do: func(w *world, l lease.Lease, h Holder) error {
			return w.q.Resume(w.t.Context(), l.Job)
		}},
		"cancel": {started: true, do: func(w *world, l lease.Lease, h Holder) error {
			if err := w.q.RemoveRunner(w.t.Context(), h.Runner.ID); err != nil {
				return err
			}
			_, err := w.q.Cancel(w.t.Context(), l.Job, "by bob")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				l := w.take(mac)
				if row.started {
					if err := w.s.Started(t.Context(), l.Ref, mac); err != nil {
						t.Fatal(err)
					}
				}
				if row.asking {
					w.ask(mac, l.Ref, "q1", "May I?")
				}
				before, story := w.status(id), w.story(id)
				good := w.swapRecord(id, []byte("{"))
				if err := row.do(w, l, mac); err == nil {
					t.Error("done without its record")
				}
				if d := cmp.Diff(before, w.status(id)); d != "" {
					t.Errorf("the job changed without its record (-before):\n%s", d)
				}
				w.swapRecord(id, good)
				if got := w.story(id); got != story {
					t.Errorf("the run's story is\n%s\nbefore\n%s", got, story)
				}
				if err := row.do(w, l, mac); err != nil {
					t.Errorf("done again: %v", err)
				}
				w.record(id)
			})
		})
	}
}

// TestP2_AnExpiryWaitsForItsRecord: a lease whose end cannot be written down ends
// when it can, and not before.
func TestP2_AnExpiryWaitsForItsRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		w.begin(mac)
		good := w.swapRecord(id, []byte("{"))
		time.Sleep(65 * time.Second)
		if s := w.status(id); s.State != lease.Leased || s.Attempt != 1 {
			t.Errorf("the job is %+v", s)
		}
		w.swapRecord(id, good)
		time.Sleep(2 * time.Second)
		w.tells(id, "queued attempt 1", "1 expired: runner mac did not renew its lease in time",
			"submitted, leased 1, started 1, requeued 1 (runner mac did not renew its lease in time)")
	})
}

func (w *world) status(id string) lease.Status {
	w.t.Helper()
	s, err := w.q.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// swapRecord puts bytes in the place of a run's record and returns what was there.
func (w *world) swapRecord(id string, record []byte) (was []byte) {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), func(tx *sqlite.Tx) error {
		if err := tx.QueryRow(`SELECT record FROM runs WHERE id = ?`, id).Scan(&was); err != nil {
			return err
		}
		_, err := tx.Exec(`UPDATE runs SET record = ? WHERE id = ?`, record, id)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return was
}

// TestP2_TheEndRaces: the same result on many streams, a cancellation and a give-back
// at the same moment settle the run once, and the record is one of them.
func TestP2_TheEndRaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	mac := w.pair("ann", "mac")
	for range 20 {
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := w.s.Finish(t.Context(), l.Ref, mac, []byte(dump(passed(true)))); err != nil {
					t.Errorf("finish: %v", err)
				}
			})
		}
		all.Go(func() {
			if _, err := w.s.Cancel(t.Context(), bob, id); err != nil && code(err) != protocol.CodeConflict {
				t.Errorf("cancel: %v", err)
			}
		})
		all.Go(func() { _ = w.s.GiveBack(t.Context(), l.Ref, "draining") }) // stale, most often
		all.Wait()
		r := w.record(id)
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
		if over := r.Status.Terminal(); over != (settled == 1) || settled > 1 {
			t.Errorf("the run is %s and has settled %d times: %s", r.Status, settled, dump(events))
		}
		if r.Status == protocol.StatusQueued {
			w.cancel(id) // it was given back before all else: leave the queue empty for the next round
		}
	}
}
