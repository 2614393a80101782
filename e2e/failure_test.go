package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// ticking is a script that appends a line to a file until it is stopped or the
// file "enough" appears beside it.
func ticking(file string) *protocol.RunRequest {
	return house.Scripted(`run while [ ! -e ` + file + `.enough ]; do echo x >> ` + file + `; sleep 0.05; done`)
}

// enough ends a ticking run.
func enough(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file+".enough", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// grows waits until a ticking run has written more.
func grows(t *testing.T, file string) {
	t.Helper()
	before := size(file)
	house.Eventually(t, file+" grows", func() bool { return size(file) > before })
}

// standsStill waits until a file has not changed for many of its writer's periods: a
// busy machine may leave out some.
func standsStill(t *testing.T, file string) {
	t.Helper()
	standsStillFor(t, file, 1500*time.Millisecond)
}

// standsStillFor is standsStill where it is known already that the writer is held.
func standsStillFor(t *testing.T, file string, long time.Duration) {
	t.Helper()
	last, since := size(file), time.Now()
	house.Eventually(t, file+" stands still", func() bool {
		if now := size(file); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > long
	})
}

func kinds(t *testing.T, h *house.House, id string) string {
	t.Helper()
	events, err := h.Client.Events(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return strings.Join(out, " ")
}

// TestF1_P3_P4_CoordinatorAwayLongerThanTheLease: the runner freezes the job before
// its lease could be given away, and goes on with it when the coordinator, which
// has given nobody else the run, is back and says that the attempt stands (P3, P4).
func TestF1_P3_P4_CoordinatorAwayLongerThanTheLease(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	var w witness
	h.Runner("laptop", func(c *agent.Config) { c.Observe = w.observe })
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	h.Stop()
	w.saw(t, "the run is held still", heldStill(id)) // at TTL minus the margin
	standsStill(t, file)
	h.Start()
	grows(t, file) // thawed: the restarted coordinator gave the lease a fresh TTL
	enough(t, file)
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("run: got %s at attempt %d (%+v), want succeeded at attempt 1", run.Status, run.Attempt, run.Failure)
	}
	if run.Result.Timing.FrozenMs == 0 {
		t.Error("the record does not say for how long the run was frozen")
	}
}

// TestF10_F3_P2_P3_LinkLostDuringAJob: when no renewal comes through, the job stands
// still before the lease is given away; the other runner's attempt is the only
// active one, and the first is killed when it hears so, its evidence kept (P2).
func TestF10_F3_P2_P3_LinkLostDuringAJob(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	proxy := h.Proxy()
	first := h.Runner("first", func(c *agent.Config) { c.URL = proxy.URL() })
	dir := t.TempDir()
	mine := filepath.Join(dir, "ticks")
	// Each attempt writes a file of its own, named by the attempt.
	id := h.Submit(house.Scripted(`run echo this is $EVERDICT_ATTEMPT; f=` + mine + `.$EVERDICT_ATTEMPT; while [ ! -e ` + mine + `.enough ]; do echo x >> $f; sleep 0.05; done`))
	h.Running(id)
	one := mine + "." + id + ".1"
	grows(t, one)
	proxy.Hold()
	h.Runner("second")
	h.Until(id, "a second attempt runs", func(r protocol.Run) bool { return r.Attempt == 2 && r.Status == protocol.StatusRunning })
	stood := size(one)
	two := mine + "." + id + ".2"
	grows(t, two)
	if now := size(one); now != stood {
		t.Errorf("the first attempt wrote %d bytes while the second one was active", now-stood)
	}
	proxy.Release()
	proxy.Cut()
	enough(t, mine)
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt != 2 || run.Provenance.Runner == first.ID {
		t.Errorf("run: got %s at attempt %d on %+v, want succeeded at attempt 2 on the second runner", run.Status, run.Attempt, run.Provenance)
	}
	house.Eventually(t, "the late result is kept as evidence of attempt 1", func() bool {
		attempts, err := h.Client.Attempts(context.Background(), id)
		return err == nil && len(attempts) == 2 && attempts[0].LateAt != nil && attempts[0].Result != nil
	})
	if now := h.Run(id); now.Status != run.Status || now.Attempt != run.Attempt {
		t.Errorf("the late result changed the record: %s at attempt %d", now.Status, now.Attempt)
	}
	for attempt, want := range []string{"this is " + id + ".2\n", "this is " + id + ".1\n", "this is " + id + ".2\n"} {
		body, err := h.Client.RawLog(t.Context(), id, protocol.LogQuery{Attempt: int64(attempt)})
		if err != nil {
			t.Fatal(err)
		}
		log, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !strings.Contains(string(log), want) {
			t.Errorf("the log of attempt %d: %q, %v; want one with %q", attempt, log, err, want)
		}
	}
	if now := size(one); now != stood {
		t.Errorf("the first attempt took another step (%d bytes) after it had been superseded", now-stood)
	}
}

// TestF42_P5_CoordinatorAwayWhenTheJobEnds: the result waits in the runner's
// outbox and is delivered when the coordinator is back.
func TestF42_P5_CoordinatorAwayWhenTheJobEnds(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	h.Stop()
	enough(t, file)
	standsStill(t, file)
	h.Start()
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("run: got %s at attempt %d (%+v), want succeeded at attempt 1", run.Status, run.Attempt, run.Failure)
	}
}

