package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// launcherRules are those of the Role with which the end-to-end tests launch.
func launcherRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	doc, err := os.ReadFile("../../../deploy/kubernetes/launcher.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(doc), "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if role, ok := object.(*rbacv1.Role); ok {
			return role.Rules
		}
	}
	t.Fatal("launcher.yaml has no Role")
	return nil
}

// permitting is an API server that says of itself what some rules permit, and of the dry
// run of a Job what says.
func permitting(t *testing.T, rules []rbacv1.PolicyRule, says *apierrors.StatusError) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion":"v1.34.4"}`))
			return
		}
		if r.URL.Path == "/apis/batch/v1/namespaces/runs/jobs" {
			if r.Method != http.MethodPost || r.URL.Query().Get("dryRun") != "All" {
				t.Errorf("%s %s: want a dry run alone", r.Method, r.URL)
			}
			var answer any = &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}}
			if says != nil {
				answer = sent(says)
				w.WriteHeader(int(says.Status().Code))
			}
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		var review authv1.SelfSubjectAccessReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
		}
		if err != nil || review.Spec.ResourceAttributes == nil || review.Spec.ResourceAttributes.Namespace != "runs" {
			t.Errorf("%s asks %+v, %v", r.URL.Path, review.Spec, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a := review.Spec.ResourceAttributes
		resource := right{resource: a.Resource, subresource: a.Subresource}.String()
		review.Status.Allowed = slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, a.Group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, a.Verb)
		})
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// sent is an error as an API server sends it.
func sent(err *apierrors.StatusError) metav1.Status {
	s := err.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return s
}

func probed(t *testing.T, rules []rbacv1.PolicyRule, says *apierrors.StatusError) (string, error) {
	t.Helper()
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", Namespace: "runs", Server: permitting(t, rules, says)}
	p, err := New(Config{Egress: []string{"10.0.0.7/32"}}).Open(t.Context(), fleet.Target{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return p.Probe(t.Context())
}

// TestProbeAsksForTheRole: what deploy/kubernetes/launcher.yaml permits is enough, and
// without any verb of it the probe says which is missing, and that alone.
func TestProbeAsksForTheRole(t *testing.T) {
	t.Parallel()
	rules := launcherRules(t)
	if detail, err := probed(t, rules, nil); err != nil || detail != "kubernetes v1.34.4, namespace runs" {
		t.Errorf("with the whole Role: %q, %v", detail, err)
	}
	for i, rule := range rules {
		for j, verb := range rule.Verbs {
			less := slices.Clone(rules)
			less[i].Verbs = slices.Delete(slices.Clone(rule.Verbs), j, j+1)
			_, err := probed(t, less, nil)
			if want := "it may not " + verb + " " + rule.Resources[0] + " in namespace runs"; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	_, err := probed(t, slices.Delete(slices.Clone(rules), 1, 3), nil)
	if want := "it may not create, delete secrets; create networkpolicies in namespace runs"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want all that is missing: %q", err, want)
	}
}

// TestProbeHasAJobAdmitted: what would refuse a launch refuses the probe, in the cluster's
// words; what refuses the probe alone, or for now, does not.
func TestProbeHasAJobAdmitted(t *testing.T) {
	t.Parallel()
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for name, c := range map[string]struct {
		says *apierrors.StatusError
		want string // empty: it is reachable
	}{
		"no namespace":        {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "runs"), `namespaces "runs" not found`},
		"a policy":            {apierrors.NewForbidden(jobs, probeUnit, errors.New("admission webhook \"w\" denied the request: no")), "denied the request: no"},
		"a quota":             {apierrors.NewForbidden(jobs, probeUnit, errors.New("exceeded quota: objects, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1")), ""},
		"a webhook that acts": {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), ""},
	} {
		detail, err := probed(t, launcherRules(t), c.says)
		var refused *fleet.RefusedError
		if c.want == "" && (err != nil || detail == "") || c.want != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Message, c.want)) {
			t.Errorf("%s: %q, %v; want %q", name, detail, err, c.want)
		}
	}
}

// TestANamespaceThatIsNotThere: a launch is refused for good, with the cluster's words.
func TestANamespaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(sent(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone")))
	}))
	defer server.Close()
	p, err := New(Config{}).Open(t.Context(), fleet.Target{Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", Namespace: "gone", Server: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Launch(t.Context(), fleet.Order{Unit: fleet.UnitName("run_a", 1)})
	var refused *fleet.RefusedError
	if !errors.As(err, &refused) || refused.Cause != fleet.CauseStart || refused.Message != `namespaces "gone" not found` {
		t.Errorf("launch: %#v, want it refused with the cluster's words", err)
	}
}
