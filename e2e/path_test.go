package e2e

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestMainPath is the job of the product: submitted, pulled, run, graded, and the
// evidence back.
func TestMainPath(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop")
	id := h.Submit(&protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "scripted", Version: "latest"},
		Case: protocol.Case{
			ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}},
			Task:    "Create ok.txt containing the text done",
			Graders: []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":"grep -q done ok.txt"}`)}},
		},
	})
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Verdict == nil || !*run.Verdict {
		t.Fatalf("run: got status %s, verdict %v, failure %+v", run.Status, run.Verdict, run.Failure)
	}
	if run.Result == nil || !strings.Contains(run.Result.Snapshot.Diff, "+done") {
		t.Errorf("result: got %+v, want a diff that adds ok.txt", run.Result)
	}
	if len(run.Result.Trace) == 0 {
		t.Error("the result has no trace")
	}
	body, err := h.Client.Diff(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	diff, err := io.ReadAll(body)
	if err != nil || string(diff) != run.Result.Snapshot.Diff {
		t.Errorf("GET diff: got %q, %v, want what the result has", diff, err)
	}
	if p := run.Provenance; p == nil || p.RanOn != "self-hosted" || p.RunnerLabel != "laptop" {
		t.Errorf("provenance: got %+v", p)
	}
}

// TestPromptContext: an agent in a prompt environment is told the context before
// its task.
func TestPromptContext(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	if _, err := h.Client.RegisterHarness(context.Background(), []byte(`{"kind":"command","id":"echo","version":"1","command":"printf %s {{task}}"}`)); err != nil {
		t.Fatal(err)
	}
	h.Runner("laptop")
	run := h.Settled(h.Submit(&protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "echo", Version: "1"},
		Case: protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt, Context: "The capital of France is Paris."},
			Task: "What is the capital of France?"},
	}))
	if run.Result == nil || run.Result.Snapshot.Output != "The capital of France is Paris.\n\nWhat is the capital of France?" {
		t.Errorf("the agent was told %+v", run.Result)
	}
}
