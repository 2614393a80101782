package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

// TestP2_P8_WhatAResultDoes: each kind of result, in each state in which it can
// come, settles the run at most once; a repeat is answered as the first was and
// changes nothing.
func TestP2_P8_WhatAResultDoes(t *testing.T) {
	t.Parallel()
	const lost = "runner mac did not renew its lease in time"
	started := "submitted, leased 1, started 1"
	for name, row := range map[string]struct {
		configure func(*world)
		// before is what happens between the start and the result.
		before func(w *world, h Holder, l lease.Lease)
		result any
		done   Finished
		// gone says that the runner cannot come back after a restart.
		gone bool
		want []string
	}{
		"passed": {result: passed(true), want: []string{"succeeded attempt 1 verdict true", "1 settled +result", started + ", settled 1"}},
		"failed": {result: passed(false), want: []string{"succeeded attempt 1 verdict false", "1 settled +result", started + ", settled 1"}},
		"a failure of the agent": {result: broke(protocol.ClassAgent, protocol.ReasonCrashed, false),
			want: []string{"failed attempt 1 run/agent/crashed UPSTREAM_ERROR: it broke", "1 settled: it broke +result", started + ", settled 1 (it broke)"}},
		"a failure of the agent that claims that a retry helps": {result: broke(protocol.ClassAgent, protocol.ReasonCrashed, true),
			want: []string{"failed attempt 1 run/agent/crashed UPSTREAM_ERROR: it broke", "1 settled: it broke +result", started + ", settled 1 (it broke)"}},
		"infra, no retry": {result: broke(protocol.ClassInfra, protocol.ReasonOOM, false),
			want: []string{"failed attempt 1 run/infra/oom UPSTREAM_ERROR: it broke", "1 settled: it broke +result", started + ", settled 1 (it broke)"}},
		"infra, again": {result: broke(protocol.ClassInfra, protocol.ReasonImage, true),
			want: []string{"queued attempt 1", "1 released: it broke +result", started + ", requeued 1 (it broke)"}},
		"infra, for the last time": {configure: func(w *world) { w.cfg.MaxAttempts = 1 }, result: broke(protocol.ClassInfra, protocol.ReasonImage, true),
			want: []string{"failed attempt 1 run/infra/image UPSTREAM_ERROR: it broke", "1 settled: it broke +result", started + ", settled 1 (it broke)"}},
		"no document": {result: "moon",
			want: []string{"failed attempt 1 collect/infra/malformed_job INTERNAL: the runner sent a result that cannot be read: json: cannot unmarshal string into Go value of type protocol.CaseResult",
				"1 settled: the runner sent a result that cannot be read: json: cannot unmarshal string into Go value of type protocol.CaseResult +result",
				started + ", settled 1 (the runner sent a result that cannot be read: json: cannot unmarshal string into Go value of type protocol.CaseResult)"}},
		"null": {result: nil,
			want: []string{"failed attempt 1 collect/infra/malformed_job INTERNAL: the runner sent a result that cannot be read",
				"1 settled: the runner sent a result that cannot be read +result", started + ", settled 1 (the runner sent a result that cannot be read)"}},

		"cancelled while finishing: passed all the same": {before: func(w *world, h Holder, l lease.Lease) { w.cancel(l.Job) }, result: passed(true),
			want: []string{"succeeded attempt 1 verdict true", "1 settled +result", started + ", cancelling 1 (by bob), settled 1"}},
		"cancelled while finishing: ended": {before: func(w *world, h Holder, l lease.Lease) { w.cancel(l.Job) }, result: ended(),
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: it broke", "1 cancelled: it broke +result",
				started + ", cancelling 1 (by bob), settled 1 (it broke)"}},
		"cancelled while finishing: nobody tries again": {before: func(w *world, h Holder, l lease.Lease) { w.cancel(l.Job) },
			result: broke(protocol.ClassInfra, protocol.ReasonImage, true),
			want: []string{"failed attempt 1 run/infra/cancelled CANCELLED: the run was cancelled: by bob", "1 cancelled: the run was cancelled: by bob +result",
				started + ", cancelling 1 (by bob), settled 1 (the run was cancelled: by bob)"}},

		"late: the run waits again": {before: func(w *world, h Holder, l lease.Lease) { time.Sleep(61 * time.Second) }, result: passed(true), done: Late,
			want: []string{"queued attempt 1", "1 expired: " + lost + " +result late",
				started + ", requeued 1 (" + lost + "), late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
		"late: another attempt runs": {before: func(w *world, h Holder, l lease.Lease) {
			time.Sleep(61 * time.Second)
			w.begin(h)
		}, result: passed(true), done: Late,
			want: []string{"running attempt 2", "1 expired: " + lost + " +result late", "2 active",
				started + ", requeued 1 (" + lost + "), leased 2, started 2, late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
		"late: another attempt has settled": {before: func(w *world, h Holder, l lease.Lease) {
			time.Sleep(61 * time.Second)
			w.finish(h, w.begin(h).Ref, passed(false))
		}, result: passed(true), done: Late,
			want: []string{"succeeded attempt 2 verdict false", "1 expired: " + lost + " +result late", "2 settled +result",
				started + ", requeued 1 (" + lost + "), leased 2, started 2, settled 2, late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
		"late: it was given up": {configure: func(w *world) { w.cfg.MaxAttempts = 1 },
			before: func(w *world, h Holder, l lease.Lease) { time.Sleep(61 * time.Second) }, result: passed(true), done: Late,
			want: []string{"failed attempt 1 run/infra/lost UPSTREAM_ERROR: " + lost + "; attempts lost: 1, the limit is 1",
				"1 expired: " + lost + "; attempts lost: 1, the limit is 1 +result late",
				started + ", settled 1 (" + lost + "; attempts lost: 1, the limit is 1), late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
		"late: the runner was revoked (F35)": {before: func(w *world, h Holder, l lease.Lease) {
			if err := w.q.Fence(w.t.Context(), h.Runner.ID); err != nil {
				w.t.Fatal(err)
			}
		}, result: passed(true), done: Late, gone: true,
			want: []string{"running attempt 1", "1 active +result late",
				started + ", runner_revoked 1 (runner mac was revoked; attempt 1 is given up at 2000-01-01T00:01:00Z), late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
		"late: given back, and then a result": {before: func(w *world, h Holder, l lease.Lease) { w.giveBack(l.Ref, "draining") },
			result: broke(protocol.ClassInfra, protocol.ReasonDrained, true), done: Late,
			want: []string{"queued attempt 1", "1 released: draining +result late",
				started + ", requeued 1 (draining), late_result 1 (the result of a superseded attempt arrived; it is kept as evidence and changes nothing)"}},
	} {
		t.Run(name, func(t *testing.T) {
			configure := row.configure
			if configure == nil {
				configure = func(*world) {}
			}
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				l := w.begin(mac)
				if row.before != nil {
					row.before(w, mac, l)
				}
				if done := w.finish(mac, l.Ref, row.result); done != row.done {
					t.Errorf("the result was answered %d, want %d", done, row.done)
				}
				w.tells(id, row.want...)
				// The answer was lost, once before and once after a restart.
				if done := w.finish(mac, l.Ref, row.result); done != row.done {
					t.Errorf("the repeated result was answered %d, want %d", done, row.done)
				}
				w.restart()
				if row.gone {
					return
				}
				if done := w.finish(mac, l.Ref, row.result); done != row.done {
					t.Errorf("the result repeated after a restart was answered %d, want %d", done, row.done)
				}
				w.tells(id, row.want...)
			}, configure)
		})
	}
}

// TestP2_AResultOfNobody: results of attempts that there are not, or that are
// another runner's, are refused for good and change nothing.
func TestP2_AResultOfNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac, thief := w.pair("ann", "mac"), w.pair("ann", "thief")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		before := w.story(id)
		for name, row := range map[string]struct {
			ref lease.Ref
			h   Holder
		}{
			"another runner, no token": {lease.Ref{Job: id, Attempt: 1}, thief},
			"an attempt to come":       {lease.Ref{Job: id, Attempt: 2, Token: l.Token}, mac},
			"no attempt":               {lease.Ref{Job: id, Attempt: 0, Token: l.Token}, mac},
			"an unknown run":           {lease.Ref{Job: "run_moon", Attempt: 1, Token: l.Token}, mac},
		} {
			if _, err := w.s.Finish(t.Context(), row.ref, row.h, []byte(dump(passed(true)))); code(err) != protocol.CodeNotFound {
				t.Errorf("%s: %v, want NOT_FOUND", name, err)
			}
			if got := w.story(id); got != before {
				t.Errorf("%s: the run's story is\n%s\nbefore\n%s", name, got, before)
			}
		}
	})
}

// TestP2_ForgottenByTheQueue: when the queue has forgotten a job, the record still
// knows which result was the run's and which came late.
func TestP2_ForgottenByTheQueue(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		first := w.begin(mac)
		time.Sleep(61 * time.Second)
		second := w.begin(mac)
		w.finish(mac, second.Ref, passed(true))
		time.Sleep(3 * time.Hour)
		if _, err := w.q.Get(t.Context(), id); err == nil {
			t.Fatal("the queue still knows the job")
		}
		if done := w.finish(mac, second.Ref, passed(true)); done != Accepted {
			t.Errorf("the result that the run has was answered %d, want accepted", done)
		}
		if done := w.finish(mac, first.Ref, passed(false)); done != Late {
			t.Errorf("the late result was answered %d, want late", done)
		}
		r, err := w.s.Get(t.Context(), ann, id)
		if err != nil || r.Status != protocol.StatusSucceeded || r.Verdict == nil || !*r.Verdict || r.Attempt != 2 {
			t.Errorf("the record is %s, %v", dump(r), err)
		}
	}, func(w *world) { w.cfg.Retention = time.Hour })
}

// TestP3_StaleEpochsChangeNothing: what a superseded attempt says of itself is
// refused as stale, whatever it says, and the run does not notice.
func TestP3_StaleEpochsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(w *world, ref lease.Ref, h Holder) error{
		"started":   func(w *world, ref lease.Ref, h Holder) error { return w.s.Started(w.t.Context(), ref, h) },
		"give back": func(w *world, ref lease.Ref, h Holder) error { return w.s.GiveBack(w.t.Context(), ref, "draining") },
		"lost":      func(w *world, ref lease.Ref, h Holder) error { return w.s.Lost(w.t.Context(), ref, "disk full") },
		"ask": func(w *world, ref lease.Ref, h Holder) error {
			_, err := w.s.Ask(w.t.Context(), ref, h, "q9", "May I?")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
				old := w.begin(mac)
				time.Sleep(61 * time.Second)
				stands := w.begin(mac)
				forged := stands.Ref
				forged.Token = old.Token
				before := w.story(id)
				for _, ref := range []lease.Ref{old.Ref, forged} {
					if _, stale := lease.IsStale(say(w, ref, mac)); !stale {
						t.Errorf("attempt %d with the first one's token was not refused as stale", ref.Attempt)
					}
					if got := w.story(id); got != before {
						t.Errorf("the run's story is\n%s\nbefore\n%s", got, before)
					}
				}
				w.finish(mac, stands.Ref, passed(true))
				if err := say(w, old.Ref, mac); err == nil {
					t.Error("the superseded attempt was heard after the end")
				}
			})
		})
	}
}

