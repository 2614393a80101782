package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestP2_P8_WhatEachChangeTells: for each kind of change, by each cause and in each
// state, what the record, the attempts and the events say afterwards.
func TestP2_P8_WhatEachChangeTells(t *testing.T) {
	t.Parallel()
	const lost = "runner mac did not renew its lease in time"
	once := func(w *world) { w.cfg.MaxAttempts, w.cfg.MaxUnstarted = 1, 1 }
	expire := func(w *world) { time.Sleep(time.Minute + time.Second) }
	for name, row := range map[string]struct {
		configure func(*world)
		request   func(*protocol.RunRequest)
		do        func(w *world, id string, h Holder)
		want      []string
	}{
		"leased": {
			do:   func(w *world, id string, h Holder) { w.take(h) },
			want: []string{"queued", "1 active", "submitted, leased 1"},
		},
		"started": {
			do:   func(w *world, id string, h Holder) { w.begin(h) },
			want: []string{"running attempt 1", "1 active", "submitted, leased 1, started 1"},
		},
		"requeued: given back unstarted": {
			do:   func(w *world, id string, h Holder) { w.giveBack(w.take(h).Ref, "busy") },
			want: []string{"queued", "1 released: busy", "submitted, leased 1, requeued 1 (busy)"},
		},
		"requeued: given back while running": {
			do:   func(w *world, id string, h Holder) { w.giveBack(w.begin(h).Ref, "draining") },
			want: []string{"queued attempt 1", "1 released: draining", "submitted, leased 1, started 1, requeued 1 (draining)"},
		},
		"requeued: its result was lost": {
			do:   func(w *world, id string, h Holder) { w.lose(w.begin(h).Ref, "disk full") },
			want: []string{"queued attempt 1", "1 released: disk full", "submitted, leased 1, started 1, requeued 1 (disk full)"},
		},
		"requeued: expired": {
			do:   func(w *world, id string, h Holder) { w.begin(h); expire(w) },
			want: []string{"queued attempt 1", "1 expired: " + lost, "submitted, leased 1, started 1, requeued 1 (" + lost + ")"},
		},
		"requeued: expired unstarted": {
			configure: func(w *world) { w.cfg.StartAck = time.Hour },
			do:        func(w *world, id string, h Holder) { w.take(h); expire(w) },
			want:      []string{"queued", "1 expired: " + lost, "submitted, leased 1, requeued 1 (" + lost + ")"},
		},
		"requeued: start not acknowledged": {
			do: func(w *world, id string, h Holder) { w.take(h); time.Sleep(31 * time.Second) },
			want: []string{"queued", "1 expired: runner mac took the run but did not acknowledge its start",
				"submitted, leased 1, requeued 1 (runner mac took the run but did not acknowledge its start)"},
		},
		"requeued: not back after a restart": {
			do: func(w *world, id string, h Holder) { w.begin(h); w.restart(); expire(w) },
			want: []string{"queued attempt 1", "1 expired: runner mac did not come back after the coordinator was restarted",
				"submitted, leased 1, started 1, requeued 1 (runner mac did not come back after the coordinator was restarted)"},
		},
		"requeued: while it asks": {
			do: func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?"); expire(w) },
			want: []string{"queued attempt 1", "1 expired: " + lost,
				"submitted, leased 1, started 1, suspended 1 (May I?), requeued 1 (" + lost + ")"},
		},
		"requeued twice, then done": {
			do: func(w *world, id string, h Holder) {
				w.begin(h)
				expire(w)
				w.giveBack(w.begin(h).Ref, "draining")
				w.finish(h, w.begin(h).Ref, passed(true))
			},
			want: []string{"succeeded attempt 3 verdict true", "1 expired: " + lost, "2 released: draining", "3 settled +result",
				"submitted, leased 1, started 1, requeued 1 (" + lost + "), leased 2, started 2, requeued 2 (draining), leased 3, started 3, settled 3"},
		},
		"parked: before it starts": {
			request: beforeStart,
			do:      func(w *world, id string, h Holder) {},
			want:    []string{"suspended before-start", "submitted"},
		},
		"parked: by the queue's own caller": {
			do: func(w *world, id string, h Holder) {
				if err := w.q.Park(w.t.Context(), id, "held"); err != nil {
					w.t.Fatal(err)
				}
				// A parked run has no queue deadline, so that the record has none either.
				if r, err := w.s.Get(w.t.Context(), ann, id); err != nil || r.Placement.QueueDeadline != nil {
					w.t.Errorf("parked: %s, %v", dump(r.Placement), err)
				}
			},
			want: []string{"suspended before-start", "submitted, suspended (held)"},
		},
		"parked: it asks": {
			do:   func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?") },
			want: []string{"suspended attempt 1 ask q1: May I?", "1 active", "submitted, leased 1, started 1, suspended 1 (May I?)"},
		},
		"resumed: approved to start": {
			request: beforeStart,
			do:      func(w *world, id string, h Holder) { w.decide(id, true, "fine") },
			want:    []string{"queued", "submitted, resumed (approved by bob: fine)"},
		},
		"resumed: answered": {
			do: func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?"); w.decide(id, true, "") },
			want: []string{"running attempt 1", "1 active [q1 true by bob]",
				"submitted, leased 1, started 1, suspended 1 (May I?), resumed 1 (approved by bob)"},
		},
		"stopping: a live holder": {
			do:   func(w *world, id string, h Holder) { w.begin(h); w.cancel(id) },
			want: []string{"running attempt 1", "1 active", "submitted, leased 1, started 1, cancelling 1 (by bob)"},
		},
		"settled: cancelled in the queue": {
			do: func(w *world, id string, h Holder) { w.cancel(id) },
			want: []string{"failed dispatch/infra/cancelled CANCELLED: the run was cancelled: by bob",
				"submitted, settled (the run was cancelled: by bob)"},
		},
		"settled: cancelled while it waits for approval": {
			request: beforeStart,
			do:      func(w *world, id string, h Holder) { w.cancel(id) },
			want: []string{"failed dispatch/infra/cancelled CANCELLED: the run was cancelled: by bob",
				"submitted, settled (the run was cancelled: by bob)"},
		},
		"settled: cancelled after an attempt": {
			do: func(w *world, id string, h Holder) { w.giveBack(w.begin(h).Ref, "draining"); w.cancel(id) },
			want: []string{"failed attempt 1 dispatch/infra/cancelled CANCELLED: the run was cancelled: by bob", "1 released: draining",
				"submitted, leased 1, started 1, requeued 1 (draining), settled 1 (the run was cancelled: by bob)"},
		},
		"settled: cancelled, the holder is away": {
			do: func(w *world, id string, h Holder) {
				w.begin(h)
				if err := w.q.RemoveRunner(w.t.Context(), h.Runner.ID); err != nil {
					w.t.Fatal(err)
				}
				w.cancel(id)
			},
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: the run was cancelled: by bob", "1 cancelled: the run was cancelled: by bob",
				"submitted, leased 1, started 1, settled 1 (the run was cancelled: by bob)"},
		},
		"settled: cancelled, the holder gives it back": {
			do: func(w *world, id string, h Holder) { l := w.begin(h); w.cancel(id); w.giveBack(l.Ref, "draining") },
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: the run was cancelled: by bob", "1 cancelled: the run was cancelled: by bob",
				"submitted, leased 1, started 1, cancelling 1 (by bob), settled 1 (the run was cancelled: by bob)"},
		},
		"settled: cancelled, the holder is lost": {
			do: func(w *world, id string, h Holder) { w.begin(h); w.cancel(id); expire(w) },
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: the run was cancelled: by bob", "1 cancelled: the run was cancelled: by bob",
				"submitted, leased 1, started 1, cancelling 1 (by bob), settled 1 (the run was cancelled: by bob)"},
		},
		"settled: cancelled while it asks": {
			do: func(w *world, id string, h Holder) {
				l := w.begin(h)
				w.ask(h, l.Ref, "q1", "May I?")
				w.cancel(id)
				w.finish(h, l.Ref, ended())
			},
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: it broke", "1 cancelled: it broke +result",
				"submitted, leased 1, started 1, suspended 1 (May I?), cancelling 1 (by bob), settled 1 (it broke)"},
		},
		"settled: rejected before it starts": {
			request: beforeStart,
			do:      func(w *world, id string, h Holder) { w.decide(id, false, "too dear") },
			want: []string{"failed dispatch/infra/rejected CANCELLED: a person rejected the run: by bob: too dear",
				"submitted, settled (a person rejected the run: by bob: too dear)"},
		},
		"settled: nobody took it": {
			configure: func(w *world) { w.cfg.QueueDeadline = time.Hour },
			do:        func(w *world, id string, h Holder) { time.Sleep(time.Hour + time.Second) },
			want: []string{"failed dispatch/infra/unschedulable UPSTREAM_ERROR: no runner took the run before its queue deadline: queued for 1h0m0s: no runner is connected for runner mac",
				"submitted, settled (no runner took the run before its queue deadline: queued for 1h0m0s: no runner is connected for runner mac)"},
		},
		"settled: nobody took it again": {
			configure: func(w *world) { w.cfg.QueueDeadline = time.Hour },
			do: func(w *world, id string, h Holder) {
				w.giveBack(w.begin(h).Ref, "draining")
				time.Sleep(time.Hour + time.Second)
			},
			want: []string{"failed attempt 1 dispatch/infra/unschedulable UPSTREAM_ERROR: no runner took the run before its queue deadline: queued for 1h0m0s: no runner is connected for runner mac",
				"1 released: draining",
				"submitted, leased 1, started 1, requeued 1 (draining), settled 1 (no runner took the run before its queue deadline: queued for 1h0m0s: no runner is connected for runner mac)"},
		},
		"settled: exhausted by expiry": {
			configure: once,
			do:        func(w *world, id string, h Holder) { w.begin(h); expire(w) },
			want: []string{"failed attempt 1 run/infra/lost UPSTREAM_ERROR: " + lost + "; attempts lost: 1, the limit is 1",
				"1 expired: " + lost + "; attempts lost: 1, the limit is 1",
				"submitted, leased 1, started 1, settled 1 (" + lost + "; attempts lost: 1, the limit is 1)"},
		},
		"settled: exhausted by a restart": {
			configure: once,
			do:        func(w *world, id string, h Holder) { w.begin(h); w.restart(); expire(w) },
			want: []string{"failed attempt 1 run/infra/coordinator_restart UPSTREAM_ERROR: runner mac did not come back after the coordinator was restarted; attempts lost: 1, the limit is 1",
				"1 expired: runner mac did not come back after the coordinator was restarted; attempts lost: 1, the limit is 1",
				"submitted, leased 1, started 1, settled 1 (runner mac did not come back after the coordinator was restarted; attempts lost: 1, the limit is 1)"},
		},
		"settled: exhausted by starts": {
			configure: func(w *world) { w.cfg.MaxUnstarted = 1 },
			do:        func(w *world, id string, h Holder) { w.take(h); expire(w) },
			want: []string{"failed dispatch/infra/lost UPSTREAM_ERROR: runner mac took the run but did not acknowledge its start; attempts never started: 1, the limit is 1",
				"1 expired: runner mac took the run but did not acknowledge its start; attempts never started: 1, the limit is 1",
				"submitted, leased 1, settled 1 (runner mac took the run but did not acknowledge its start; attempts never started: 1, the limit is 1)"},
		},
		"settled: exhausted by a lost result": {
			configure: once,
			do:        func(w *world, id string, h Holder) { w.lose(w.begin(h).Ref, "disk full") },
			want: []string{"failed attempt 1 run/infra/lost UPSTREAM_ERROR: disk full; attempts lost: 1, the limit is 1",
				"1 released: disk full; attempts lost: 1, the limit is 1",
				"submitted, leased 1, started 1, settled 1 (disk full; attempts lost: 1, the limit is 1)"},
		},
		"settled: exhausted while it asks": {
			configure: once,
			do:        func(w *world, id string, h Holder) { w.ask(h, w.begin(h).Ref, "q1", "May I?"); expire(w) },
			want: []string{"failed attempt 1 run/infra/lost UPSTREAM_ERROR: " + lost + "; attempts lost: 1, the limit is 1",
				"1 expired: " + lost + "; attempts lost: 1, the limit is 1",
				"submitted, leased 1, started 1, suspended 1 (May I?), settled 1 (" + lost + "; attempts lost: 1, the limit is 1)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			configure := row.configure
			if configure == nil {
				configure = func(*world) {}
			}
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				r := request(protocol.TargetSelfPrefix + mac.Runner.ID)
				if row.request != nil {
					row.request(r)
				}
				id := w.submit(r)
				row.do(w, id, mac)
				synctest.Wait()
				w.tells(id, row.want...)
				// What is on the disk is the same story.
				w.restart()
				w.tells(id, row.want...)
			}, configure)
		})
	}
}

