package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestApprovalBeforeStart: a run that wants approval waits for it, and says so.
func TestApprovalBeforeStart(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop")
	ctx := context.Background()
	submit := func() string {
		req := house.Scripted("say hello")
		req.Case.Approval = protocol.ApprovalBeforeStart
		id := h.Submit(req)
		run := h.Run(id)
		if run.Status != protocol.StatusSuspended || run.Suspended == nil || run.Suspended.Kind != protocol.ApprovalBeforeStart {
			t.Fatalf("submitted: got %s %+v, want suspended before start", run.Status, run.Suspended)
		}
		if !strings.Contains(run.Placement.BlockedReason, "approval") {
			t.Errorf("why: got %q", run.Placement.BlockedReason)
		}
		return id
	}
	yes, no := submit(), submit()
	if _, err := h.Client.Approve(ctx, yes, protocol.Decision{}); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(yes); run.Status != protocol.StatusSucceeded {
		t.Errorf("approved: got %s %+v", run.Status, run.Failure)
	}
	if _, err := h.Client.Approve(ctx, yes, protocol.Decision{}); err == nil {
		t.Error("approving a run that is over: got no error")
	}
	run, err := h.Client.Reject(ctx, no, protocol.Decision{Comment: "too dear"})
	if err != nil {
		t.Fatal(err)
	}
	if f := run.Failure; run.Status != protocol.StatusFailed || f == nil || f.Reason != protocol.ReasonRejected || !strings.Contains(f.Message, "too dear") {
		t.Errorf("rejected: got %s %+v", run.Status, f)
	}
}

// TestAskAPerson: a running job asks through the everdict command on its PATH; the
// run is suspended until somebody answers, and the job hears the answer.
func TestAskAPerson(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", func(c *agent.Config) { c.Executable = binary(t) })
	ctx := context.Background()
	ask := func() string {
		id := h.Submit(house.Scripted("ask May I spend a dollar?"))
		run := h.Until(id, "the run is suspended", func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended })
		if s := run.Suspended; s == nil || s.Kind != protocol.SuspendedAsk || s.Question != "May I spend a dollar?" {
			t.Fatalf("suspended: got %+v", s)
		}
		return id
	}
	for _, approved := range []bool{true, false} {
		id := ask()
		decide, want := h.Client.Reject, false
		if approved {
			decide, want = h.Client.Approve, true
		}
		if _, err := decide(ctx, id, protocol.Decision{Comment: "by the book"}); err != nil {
			t.Fatal(err)
		}
		run := h.Settled(id)
		if run.Status != protocol.StatusSucceeded {
			t.Fatalf("answered: got %s %+v", run.Status, run.Failure)
		}
		var heard *bool
		for _, ev := range run.Result.Trace {
			if ev.Kind == protocol.EventToolResult {
				heard = ev.OK
			}
		}
		if heard == nil || *heard != want {
			t.Errorf("the job heard %v, want %v (trace %+v)", heard, want, run.Result.Trace)
		}
		attempts, err := h.Client.Attempts(ctx, id)
		if err != nil || len(attempts) != 1 || len(attempts[0].Answers) != 1 || attempts[0].Answers[0].Comment != "by the book" {
			t.Errorf("the answer in evidence: got %+v, %v", attempts, err)
		}
		if got := kinds(t, h, id); got != "submitted leased started suspended resumed settled" {
			t.Errorf("events: got %q", got)
		}
	}
}

// TestAskSurvivesARestart: a question outlives the coordinator that it was put to.
func TestAskSurvivesARestart(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	h.Runner("laptop", func(c *agent.Config) { c.Executable = binary(t) })
	id := h.Submit(house.Scripted("ask Still there?"))
	suspended := func(r protocol.Run) bool { return r.Status == protocol.StatusSuspended }
	h.Until(id, "the run is suspended", suspended)
	h.Stop()
	h.Start()
	h.Until(id, "the run is suspended after the restart", suspended)
	if _, err := h.Client.Approve(context.Background(), id, protocol.Decision{}); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("answered: got %s at attempt %d (%+v)", run.Status, run.Attempt, run.Failure)
	}
}
