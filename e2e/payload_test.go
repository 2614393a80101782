package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// handOut submits a run, hands it out, and returns its id and the file of its payload.
func handOut(t *testing.T, h *house.House, req *protocol.RunRequest) (run, file string) {
	t.Helper()
	h.Runtime("lab", 1)
	req.Runtime = "lab"
	run = h.Submit(req)
	p, err := h.Client.HandOut(t.Context(), run, protocol.PayloadRequest{})
	if err != nil {
		t.Fatalf("hand out: %v", err)
	}
	doc, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return run, file
}

// payloadRunner is the real job-runner for a payload; more are variables of its own.
func payloadRunner(t *testing.T, file string, more ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(jobRunner(t))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "EVERDICT_RUNNER_DIR=" + dir, "EVERDICT_PAYLOAD_FILE=" + file}, more...)
	return cmd
}

// runPayload runs it to its end and returns what it printed.
func runPayload(t *testing.T, cmd *exec.Cmd, want int) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("job-runner ended with %v, want code %d:\n%s%s", err, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func removed(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the payload is still there (%v)", err)
	}
}

// TestPayloadWithoutACoordinator: a run is carried out where no coordinator can be
// reached, prints its result, and is settled when somebody brings it. Its secrets come
// from where it runs, reach the harness alone, and are masked.
func TestPayloadWithoutACoordinator(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	ctx := t.Context()
	if err := h.Client.SetSecret(ctx, "LAB_KEY", protocol.SecretRequest{Value: "from-the-coordinator", Scope: protocol.SecretWorkspace}); err != nil {
		t.Fatal(err)
	}
	spec := `{"kind":"command","id":"lab-agent","version":"1.0.0","env":{"KEY":{"secretRef":"LAB_KEY"}},
		"command":"printf %s \"$KEY\" > key.txt; env > env.txt; echo said $KEY"}`
	if _, err := h.Client.RegisterHarness(ctx, []byte(spec)); err != nil {
		t.Fatal(err)
	}
	run, file := handOut(t, h, &protocol.RunRequest{Harness: protocol.HarnessRef{ID: "lab-agent"}, Case: protocol.Case{
		ID: "c1", Task: "t", TimeoutSec: 60, Env: protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}},
		Graders: []protocol.GraderSpec{{ID: "tests-pass", Config: json.RawMessage(
			`{"cmd":"test \"$(cat key.txt)\" = from-the-laboratory && ! grep -E 'EVERDICT_(SECRET|PAYLOAD)' env.txt"}`)}},
	}})
	doc, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(doc), "from-the-coordinator") {
		t.Fatalf("the payload holds the value of a secret (P12): %s, %v", doc, err)
	}

	_, stderr := runPayload(t, payloadRunner(t, file), 2)
	if !strings.Contains(stderr, "set EVERDICT_SECRET_LAB_KEY") {
		t.Errorf("without the secret it says %q, want which is missing", stderr)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("the payload was used up although nothing ran: %v", err)
	}
	runner := payloadRunner(t, file, "EVERDICT_SECRET_LAB_KEY=from-the-laboratory")
	stdout, stderr := runPayload(t, runner, 0)
	removed(t, file)
	if strings.Contains(stdout+stderr, "from-the-laboratory") {
		t.Errorf("the secret is in the output (P12):\n%s%s", stdout, stderr)
	}
	result := protocol.ResultIn([]byte(stdout))
	if result == nil || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("printed was %q, want one line with the result", stdout)
	}
	// Where the output was a file, a second start has emptied it.
	if again, said := runPayload(t, &exec.Cmd{Path: runner.Path, Args: runner.Args, Env: runner.Env}, 0); again != stdout || !strings.Contains(said, "was used: attempt 1 of "+run+" ran from it. Its result is printed again") {
		t.Errorf("a second start prints %q and says %q; want the result again", again, said)
	}
	for range 2 { // twice is as once
		got, err := h.Client.Deliver(ctx, run, 1, result)
		if err != nil || got.Late {
			t.Fatalf("deliver: %+v, %v", got, err)
		}
	}
	r := h.Settled(run)
	if r.Status != protocol.StatusSucceeded || r.Verdict == nil || !*r.Verdict {
		t.Errorf("the run is %s, verdict %v, scores %+v, %+v; want it passed", r.Status, r.Verdict, r.Scores, r.Failure)
	}
}