func (w *world) giveBack(ref lease.Ref, reason string) {
	w.t.Helper()
	if err := w.s.GiveBack(w.t.Context(), ref, reason); err != nil {
		w.t.Fatalf("give back %s: %v", ref.Job, err)
	}
}

func (w *world) lose(ref lease.Ref, reason string) {
	w.t.Helper()
	if err := w.s.Lost(w.t.Context(), ref, reason); err != nil {
		w.t.Fatalf("lose %s: %v", ref.Job, err)
	}
}

func (w *world) cancel(id string) {
	w.t.Helper()
	if _, err := w.s.Cancel(w.t.Context(), bob, id); err != nil {
		w.t.Fatalf("cancel %s: %v", id, err)
	}
}

func (w *world) decide(id string, approved bool, comment string) {
	w.t.Helper()
	if _, err := w.s.decide(w.t.Context(), bob, id, protocol.Decision{Comment: comment}, approved); err != nil {
		w.t.Fatalf("decide %s: %v", id, err)
	}
}

// asked is a question that somebody waits with.
type asked struct {
	done   chan struct{}
	answer protocol.Answered
	err    error
	leave  func()
}

// ask asks in the background and returns when the question is open, or answered.
func (w *world) ask(h Holder, ref lease.Ref, id, question string) *asked {
	w.t.Helper()
	ctx, leave := cancelled(w)
	a := &asked{done: make(chan struct{}), leave: leave}
	s := w.s
	go func() {
		defer close(a.done)
		a.answer, a.err = s.Ask(ctx, ref, h, id, question)
	}()
	synctest.Wait()
	return a
}