// TestF42_P8_ResultThatCannotBeKept: a runner whose outbox is gone lets go of the
// attempt. It does not hold the lease of work that has no result, and the run has
// its end.
func TestF42_P8_ResultThatCannotBeKept(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	r := h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	outbox, aside := filepath.Join(r.Config.StateDir, "outbox"), filepath.Join(r.Config.StateDir, "aside")
	if err := os.Rename(outbox, aside); err != nil {
		t.Fatal(err)
	}
	enough(t, file)
	run := h.Until(id, "the attempt is given up", func(run protocol.Run) bool { return run.Status == protocol.StatusQueued })
	attempts, err := h.Client.Attempts(context.Background(), id)
	if err != nil || !strings.Contains(attempts[0].Message, "could not keep the result") {
		t.Errorf("attempt 1 of %s: %+v, %v; want it to say that the result could not be kept", run.ID, attempts, err)
	}
	if err := os.Rename(aside, outbox); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
		t.Errorf("run: %s at attempt %d, want succeeded at a later attempt", run.Status, run.Attempt)
	}
}

// TestF22_WorkDirectoryRemoved: a job that removes every workspace of its machine,
// its own included, harms itself and not the runs after it.
func TestF22_WorkDirectoryRemoved(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	r := h.Runner("laptop", func(c *agent.Config) { c.Executable = "/bin/true" })
	h.Settled(h.Submit(house.Scripted("run rm -rf " + r.Config.WorkDir)))
	run := h.Settled(h.Submit(house.Scripted("run everdict")))
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the next run: %s at attempt %d (%+v), want succeeded at attempt 1", run.Status, run.Attempt, run.Failure)
	}
}

// broken is a machine on which no sandbox starts.
type broken struct{ sandbox.Driver }

func (broken) Start(context.Context, sandbox.Spec) (sandbox.ComputeHandle, error) {
	return nil, errors.New("this machine is broken")
}

// TestF17_P8_OneBrokenMachineDoesNotUseUpTheAttempts: a runner on which everything
// fails at once leaves the other attempts of a run to somebody else.
func TestF17_P8_OneBrokenMachineDoesNotUseUpTheAttempts(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("broken", func(c *agent.Config) {
		driver := process.New(process.Config{})
		t.Cleanup(func() { _ = driver.Close() })
		c.Driver = broken{driver}
	})
	id := h.Submit(house.Scripted("say hello"))
	h.Until(id, "an attempt has failed", func(r protocol.Run) bool {
		attempts, err := h.Client.Attempts(context.Background(), id)
		return err == nil && len(attempts) > 0 && attempts[0].Outcome != protocol.AttemptActive
	})
	healthy := h.Runner("healthy")
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Provenance.Runner != healthy.ID {
		t.Errorf("run: %s at attempt %d (%+v), want succeeded on the healthy machine", run.Status, run.Attempt, run.Failure)
	}
}

