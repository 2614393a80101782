package run

import (
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/protocol"
)

// TestP9_WhyItWaits: a run that waits says why in one sentence, in the words of the
// target that was named, in its record and in its placement alike.
func TestP9_WhyItWaits(t *testing.T) {
	t.Parallel()
	self := func(h Holder) string { return protocol.TargetSelfPrefix + h.Runner.ID }
	connect := func(w *world, h Holder, capabilities ...string) {
		r := w.leaseRunner(h)
		r.Capabilities = capabilities
		if err := w.q.SetRunner(w.t.Context(), r); err != nil {
			w.t.Fatal(err)
		}
	}
	const deadline = "; settles as unschedulable at 2000-01-02T00:00:00Z"
	for name, row := range map[string]struct {
		local   bool
		target  func(mac Holder) string
		edit    func(*protocol.RunRequest)
		do      func(w *world, id string, mac Holder)
		phase   string
		blocked string // RNR stands for the runner's id
		// noDeadline: nothing ends the wait.
		noDeadline bool
	}{
		"a runner that is away": {target: self, phase: "blocked", blocked: "runner RNR (mac) is not connected" + deadline},
		"a runner that was revoked since": {target: self, do: func(w *world, id string, mac Holder) {
			if _, err := w.runners.Revoke(w.t.Context(), "default", "ann", mac.Runner.ID); err != nil {
				w.t.Fatal(err)
			}
		}, phase: "blocked", blocked: "runner RNR, which the run names, was revoked and cannot come back: cancel the run" + deadline},
		"own runners":       {target: func(Holder) string { return "self" }, phase: "blocked", blocked: "no runner of ann is connected" + deadline},
		"shared runners":    {target: func(Holder) string { return "self:ws" }, phase: "blocked", blocked: "no runner of the workspace is connected" + deadline},
		"any":               {target: func(Holder) string { return "" }, phase: "blocked", blocked: "no runner that takes runs of ann is connected" + deadline},
		"the local runtime": {local: true, target: func(Holder) string { return LocalRuntime }, phase: "blocked", blocked: "no runner of runtime local is connected" + deadline},
		"a capability that nobody has": {target: self, edit: func(r *protocol.RunRequest) { r.Case.Image = "alpine" },
			do: func(w *world, id string, mac Holder) { connect(w, mac, protocol.CapGit) }, phase: "blocked", blocked: "docker"},
		"another system": {target: self, edit: func(r *protocol.RunRequest) { r.Case.Placement = &protocol.Placement{OS: "windows"} },
			do: func(w *world, id string, mac Holder) { connect(w, mac, protocol.CapOSWindows) }, phase: "blocked", blocked: "windows"},
		"a busy runner": {target: self, do: func(w *world, id string, mac Holder) { connect(w, mac) }, phase: "queued", blocked: "1 runner"},
		"approval":      {target: self, edit: beforeStart, phase: "blocked", blocked: "parked: waits for approval before it starts", noDeadline: true},
		"a question": {target: self, do: func(w *world, id string, mac Holder) { w.ask(mac, w.begin(mac).Ref, "q1", "May I?") },
			phase: "blocked", blocked: "parked on runner RNR: May I?", noDeadline: true},
		"leased": {target: self, do: func(w *world, id string, mac Holder) { w.take(mac) }, phase: "starting",
			blocked: "leased to runner RNR as attempt 1, which must acknowledge the start by 2000-01-01T00:00:30Z", noDeadline: true},
		"running": {target: self, do: func(w *world, id string, mac Holder) { w.begin(mac) }, phase: "running", noDeadline: true},
		"away": {target: self, do: func(w *world, id string, mac Holder) {
			w.begin(mac)
			if err := w.q.RemoveRunner(w.t.Context(), mac.Runner.ID); err != nil {
				w.t.Fatal(err)
			}
		}, phase: "running", blocked: "runner RNR, which has attempt 1, is not connected; the attempt is given up at 2000-01-01T00:01:00Z", noDeadline: true},
		"revoked": {target: self, do: func(w *world, id string, mac Holder) {
			w.begin(mac)
			if err := w.q.Fence(w.t.Context(), mac.Runner.ID); err != nil {
				w.t.Fatal(err)
			}
		}, phase: "running", blocked: "runner RNR, which has attempt 1, was revoked; the attempt is given up at 2000-01-01T00:01:00Z", noDeadline: true},
		"stopping": {target: self, do: func(w *world, id string, mac Holder) { w.begin(mac); w.cancel(id) }, phase: "running", blocked: "asked to stop", noDeadline: true},
		"settled":  {target: self, do: func(w *world, id string, mac Holder) { w.cancel(id) }, phase: "dead", noDeadline: true},
		"requeued": {target: self, do: func(w *world, id string, mac Holder) {
			w.giveBack(w.begin(mac).Ref, "draining")
			if err := w.q.RemoveRunner(w.t.Context(), mac.Runner.ID); err != nil {
				w.t.Fatal(err)
			}
		}, phase: "blocked", blocked: "runner RNR (mac) is not connected" + deadline},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				mac := w.pair("ann", "mac")
				w.pair(pairing.WorkspaceOwner("default"), "shared")
				edit := row.edit
				if edit == nil {
					edit = func(*protocol.RunRequest) {}
				}
				id := w.submit(request(row.target(mac), edit))
				if row.do != nil {
					row.do(w, id, mac)
				}
				r, err := w.s.Get(t.Context(), ann, id)
				if err != nil {
					t.Fatal(err)
				}
				want := strings.ReplaceAll(row.blocked, "RNR", mac.Runner.ID)
				if got := r.Placement.BlockedReason; want == "" && got != "" || !strings.Contains(got, want) || strings.ContainsAny(got, "\n") {
					t.Errorf("blocked reason %q, want %q", got, want)
				}
				if (r.Placement.QueueDeadline == nil) != row.noDeadline {
					t.Errorf("queue deadline %v", r.Placement.QueueDeadline)
				}
				view, err := w.s.Placement(t.Context(), ann, id)
				if err != nil {
					t.Fatal(err)
				}
				pl := view.Placement
				if pl.Phase != row.phase || view.Status != r.Status {
					t.Errorf("phase %s, status %s; want %s, %s", pl.Phase, view.Status, row.phase, r.Status)
				}
				if blocked := row.phase == "blocked" || row.phase == "queued" || name == "away" || name == "revoked"; blocked != (pl.BlockedReason != "") || blocked && pl.BlockedReason != r.Placement.BlockedReason {
					t.Errorf("the placement says %q, the record %q", pl.BlockedReason, r.Placement.BlockedReason)
				}
				if (pl.QueueDeadline == nil) != row.noDeadline {
					t.Errorf("the placement's queue deadline is %v", pl.QueueDeadline)
				}
				events, err := w.s.Events(t.Context(), ann, id)
				if err != nil || len(pl.Events) != len(events) {
					t.Errorf("%d placement events, %d events, %v", len(pl.Events), len(events), err)
				}
			}, func(w *world) { w.conf.Local = row.local })
		})
	}
}

