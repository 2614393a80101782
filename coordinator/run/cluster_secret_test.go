package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/protocol"
)

// registers adds versions of runtimes to the workspace.
func (w *world) registers(specs ...protocol.RuntimeSpec) {
	w.t.Helper()
	for _, spec := range specs {
		if _, err := w.runtimes.Register(w.t.Context(), "default", "ann", spec); err != nil {
			w.t.Fatalf("register %s: %v", spec.ID, err)
		}
	}
}

func nomadWith(version, secret string) protocol.RuntimeSpec {
	return protocol.RuntimeSpec{Kind: protocol.RuntimeNomad, ID: "prod", Version: version, Image: "i", Addr: "http://127.0.0.1:9", AuthSecret: secret}
}

// TestP12_AClustersSecretEntersNoJob: a harness that names a secret of the workspace with
// which a runtime is called is refused when it is submitted, in whatever version the
// runtime names it.
func TestP12_AClustersSecretEntersNoJob(t *testing.T) {
	kube := protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "kube", Version: "1", Image: "i", KubeconfigSecret: "KEY"}
	traces := nomadWith("1", "OTHER")
	traces.TraceSource = &protocol.TraceSource{Kind: "otel", Endpoint: "http://127.0.0.1:9", AuthSecret: "KEY"}
	for name, row := range map[string]struct {
		runtimes []protocol.RuntimeSpec
		env      string
		refused  string // names the runtime; empty: it is accepted
	}{
		"no runtime":                    {nil, "A=KEY", ""},
		"a runtime with another secret": {[]protocol.RuntimeSpec{nomadWith("1", "OTHER")}, "A=KEY", ""},
		"a token":                       {[]protocol.RuntimeSpec{nomadWith("1", "KEY")}, "A=KEY", "prod@1"},
		"a token of an earlier version": {[]protocol.RuntimeSpec{nomadWith("1", "KEY"), nomadWith("2", "OTHER")}, "A=KEY", "prod@1"},
		"a kubeconfig":                  {[]protocol.RuntimeSpec{kube}, "A=KEY", "kube@1"},
		"a key for traces":              {[]protocol.RuntimeSpec{traces}, "A=KEY", ""},
		"one's own of that name":        {[]protocol.RuntimeSpec{nomadWith("1", "KEY")}, "A=user:KEY", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				deploy := w.deploys("FINE=FINE", row.env)
				mac := w.pair("ann", "mac")
				w.setSecret(ofAnn, protocol.SecretWorkspace, "FINE", "any job's")
				w.setSecret(ofAnn, protocol.SecretWorkspace, "KEY", "the value")
				w.setSecret(ofAnn, protocol.SecretUser, "KEY", "ann's own")
				w.registers(row.runtimes...)
				_, err := w.s.Submit(t.Context(), ann, request("self", deploy))
				if row.refused == "" {
					if err != nil {
						t.Fatalf("got %v, want it accepted", err)
					}
					if got := w.env(w.take(mac)); got["FINE"] != "any job's" || got["A"] == "" {
						t.Errorf("the job gets %v", got)
					}
					return
				}
				var p *protocol.Problem
				if !errors.As(err, &p) || p.Code != protocol.CodeBadRequest {
					t.Fatalf("got %v, want a 400", err)
				}
				contains(t, "the refusal", p.Message, "KEY", "runtime "+row.refused, "enters no job")
				contains(t, "the hint", p.Hint, "another name", "everdict secrets set")
				if got := p.Data["secrets"]; !slices.Equal(got.([]string), []string{"KEY"}) {
					t.Errorf("data names %v", got)
				}
				if n := w.queued(); n != 0 || strings.Contains(dump(p), "value") {
					t.Errorf("%d jobs afterwards; the refusal: %s", n, dump(p))
				}
			})
		})
	}
}

// TestP12_ASecretThatBecomesAClusters: a run that waits while its secret is made a
// cluster's ends when it would get the value, after a restart as well.
func TestP12_ASecretThatBecomesAClusters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deploy := w.deploys("A=KEY")
		mac := w.pair("ann", "mac")
		w.setSecret(ofAnn, protocol.SecretWorkspace, "KEY", "the value")
		id := w.submit(request("self", deploy))
		w.registers(nomadWith("1", "KEY"), nomadWith("2", ""))
		w.restart()
		l := w.take(mac)
		_, err := w.s.Job(t.Context(), l)
		var f *protocol.Failure
		if !errors.As(err, &f) {
			t.Fatalf("job: got %v, want a failure", err)
		}
		if err := w.s.Refuse(t.Context(), l.Ref, f); err != nil {
			t.Fatal(err)
		}
		f = w.record(id).Failure
		if f == nil || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonSecret || f.Stage != protocol.StageDispatch || f.Retryable {
			t.Fatalf("the run's failure: %s", dump(f))
		}
		contains(t, "the failure", f.Message, "KEY", "runtime prod@1")
		contains(t, "its hint", f.Hint, "another name")
		run, err := w.s.Get(t.Context(), ann, id)
		if err != nil || strings.Contains(dump(run), "the value") {
			t.Errorf("the run: %s, %v", dump(run), err)
		}
	})
}

// TestP12_OnesOwnSecretOfAClustersName: a reference that leaves the scope open means one's
// own while the workspace has none of that name, and is refused as soon as it has.
func TestP12_OnesOwnSecretOfAClustersName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deploy := w.deploys("A=KEY")
		mac := w.pair("ann", "mac")
		w.registers(nomadWith("1", "KEY"))
		w.setSecret(ofAnn, protocol.SecretUser, "KEY", "ann's own")
		w.submit(request("self", deploy))
		l := w.take(mac)
		if got := w.env(l); got["A"] != "ann's own" {
			t.Errorf("the job gets %v, want ann's own", got)
		}
		w.setSecret(secret.Owner{Workspace: "default"}, protocol.SecretWorkspace, "KEY", "the cluster's")
		var f *protocol.Failure
		if doc, err := w.s.Job(t.Context(), l); !errors.As(err, &f) {
			t.Errorf("job: got %s, %v, want a failure", doc, err)
		}
		if _, err := w.s.Submit(t.Context(), ann, request("self", deploy)); code(err) != protocol.CodeBadRequest {
			t.Errorf("submit: got %v, want a 400", err)
		}
	})
}