// TestPayloadDelivers: a payload whose runner can reach the coordinator delivers as every
// runner does, with its evidence, and prints nothing.
func TestPayloadDelivers(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	run, file := handOut(t, h, house.Scripted("say from a payload"))
	runner := payloadRunner(t, file, "EVERDICT_API_URL="+h.URL())
	stdout, stderr := runPayload(t, runner, 0)
	removed(t, file)
	if stdout != "" || !strings.Contains(stderr, "the result of attempt 1 of "+run+" is delivered to "+h.URL()) {
		t.Errorf("printed was %q, said %q; want nothing printed, and that it is delivered", stdout, stderr)
	}
	if _, said := runPayload(t, &exec.Cmd{Path: runner.Path, Args: runner.Args, Env: runner.Env}, 2); !strings.Contains(said, "was used: attempt 1 of "+run+" ran from it, and it has no result here") {
		t.Errorf("a second start says %q, want that the payload was used", said)
	}
	r := h.Settled(run)
	if r.Status != protocol.StatusSucceeded || r.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d: %+v", r.Status, r.Attempt, r.Failure)
	}
	said := false
	for event, err := range h.Client.Trace(t.Context(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		said = said || event.Text != nil && strings.Contains(*event.Text, "from a payload")
	}
	if !said {
		t.Error("the trace has not what the agent said")
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// TestP4_PayloadWithoutHeartbeats: a coordinator that is away for longer than a lease lasts
// neither freezes the run nor gives it away when it is back.
func TestP4_PayloadWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	gate := filepath.Join(t.TempDir(), "gate")
	ticks := filepath.Join(t.TempDir(), "ticks")
	run, file := handOut(t, h, house.Scripted("run while [ ! -e "+gate+" ]; do date +%s >> "+ticks+"; sleep 0.2; done"))
	cmd := payloadRunner(t, file, "EVERDICT_API_URL="+h.URL())
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := func() int {
		b, _ := os.ReadFile(ticks)
		return strings.Count(string(b), "\n")
	}
	house.Eventually(t, "it runs", func() bool { return lines() > 0 })
	h.Stop()
	// Far beyond the lease's 3 s: two seconds' worth of ticks after it would have frozen.
	before := lines()
	house.Eventually(t, "it goes on without a coordinator", func() bool { return lines() > before+25 })
	h.Start()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("job-runner: %v: %s", err, out.String())
	}
	if r := h.Settled(run); r.Status != protocol.StatusSucceeded || r.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d: %+v; want it done by the payload", r.Status, r.Attempt, r.Failure)
	}
}

// TestF17_APayloadIsNotRunTwice: a container that is started again, with its payload
// there anew, reports the attempt as lost and runs nothing.
func TestF17_APayloadIsNotRunTwice(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	begun := filepath.Join(t.TempDir(), "begun")
	run, file := handOut(t, h, house.Scripted("run echo begun >> "+begun+"; while :; do sleep 0.05; done"))
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := payloadRunner(t, file)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "it has begun", func() bool { return size(begun) > 0 })
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(first.Path)
	again.Env = first.Env
	stdout, _ := runPayload(t, again, 0)
	got, err := h.Client.Deliver(context.WithoutCancel(t.Context()), run, 1, protocol.ResultIn([]byte(stdout)))
	if err != nil || got.Late {
		t.Fatalf("deliver %q: %+v, %v", stdout, got, err)
	}
	attempts, err := h.Client.Attempts(t.Context(), run)
	if err != nil || len(attempts) == 0 || attempts[0].Result == nil || attempts[0].Result.Failure.Reason != protocol.ReasonLost {
		t.Errorf("the first attempt is %s, %v; want it lost", encoded(t, attempts), err)
	}
	if b, _ := os.ReadFile(begun); strings.Count(string(b), "begun") != 1 {
		t.Errorf("the run began %d times, want once", strings.Count(string(b), "begun"))
	}
}

// TestPayloadIsCancelled: a runner that can be reached ends the run; of one that cannot the
// run is over all the same, and what it brings is late.
func TestPayloadIsCancelled(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	run, file := handOut(t, h, house.Scripted("run while :; do sleep 0.05; done"))
	cmd := payloadRunner(t, file, "EVERDICT_API_URL="+h.URL())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	house.Eventually(t, "its runner is there", func() bool {
		for _, err := range h.Client.Trace(t.Context(), run, 0) {
			return err == nil
		}
		return false
	})
	if _, err := h.Client.Cancel(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("job-runner: %v", err)
	}
	if r := h.Settled(run); r.Failure == nil || r.Failure.Reason != protocol.ReasonCancelled {
		t.Errorf("the run is %s, %+v; want it cancelled", r.Status, r.Failure)
	}
}

// TestPayloadRefusedByTheRunner: a file that is no payload, or cannot be removed, and
// settings that contradict each other: nothing runs, nothing is used up.
func TestPayloadRefusedByTheRunner(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	_, file := handOut(t, h, house.Scripted("say hello"))
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(`{"apiVersion":"v1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		file string
		more []string
		want string
	}{
		"missing":            {filepath.Join(t.TempDir(), "none"), nil, "no such file"},
		"no payload":         {other, nil, `unknown field "apiVersion"`},
		"a token beside it":  {file, []string{"EVERDICT_JOIN_TOKEN_FILE=" + other}, "set one of them"},
		"no place for state": {file, []string{"EVERDICT_RUNNER_DIR=" + other}, "not a directory"},
	} {
		stdout, stderr := runPayload(t, payloadRunner(t, row.file, row.more...), 2)
		if stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: %q and %q, want %q", name, stdout, stderr, row.want)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the payload was used up although nothing ran: %v", err)
	}
}
