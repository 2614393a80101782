package run

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
)

var ofAnn = secret.Owner{Workspace: "default", Subject: "ann"}

func (w *world) setSecret(o secret.Owner, scope, name, value string) {
	w.t.Helper()
	if err := w.secrets.Set(w.t.Context(), o, name, protocol.SecretRequest{Value: value, Scope: scope}); err != nil {
		w.t.Fatalf("set %s: %v", name, err)
	}
}

func (w *world) deleteSecret(scope, name string) {
	w.t.Helper()
	if err := w.secrets.Delete(w.t.Context(), ofAnn, scope, name); err != nil {
		w.t.Fatalf("delete %s: %v", name, err)
	}
}

// deploys registers a harness whose variables are secrets: VARIABLE=NAME, or
// VARIABLE=user:NAME.
func (w *world) deploys(env ...string) func(*protocol.RunRequest) {
	w.t.Helper()
	spec := &protocol.HarnessSpec{Kind: protocol.HarnessCommand, ID: "deployer", Version: "1", Command: "deploy {{task}}",
		Env: map[string]protocol.EnvValue{"PLAIN": {Value: "seen by all"}}}
	for _, kv := range env {
		variable, name, _ := strings.Cut(kv, "=")
		ref := protocol.SecretRef{SecretRef: name}
		if own, is := strings.CutPrefix(name, "user:"); is {
			ref = protocol.SecretRef{SecretRef: own, Scope: protocol.SecretUser}
		}
		spec.Env[variable] = protocol.EnvValue{Secret: &ref}
	}
	if _, err := registry.New(w.store, nil).Register(w.t.Context(), "default", "ann", registry.Submission{Spec: spec}); err != nil {
		w.t.Fatal(err)
	}
	return func(r *protocol.RunRequest) { r.Harness = protocol.HarnessRef{ID: spec.ID} }
}

// env is what a runner would be given with a lease.
func (w *world) env(l lease.Lease) map[string]string {
	w.t.Helper()
	doc, err := w.s.Job(w.t.Context(), l)
	if err != nil {
		w.t.Fatalf("job of %s: %v", l.Job, err)
	}
	var job protocol.Job
	if err := json.Unmarshal(doc, &job); err != nil {
		w.t.Fatal(err)
	}
	return job.Env
}

// TestP15_MissingSecretsAreNamed: a run whose harness needs what the submitter has not
// is refused, with every name that is missing; somebody who has them may submit it.
func TestP15_MissingSecretsAreNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deploy := w.deploys("A=THERE", "B=GONE", "C=user:MINE", "D=GONE", "E=ALSO_GONE")
		w.pair("ann", "mac")
		w.pair("bob", "bobs")
		w.setSecret(ofAnn, protocol.SecretWorkspace, "THERE", "value")
		w.setSecret(ofAnn, protocol.SecretUser, "MINE", "ann's own")
		refused := func(who auth.Principal, want ...string) {
			t.Helper()
			_, err := w.s.Submit(t.Context(), who, request("self", deploy))
			var p *protocol.Problem
			if !errors.As(err, &p) || p.Code != protocol.CodeBadRequest || !strings.Contains(p.Hint, "everdict secrets set") {
				t.Fatalf("%s: got %v, want a 400 with a hint", who.Subject, err)
			}
			if got := p.Data["secrets"]; !slices.Equal(got.([]string), want) {
				t.Errorf("%s misses %v, want %v", who.Subject, got, want)
			}
		}
		refused(ann, "ALSO_GONE", "GONE")
		w.setSecret(ofAnn, protocol.SecretWorkspace, "ALSO_GONE", "value")
		w.setSecret(ofAnn, protocol.SecretUser, "GONE", "ann's own") // nobody else's: hers serves her
		// What names Ann's own is private: for Bob it is not there.
		if _, err := w.s.Submit(t.Context(), bob, request("self", deploy)); code(err) != protocol.CodeNotFound {
			t.Errorf("bob runs ann's private harness: %v, want that there is none", err)
		}
		if n := w.queued(); n != 0 {
			t.Errorf("%d jobs afterwards, want none", n)
		}
		w.submit(request("self", deploy))
	})
}