// TestP3_RepeatedStart: acknowledging a start twice is one start.
func TestP3_RepeatedStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		before := w.record(id)
		time.Sleep(time.Second)
		if err := w.s.Started(t.Context(), l.Ref, mac); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(dump(before), dump(w.record(id))); d != "" {
			t.Errorf("the record after the second start (-first):\n%s", d)
		}
		w.tells(id, "running attempt 1", "1 active", "submitted, leased 1, started 1")
	})
}

// TestP2_TheRecordOfAResult: scores, usage, verdict and provenance are in the record
// that lists show, and what a runner says about itself is not believed.
func TestP2_TheRecordOfAResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		mac.Runner.Hostname = "ann-mac"
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		result := passed(true)
		result.CaseID, result.Provenance = "another", &protocol.Provenance{RanOn: "managed", Runner: "rnr_moon", By: "root", Attestation: "managed", Attempt: 9}
		result.Trace = []protocol.TraceEvent{{Kind: "message"}}
		w.finish(mac, l.Ref, result)
		r, err := w.s.Get(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		want := &protocol.Provenance{RanOn: "self-hosted", Runner: mac.Runner.ID, RunnerLabel: "mac", Hostname: "ann-mac", By: "ann",
			Attestation: "self_reported", Attempt: 1}
		if d := cmp.Diff(want, r.Provenance); d != "" {
			t.Errorf("provenance (-want):\n%s", d)
		}
		if d := cmp.Diff(want, r.Result.Provenance); d != "" {
			t.Errorf("provenance of the result (-want):\n%s", d)
		}
		if r.Result.CaseID != "c1" || r.Result.Harness != r.ResolvedHarness.String() || len(r.Result.Trace) != 0 {
			t.Errorf("result %s", dump(r.Result))
		}
		if r.VerdictBasis == nil || len(r.VerdictBasis.Deciders) != 1 || r.VerdictBasis.Deciders[0].Metric != "answer_match" || len(r.Scores) != 1 {
			t.Errorf("basis %s, scores %s", dump(r.VerdictBasis), dump(r.Scores))
		}
	})
}