// TestP9_BehindOthers: a run that has to wait its turn says how many go first.
func TestP9_BehindOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		for range 3 {
			w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		}
		last := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		w.begin(mac)
		r, err := w.s.Get(t.Context(), ann, last)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, "the reason", r.Placement.BlockedReason, "2")
	})
}

// TestP2_ALateResultIsNotTheRuns: a run that was given up stays what its record
// says, though a result has come since.
func TestP2_ALateResultIsNotTheRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		l := w.begin(mac)
		time.Sleep(61 * time.Second)
		before, err := w.s.Get(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		w.append(l.Ref, protocol.ChannelLog, "late\n")
		w.finish(mac, l.Ref, passed(true))
		after, err := w.s.Get(t.Context(), ann, id)
		if err != nil || dump(after) != dump(before) {
			t.Errorf("the run was\n%s\nand is, with a late result, %v\n%s", dump(before), err, dump(after))
		}
		if f := after.Result; f == nil || f.Failure == nil || f.Failure.Reason != protocol.ReasonLost || len(f.Scores) != 1 || f.Scores[0].Pass != nil {
			t.Errorf("the result of a lost run is %s", dump(f))
		}
		attempts, err := w.s.Attempts(t.Context(), ann, id)
		if err != nil || len(attempts) != 1 || attempts[0].LateAt == nil || attempts[0].Result == nil || *attempts[0].Result.Scores[0].Pass != true {
			t.Errorf("the late result is not kept with its attempt: %s, %v", dump(attempts), err)
		}
	}, func(w *world) { w.cfg.MaxAttempts = 1 })
}

// TestP15_AnotherWorkspaceSeesNothing: every reader of a run refuses who is not of
// its workspace, as if there were none.
func TestP15_AnotherWorkspaceSeesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request(protocol.TargetSelfPrefix + mac.Runner.ID))
		w.finish(mac, w.begin(mac).Ref, passed(true))
		eve := auth.Principal{Subject: "ann", Workspace: "other"}
		ctx := t.Context()
		for name, read := range map[string]func(id string) error{
			"get":       func(id string) error { _, err := w.s.Get(ctx, eve, id); return err },
			"events":    func(id string) error { _, err := w.s.Events(ctx, eve, id); return err },
			"attempts":  func(id string) error { _, err := w.s.Attempts(ctx, eve, id); return err },
			"placement": func(id string) error { _, err := w.s.Placement(ctx, eve, id); return err },
			"logs":      func(id string) error { _, _, err := w.s.Logs(ctx, eve, id, protocol.LogQuery{}); return err },
			"trace":     func(id string) error { _, err := w.s.Trace(ctx, eve, id, protocol.TraceQuery{Limit: 10}); return err },
			"diff":      func(id string) error { _, err := w.s.Diff(ctx, eve, id, 0); return err },
			"live":      func(id string) error { _, err := w.s.Live(ctx, eve, id, protocol.LiveQuery{}); return err },
		} {
			mine, none := read(id), read("run_moon")
			if code(mine) != protocol.CodeNotFound || strings.ReplaceAll(mine.Error(), id, "run_moon") != none.Error() {
				t.Errorf("%s: %v; of a run that is not there: %v", name, mine, none)
			}
		}
	})
}
