package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// asking are the places where a job asks: on its host, and in images of which one
// has no C library and the other one of its own.
var asking = map[string]string{"process": "", "busybox": busybox, "debian": debian}

// asks gives a runner everything that a job of any place needs to ask.
func asks(t testing.TB) func(*agent.Config) {
	return func(c *agent.Config) {
		containers(t)(c)
		c.Executable = binary(t)
	}
}

func suspended(r protocol.Run) bool { return r.Status == protocol.StatusSuspended }

// held waits until a run's container stands still.
func held(t testing.TB, run string) {
	t.Helper()
	house.Eventually(t, "the container of "+run+" is paused", func() bool {
		out, err := exec.Command("docker", "ps", "-q", "--filter", "name="+run, "--filter", "status=paused").Output()
		return err == nil && len(strings.Fields(string(out))) == 1
	})
}

// TestAskAPerson: a running job asks through the everdict command on its PATH; the
// run is suspended until somebody answers, and the job hears the answer.
func TestAskAPerson(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", asks(t))
	ctx := context.Background()
	ask := func(t *testing.T, image string) string {
		id := h.Submit(inImage(image, "ask May I spend a dollar?"))
		run := h.Until(id, "the run is suspended", suspended)
		if s := run.Suspended; s == nil || s.Kind != protocol.SuspendedAsk || s.Question != "May I spend a dollar?" {
			t.Fatalf("suspended: got %+v", s)
		}
		if image != "" {
			held(t, id)
		}
		return id
	}
	for place, image := range asking {
		for _, approved := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %t", place, approved), func(t *testing.T) {
				id := ask(t, image)
				decide, want := h.Client.Reject, false
				if approved {
					decide, want = h.Client.Approve, true
				}
				if _, err := decide(ctx, id, protocol.Decision{Comment: "by the \"book\" – §1"}); err != nil {
					t.Fatal(err)
				}
				run := h.Settled(id)
				if run.Status != protocol.StatusSucceeded {
					t.Fatalf("answered: got %s %+v", run.Status, run.Failure)
				}
				var heard *bool
				var output *string
				for _, ev := range run.Result.Trace {
					if ev.Kind == protocol.EventToolResult {
						heard, output = ev.OK, ev.Output
					}
				}
				if heard == nil || *heard != want || output == nil || !strings.Contains(*output, "§1") {
					t.Errorf("the job heard %v, want %v with the comment (trace %+v)", heard, want, run.Result.Trace)
				}
				attempts, err := h.Client.Attempts(ctx, id)
				if err != nil || len(attempts) != 1 || len(attempts[0].Answers) != 1 || !strings.HasPrefix(attempts[0].Answers[0].Comment, "by the") {
					t.Errorf("the answer in evidence: got %+v, %v", attempts, err)
				}
				if got := kinds(t, h, id); got != "submitted leased started suspended resumed settled" {
					t.Errorf("events: got %q", got)
				}
			})
		}
	}
}

// TestAskSurvivesARestart: a question outlives the coordinator that it was put to.
func TestAskSurvivesARestart(t *testing.T) {
	t.Parallel()
	for place, image := range asking {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			h := house.New(t, house.Quick)
			h.Runner("laptop", asks(t))
			id := h.Submit(inImage(image, "ask Still there?\nask And now?"))
			h.Until(id, "the run is suspended", suspended)
			h.Stop()
			if image != "" {
				held(t, id)
			}
			h.Start()
			h.Until(id, "the run is suspended after the restart", suspended)
			if _, err := h.Client.Approve(context.Background(), id, protocol.Decision{}); err != nil {
				t.Fatal(err)
			}
			h.Until(id, "the job asks again", func(r protocol.Run) bool {
				return suspended(r) && r.Suspended.Question == "And now?"
			})
			if _, err := h.Client.Approve(context.Background(), id, protocol.Decision{}); err != nil {
				t.Fatal(err)
			}
			if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
				t.Errorf("answered: got %s at attempt %d (%+v)", run.Status, run.Attempt, run.Failure)
			}
		})
	}
}

// TestAskNobodyWaitsFor: a job that ends while its question is on its way or waits
// is judged, and settles: at once when it ended before it was held still for the
// answer, else when that is there.
func TestAskNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", asks(t), func(c *agent.Config) { c.Slots = len(asking) })
	for place, image := range asking {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			req := inImage(image, "fork everdict ask Anybody?\nrun echo done > ok.txt")
			req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
			req.Case.Graders = []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":"grep -q done ok.txt"}`)}}
			id := h.Submit(req)
			run := h.Until(id, "the run settles, or asks", func(r protocol.Run) bool { return r.Status.Terminal() || suspended(r) })
			if suspended(run) {
				// An error says that the question was withdrawn meanwhile.
				_, _ = h.Client.Approve(context.Background(), id, protocol.Decision{})
			}
			if run = h.Settled(id); run.Verdict == nil || !*run.Verdict {
				t.Errorf("run: got %s, scores %+v, failure %+v", run.Status, run.Scores, run.Failure)
			}
		})
	}
}

// TestAskInAnothersName: jobs of one runner are one user and find each other's sockets; a question in another run's name
// is refused, and holds nothing up.
func TestAskInAnothersName(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", func(c *agent.Config) { c.Executable, c.Slots = binary(t), 2 })
	dir := t.TempDir()
	begun, end := filepath.Join(dir, "begun"), filepath.Join(dir, "end")
	honest := h.Submit(house.Scripted(fmt.Sprintf("run touch %s; while [ ! -e %s ]; do sleep 0.05; done", begun, end)))
	house.Eventually(t, "the other job works", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	forger := h.Settled(h.Submit(house.Scripted(`run for s in "$(dirname "$EVERDICT_ASK_SOCKET")"/*; do [ "$s" = "$EVERDICT_ASK_SOCKET" ] || EVERDICT_ASK_SOCKET=$s everdict ask "May it delete everything?" 2>&1; echo "code $?"; done`)))
	var heard string
	for _, ev := range forger.Result.Trace {
		if ev.Kind == protocol.EventToolResult && ev.Output != nil {
			heard += *ev.Output
		}
	}
	if !strings.Contains(heard, "none of the run") || !strings.Contains(heard, "code 2") {
		t.Errorf("the forger heard %q", heard)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(honest); run.Status != protocol.StatusSucceeded {
		t.Errorf("the other run: %s, %+v", run.Status, run.Failure)
	}
	if got := kinds(t, h, honest); got != "submitted leased started settled" {
		t.Errorf("events of the other run: got %q", got)
	}
}