// TestP13_TheLastFailureKeepsItsUsage: the attempt that was the last has cost what
// it has cost, though it failed.
func TestP13_TheLastFailureKeepsItsUsage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		result := broke(protocol.ClassInfra, protocol.ReasonImage, true)
		result.Usage = &protocol.Usage{}
		w.finish(mac, w.begin(mac).Ref, result)
		r := w.record(id)
		if r.Usage == nil || r.Failure == nil || !r.Failure.Retryable || r.Failure.RunnerID != mac.Runner.ID || r.Failure.LogTail != "the end" {
			t.Errorf("the record is %s", dump(r))
		}
	}, func(w *world) { w.cfg.MaxAttempts = 1 })
}

// TestP8_TooManyScoresAreNoVerdict: a verdict is not decided on the scores that were
// let in.
func TestP8_TooManyScoresAreNoVerdict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		result := broke(protocol.ClassAgent, protocol.ReasonCrashed, false)
		result.Failure.Stage = protocol.StageGrade
		for range maxScores + 1 {
			result.Scores = append(result.Scores, passed(true).Scores...)
		}
		w.finish(mac, w.begin(mac).Ref, result)
		r := w.record(id)
		if r.Verdict != nil || r.Status != protocol.StatusFailed || r.Failure.Limit == nil || len(r.Scores) != maxScores {
			t.Errorf("verdict %v of %d scores, failure %s", r.Verdict, len(r.Scores), dump(r.Failure))
		}
		contains(t, "the failure", r.Failure.Message, "1001 scores", "it broke")
	})
}

// TestP5_TheEvidenceIsOnTheDiskFirst: the evidence is sealed by the time a result is
// accepted, and a result is not accepted while it cannot be.
func TestP5_TheEvidenceIsOnTheDiskFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		w.append(l.Ref, protocol.ChannelLog, "hello\n")
		before := w.story(id)
		if err := w.evidence.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.s.Finish(t.Context(), l.Ref, mac, []byte(dump(passed(true)))); err == nil {
			t.Error("the result was accepted without its evidence")
		}
		if got := w.story(id); got != before {
			t.Errorf("the run's story is\n%s\nbefore\n%s", got, before)
		}
		w.restart()
		if done := w.finish(mac, l.Ref, passed(true)); done != Accepted {
			t.Errorf("answered %d, want accepted", done)
		}
		a, err := w.evidence.Attempt(id, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if sum := a.Summary(); !sum.Sealed || sum.Channels[protocol.ChannelLog] != 6 {
			t.Errorf("the evidence is %+v", sum)
		}
	})
}
