package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// permitting is an API server that says of itself what some rules permit.
func permitting(t *testing.T, rules []rbacv1.PolicyRule) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion":"v1.34.4"}`))
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

func probed(t *testing.T, rules []rbacv1.PolicyRule) (string, error) {
	t.Helper()
	spec := &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", Namespace: "runs", Server: permitting(t, rules)}
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
	if detail, err := probed(t, rules); err != nil || detail != "kubernetes v1.34.4, namespace runs" {
		t.Errorf("with the whole Role: %q, %v", detail, err)
	}
	for i, rule := range rules {
		for j, verb := range rule.Verbs {
			less := slices.Clone(rules)
			less[i].Verbs = slices.Delete(slices.Clone(rule.Verbs), j, j+1)
			_, err := probed(t, less)
			if want := "it may not " + verb + " " + rule.Resources[0] + " in namespace runs"; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	_, err := probed(t, slices.Delete(slices.Clone(rules), 1, 3))
	if want := "it may not create, delete secrets; create networkpolicies in namespace runs"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want all that is missing: %q", err, want)
	}
}