// TestP15_OwnSecretsServeOwnHarnesses: Bob's own secrets are not given to a harness of
// Ann's, which he sees because it asks for nothing of hers.
func TestP15_OwnSecretsServeOwnHarnesses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deploy := w.deploys("A=THEIRS")
		w.pair("bob", "bobs")
		w.setSecret(secret.Owner{Workspace: "default", Subject: "bob"}, protocol.SecretUser, "THEIRS", "bob's own")
		_, err := w.s.Submit(t.Context(), bob, request("self", deploy))
		var p *protocol.Problem
		if !errors.As(err, &p) || p.Code != protocol.CodeBadRequest || !strings.Contains(p.Hint, "ann registered this one") {
			t.Errorf("got %v, want a 400 that says whose harness it is", err)
		}
	})
}

// TestP12_SecretsAreResolvedAtHandOut: each attempt gets the values of its own time,
// those of the submitter, and neither record nor spec nor queue has one.
func TestP12_SecretsAreResolvedAtHandOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deploy := w.deploys("TOKEN=TOKEN", "MINE=user:MINE", "EITHER=EITHER")
		mac := w.pair("ann", "mac")
		w.setSecret(ofAnn, protocol.SecretWorkspace, "TOKEN", "the first value")
		w.setSecret(ofAnn, protocol.SecretUser, "MINE", "ann's own value")
		w.setSecret(secret.Owner{Workspace: "default", Subject: "bob"}, protocol.SecretUser, "MINE", "bob's own value")
		w.setSecret(ofAnn, protocol.SecretUser, "EITHER", "ann's either")
		id := w.submit(request("self", deploy))
		w.setSecret(ofAnn, protocol.SecretWorkspace, "TOKEN", "the second value")
		l := w.take(mac)
		if got := w.env(l); len(got) != 3 || got["TOKEN"] != "the second value" || got["MINE"] != "ann's own value" || got["EITHER"] != "ann's either" {
			t.Errorf("the first attempt gets %v", got)
		}
		if len(l.Payload) != 0 {
			t.Errorf("the queue has a document with the job: %s", l.Payload)
		}
		if err := w.s.GiveBack(t.Context(), l.Ref, "changed its mind"); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.setSecret(ofAnn, protocol.SecretWorkspace, "TOKEN", "the third value")
		w.setSecret(ofAnn, protocol.SecretWorkspace, "EITHER", "everybody's either")
		if got := w.env(w.take(mac)); got["TOKEN"] != "the third value" || got["EITHER"] != "everybody's either" {
			t.Errorf("the second attempt gets %v", got)
		}
		doc, err := w.store.RunSpec(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		run, err := w.s.Get(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		if all := string(doc) + dump(run); strings.Contains(all, "value") || !strings.Contains(all, `"secretRef":"TOKEN"`) {
			t.Errorf("what is kept of the run: %s", all)
		}
	})
}

