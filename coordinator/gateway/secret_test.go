package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

var ofAnn = secret.Owner{Workspace: "default", Subject: "ann"}

// deploys submits a run of a harness that needs the secret TOKEN.
func (w *world) deploys(target string) string {
	w.t.Helper()
	ref := &protocol.SecretRef{SecretRef: "TOKEN"}
	_, err := w.registry.Register(w.ctx(), "default", "ann", registry.Submission{Spec: &protocol.HarnessSpec{
		Kind: protocol.HarnessCommand, ID: "deployer", Version: "1", Command: "deploy", Env: map[string]protocol.EnvValue{"DEPLOY": {Secret: ref}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := w.runs.Submit(w.ctx(), ann, &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "deployer"}, Runtime: target,
		Case: protocol.Case{ID: "c1", Env: protocol.EnvSpec{Kind: protocol.EnvPrompt}, Task: "Deploy"},
	})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return r.ID
}

// TestP12_SecretsTravelWithTheAttempt: the runner that is leased a run gets the value
// that is set by then, also when it asks again.
func TestP12_SecretsTravelWithTheAttempt(t *testing.T) {
	w := newWorld(t)
	set := func(value string) {
		t.Helper()
		if err := w.secrets.Set(w.ctx(), ofAnn, "TOKEN", protocol.SecretRequest{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	mac := w.pair("ann", "mac")
	set("first value")
	w.deploys(mac.Runner.Target)
	set("second value")
	m := w.connect(mac)
	for range 2 {
		var job protocol.Job
		if err := json.Unmarshal(m.pull("r1").Payload, &job); err != nil {
			t.Fatal(err)
		}
		if job.Env["DEPLOY"] != "second value" || job.Harness.Env["DEPLOY"].Secret == nil {
			t.Errorf("the runner got %v and the harness %+v", job.Env, job.Harness)
		}
		set("second value") // an answer that is given again, of the same value sealed anew
	}
}

// TestP8_ARunWithoutItsSecretEndsAndThePullGoesOn: runs whose secret was deleted end
// one by one, each once, and the runner that would have had them gets what comes
// after them.
func TestP8_ARunWithoutItsSecretEndsAndThePullGoesOn(t *testing.T) {
	w := newWorld(t)
	mac := w.pair("ann", "mac")
	if err := w.secrets.Set(w.ctx(), ofAnn, "TOKEN", protocol.SecretRequest{Value: "the value"}); err != nil {
		t.Fatal(err)
	}
	poor := []string{w.deploys(mac.Runner.Target), w.deploys(mac.Runner.Target)}
	rich := w.submit(mac.Runner.Target)
	if err := w.secrets.Delete(w.ctx(), ofAnn, protocol.SecretWorkspace, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	m := w.connect(mac)
	if got := m.begin("r1"); got.Run != rich {
		t.Errorf("the runner got %s, want %s", got.Run, rich)
	}
	for _, id := range poor {
		w.tells(id, "failed, 1 released")
		r, err := w.store.Run(w.ctx(), "default", id)
		if err != nil || r.Failure == nil || r.Failure.Class != protocol.ClassConfig || !strings.Contains(r.Failure.Message, "TOKEN") {
			t.Errorf("%s: %+v, %v, want a failure of its configuration that names TOKEN", id, r.Failure, err)
		}
		if st := w.job(id); st.State != lease.Settled {
			t.Errorf("%s is %v in the queue", id, st.State)
		}
	}
	w.until("the runner is shown with the one run that it has", func() bool { return w.runner(mac.Runner.ID).Busy == 1 })
}