// TestF7_CancelWhileTheRunnerIsGone: cancelling a run whose holder is not there is
// immediate.
func TestF7_CancelWhileTheRunnerIsGone(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	proxy := h.Proxy()
	h.Runner("laptop", func(c *agent.Config) { c.URL = proxy.URL() })
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	proxy.Hold()
	house.Eventually(t, "the runner is offline", func() bool {
		all, err := h.Client.Runners(context.Background())
		return err == nil && len(all) == 1 && !all[0].Online
	})
	run, err := h.Client.Cancel(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != protocol.StatusFailed || run.Error == nil || run.Error.Code != protocol.CodeCancelled {
		t.Errorf("cancel: got %s %+v, want failed CANCELLED at once", run.Status, run.Error)
	}
	proxy.Release()
	proxy.Cut()
	standsStill(t, file)
}

// TestP6_P8_CancelEndsTheLastProcess: a cancelled run takes its double-forked
// children along, and says who cancelled it.
func TestP6_P8_CancelEndsTheLastProcess(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(house.Scripted("fork while :; do echo x >> " + file + "; sleep 0.05; done\nhang"))
	h.Running(id)
	grows(t, file)
	if _, err := h.Client.Cancel(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	run := h.Settled(id)
	if f := run.Failure; f == nil || f.Reason != protocol.ReasonCancelled || f.Code != protocol.CodeCancelled {
		t.Errorf("failure: got %+v, want cancelled", f)
	}
	standsStill(t, file)
	if _, err := h.Client.Cancel(context.Background(), id); err != nil {
		t.Errorf("cancelling again: %v", err)
	}
	if got := kinds(t, h, id); got != "submitted leased started cancelling settled" {
		t.Errorf("events: got %q", got)
	}
}

// TestF9_P9_WhyIsItQueued: a run that nobody can take says why in one sentence and
// until when it waits, and fails by name at that deadline.
func TestF9_P9_WhyIsItQueued(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick, func(c *coordinator.Config) { c.Lease.QueueDeadline = 10 * time.Second })
	paired := h.Pair("asleep", "git")
	req := house.Scripted("say hello")
	req.Runtime = "self:" + paired.Runner.ID
	id := h.Submit(req)
	run := h.Until(id, "the record says why it waits", func(r protocol.Run) bool { return r.Placement.BlockedReason != "" })
	if why := run.Placement.BlockedReason; !strings.Contains(why, "(asleep) is not connected") || run.Placement.QueueDeadline == nil {
		t.Errorf("why: got %q with deadline %v, want that the runner is not connected, and until when", why, run.Placement.QueueDeadline)
	}

	h.Runner("plain", func(c *agent.Config) { c.Capabilities = []string{"git", "docker"} })
	needy := house.Scripted("say hello")
	needy.Case.Image = "some/image:1"
	needy.Case.Resources = &protocol.Resources{MemoryMB: 1 << 40}
	big := h.Submit(needy)
	run = h.Until(big, "the matcher says what is missing", func(r protocol.Run) bool {
		return r.Placement != nil && strings.Contains(r.Placement.BlockedReason, "memory")
	})
	view, err := h.Client.Placement(context.Background(), big)
	if err != nil || view.Placement.Phase != "blocked" || view.Placement.BlockedReason != run.Placement.BlockedReason {
		t.Errorf("placement: got %+v, %v", view.Placement, err)
	}
	for _, id := range []string{id, big} {
		run := h.Settled(id)
		if f := run.Failure; f == nil || f.Reason != protocol.ReasonUnschedulable || !strings.Contains(f.Message, "queue deadline") {
			t.Errorf("run %s: got failure %+v, want unschedulable", id, f)
		}
	}
}

// TestF9_NobodyOffersAGPU: what nobody offers is refused when it is submitted, by name.
func TestF9_NobodyOffersAGPU(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Online(h.Runner("plain", func(c *agent.Config) { c.Capabilities = []string{"git"} }).ID)
	req := house.Scripted("say hello")
	req.Case.Resources = &protocol.Resources{GPU: 1}
	_, err := h.Client.Submit(context.Background(), req)
	var p *protocol.Problem
	if !errors.As(err, &p) || p.Status != 400 || !strings.Contains(p.Message, "gpu") || !strings.Contains(p.Hint, "git") {
		t.Errorf("submit: got %v, want a 400 that names gpu and what there is", err)
	}
}

// TestF18_DrainWaitsForTheJob: a draining runner takes nothing new, finishes what it has, and
// ends.
func TestF18_DrainWaitsForTheJob(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	r := h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	drained := make(chan error, 1)
	go func() { drained <- r.Drain() }()
	house.Eventually(t, "the runner shows that it drains", func() bool {
		all, err := h.Client.Runners(context.Background())
		return err == nil && all[0].Status != nil && strings.Contains(all[0].Status.Text, "draining")
	})
	next := h.Submit(house.Scripted("say hello"))
	grows(t, file)
	if run := h.Run(next); run.Status != protocol.StatusQueued {
		t.Errorf("a draining runner took %s: it is %s", next, run.Status)
	}
	enough(t, file)
	if err := <-drained; err != nil {
		t.Errorf("drain: got %v, want none", err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run that was under way: got %s", run.Status)
	}
}

// TestF18_DrainDeadlineGivesBack: past the drain timeout the job is ended and given back
// without waiting for its lease.
func TestF18_DrainDeadlineGivesBack(t *testing.T) {
	t.Parallel()
	h := house.New(t) // a lease of 60 s, which nobody waits for here
	r := h.Runner("laptop", func(c *agent.Config) { c.DrainTimeout = 100 * time.Millisecond })
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	var drained *agent.DrainedError
	if err := r.Drain(); !errors.As(err, &drained) || drained.GivenBack != 1 {
		t.Errorf("drain: got %v, want that one attempt was given back", err)
	}
	standsStill(t, file)
	run := h.Run(id)
	if run.Status != protocol.StatusQueued {
		t.Fatalf("the run: got %s, want queued again", run.Status)
	}
	enough(t, file)
	h.Runner("other")
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 2 {
		t.Errorf("the run: got %s at attempt %d, want succeeded at attempt 2", run.Status, run.Attempt)
	}
	house.Eventually(t, "what the first attempt did is kept", func() bool {
		attempts, err := h.Client.Attempts(context.Background(), id)
		return err == nil && len(attempts) == 2 && attempts[0].Result != nil
	})
}

// TestF18_ToldTwice: a runner that is told to end waits for its job; told again it gives the
// job back at once, and its exit code says so.
func TestF18_ToldTwice(t *testing.T) {
	t.Parallel()
	h := house.New(t) // a lease of 60 s, which nobody waits for here
	paired := h.Pair("laptop")
	r := house.RunnerProcess(t, binary(t), h.URL(), paired.Token)
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	r.Signal(syscall.SIGTERM)
	house.Eventually(t, "the runner shows that it drains", func() bool {
		all, err := h.Client.Runners(context.Background())
		return err == nil && all[0].Status != nil && strings.Contains(all[0].Status.Text, "draining")
	})
	grows(t, file)
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(); code != member.ExitGaveBack {
		t.Errorf("exit code %d, want %d: a run was given back\n%s", code, member.ExitGaveBack, r.Tail(4000))
	}
	if run := h.Run(id); run.Status != protocol.StatusQueued {
		t.Errorf("the run is %s, want it queued again", run.Status)
	}
	if out := r.Tail(4000); !strings.Contains(out, "given back") {
		t.Errorf("the runner does not say what became of the run:\n%s", out)
	}
}

// TestF35_RevokeWhileAJobRuns: revoking closes the session at once, ends the job, and the
// runner stops for good.
func TestF35_RevokeWhileAJobRuns(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	r := h.Runner("laptop")
	file := filepath.Join(t.TempDir(), "ticks")
	id := h.Submit(ticking(file))
	h.Running(id)
	grows(t, file)
	if err := h.Client.RevokeRunner(context.Background(), r.ID); err != nil {
		t.Fatal(err)
	}
	var revoked *link.RevokedError
	if err := r.Wait(); !errors.As(err, &revoked) {
		t.Errorf("the runner ended with %v, want revoked", err)
	}
	standsStill(t, file)
	r.Start() // its credential is dead for good
	if err := r.Wait(); !errors.As(err, &revoked) {
		t.Errorf("the runner, started again, ended with %v, want revoked", err)
	}
}

// TestF35_F52_TwoProcessesOneCredential: on one machine the second process is
// refused by name.
func TestF35_F52_TwoProcessesOneCredential(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	paired := h.Pair("laptop")
	h.RunnerFor(paired)
	h.Online(paired.Runner.ID)
	second := h.RunnerFor(paired)
	var locked *agent.LockedError
	if err := second.Wait(); !errors.As(err, &locked) || !strings.Contains(locked.Holder, "pid") {
		t.Errorf("the second process ended with %v, want that the credential is in use, and by whom", err)
	}
}

// TestP8_RetriesOnlyWhatARetryCanHelp: an agent's own failure is never tried again,
// and each failure names the limit or signal with its values.
func TestP8_RetriesOnlyWhatARetryCanHelp(t *testing.T) {
	t.Parallel()
	h := house.New(t, func(c *coordinator.Config) { c.Lease = lease.Config{MaxAttempts: 2} })
	h.Runner("laptop")
	run := h.Settled(h.Submit(house.Scripted("exit 3")))
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("an agent that exits 3: got %s at attempt %d, want a result of the only attempt", run.Status, run.Attempt)
	}
	req := house.Scripted("sleep 60s")
	req.Case.TimeoutSec = 1
	run = h.Settled(h.Submit(req))
	f := run.Failure
	if f == nil || f.Reason != protocol.ReasonTimeout || f.Class != protocol.ClassHarness || f.Limit == nil || f.Limit.Configured != 1 || f.Limit.Measured < 1 {
		t.Errorf("a timeout: got %+v, want its limit, configured and measured", f)
	}
	if run.Attempt != 1 || run.Verdict != nil {
		t.Errorf("a timeout: got attempt %d and verdict %v, want one attempt and none", run.Attempt, run.Verdict)
	}
	told := 0
	for ev, err := range h.Client.Trace(t.Context(), run.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == protocol.EventError && ev.Message == f.Message {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the trace tells of a timeout %d times, want once", told)
	}
	req = house.Scripted("print 10 lines\nsleep 60s")
	req.Case.IdleTimeoutSec = 1
	if f = h.Settled(h.Submit(req)).Failure; f == nil || f.Reason != protocol.ReasonStalled {
		t.Errorf("a silent harness: got %+v, want stalled", f)
	}
	if f = h.Settled(h.Submit(house.Scripted("crash SEGV"))).Failure; f == nil || f.Signal != "SIGSEGV" || f.Class != protocol.ClassHarness {
		t.Errorf("a crash: got %+v, want its signal", f)
	}
}