// TestP8_ASecretThatIsGone: a run whose secret was deleted after it was accepted ends
// once, as a failure of its configuration, and so does one whose secret was damaged.
func TestP8_ASecretThatIsGone(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(*world)
		says  string
	}{
		"deleted": {func(w *world) { w.deleteSecret(protocol.SecretWorkspace, "TOKEN") }, "not there any more: TOKEN"},
		"damaged": {func(w *world) {
			r, err := w.store.Secret(w.t.Context(), store.SecretKey{Workspace: "default", Scope: protocol.SecretWorkspace, Name: "TOKEN"})
			if err != nil {
				w.t.Fatal(err)
			}
			r.Sealed[len(r.Sealed)-1] ^= 1
			if err := w.store.PutSecret(w.t.Context(), *r); err != nil {
				w.t.Fatal(err)
			}
		}, "TOKEN, which cannot be read any more: set it again"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				deploy := w.deploys("TOKEN=TOKEN")
				mac := w.pair("ann", "mac")
				w.setSecret(ofAnn, protocol.SecretWorkspace, "TOKEN", "the value")
				id := w.submit(request("self", deploy))
				row.spoil(w)
				l := w.take(mac)
				_, err := w.s.Job(t.Context(), l)
				var f *protocol.Failure
				if !errors.As(err, &f) {
					t.Fatalf("job: got %v, want a failure", err)
				}
				for range 2 { // the second time it is settled
					if err := w.s.Refuse(t.Context(), l.Ref, f); err != nil && !errors.Is(err, lease.ErrAlreadySettled) {
						t.Fatalf("refuse: %v", err)
					}
				}
				run, err := w.s.Get(t.Context(), ann, id)
				if err != nil {
					t.Fatal(err)
				}
				if f := run.Failure; run.Status != protocol.StatusFailed || f == nil || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonSecret ||
					f.Stage != protocol.StageDispatch || f.Retryable || !strings.Contains(f.Message, row.says) || strings.Contains(dump(run), "the value") {
					t.Errorf("the run: %s", dump(run))
				}
				if n := w.queued(); n != 0 {
					t.Errorf("%d jobs wait afterwards", n)
				}
				attempts, err := w.s.Attempts(t.Context(), ann, id)
				if err != nil || len(attempts) != 1 || attempts[0].Outcome != protocol.AttemptReleased || attempts[0].EndedAt == nil {
					t.Errorf("attempts: %s, %v", dump(attempts), err)
				}
			})
		})
	}
}

// TestP2_ARunThatHasBegunIsNotRefused: the job of a pull that is answered again may be
// impossible by now; the attempt that has its values goes on.
func TestP2_ARunThatHasBegunIsNotRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac")
		id := w.submit(request("self"))
		l := w.begin(mac)
		if err := w.s.Refuse(t.Context(), l.Ref, secretFailure("too late")); !errors.Is(err, ErrBegun) {
			t.Errorf("refuse: got %v, want ErrBegun", err)
		}
		if done := w.finish(mac, l.Ref, passed(true)); done != Accepted {
			t.Errorf("its result was answered %v", done)
		}
		if run, err := w.s.Get(t.Context(), ann, id); err != nil || run.Status != protocol.StatusSucceeded {
			t.Errorf("the run: %s, %v", dump(run), err)
		}
	})
}

// TestP15_EveryAcceptedJobCanBeSent: a run whose job no runner can be sent is refused, and
// what JSON makes long for the sake of HTML is none of these.
func TestP15_EveryAcceptedJobCanBeSent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mac := w.pair("ann", "mac", "git")
		with := func(content string) *protocol.RunRequest {
			return request(protocol.TargetSelfPrefix+mac.Runner.ID, func(r *protocol.RunRequest) {
				r.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"a.txt": content}}}
			})
		}
		tags := strings.Repeat("<b>&", 15<<20/4)
		w.submit(with(tags))
		doc, err := w.s.Job(t.Context(), w.take(mac))
		var job protocol.Job
		if err == nil {
			err = json.Unmarshal(doc, &job)
		}
		if err != nil || len(doc) > protocol.MaxJobBytes || job.Case.Env.Source.Files["a.txt"] != tags {
			t.Errorf("a job of %d bytes, %v; want what was submitted in at most %d", len(doc), err, protocol.MaxJobBytes)
		}
		// What is valid in JSON and not in JavaScript is escaped, to twice its length.
		if _, err := w.s.Submit(t.Context(), ann, with(strings.Repeat("\u2028", 15<<20/3))); code(err) != protocol.CodeBadRequest {
			t.Errorf("a job that cannot be sent: %v, want BAD_REQUEST", err)
		}
		if runs, _, err := w.s.List(t.Context(), ann, store.RunFilter{}); err != nil || len(runs) != 1 {
			t.Errorf("%d runs, %v; want the first alone", len(runs), err)
		}
	})
}
