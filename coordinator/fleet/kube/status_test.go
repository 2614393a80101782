package kube

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everdict/everdict/coordinator/fleet"
)

// TestAStatusIsKnown: in each form in which an API server gives it, and nothing else is one.
func TestAStatusIsKnown(t *testing.T) {
	t.Parallel()
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil).Status()
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		encode := func(o runtime.Object) []byte {
			t.Helper()
			var b bytes.Buffer
			if err := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"}).Encode(o, &b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		if !isStatus(nil, encode(&refusal), "") {
			t.Errorf("a status in %s is not known", info.MediaType)
		}
		if isStatus(nil, encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}), "") {
			t.Errorf("a Pod in %s is taken for a status", info.MediaType)
		}
	}
	for _, body := range []string{"", "no", `{"kind":"Status"}`, "k8s\x00", `["Status"]`} {
		if isStatus(nil, []byte(body), "") {
			t.Errorf("%q is taken for a status", body)
		}
	}
}

// TestWhoForbids: an API server forbids with one code what the credential has no right to,
// what a policy is against, and what a quota has no room for.
func TestWhoForbids(t *testing.T) {
	t.Parallel()
	p := &provider{credential: "kubeconfigSecret cluster"}
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for name, c := range map[string]struct {
		err  error
		auth bool
	}{
		"no right":              {apierrors.NewForbidden(jobs, "", errors.New(`User "system:serviceaccount:runs:everdict-launcher" cannot create resource "jobs" in API group "batch" in the namespace "runs"`)), true},
		"no right to one":       {apierrors.NewForbidden(jobs, "everdict-x-1", errors.New(`User "o\"neil" cannot get resource "jobs" in API group "batch" in the namespace "runs"`)), true},
		"no right to a path":    {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "system:anonymous" cannot get path "/version"`)), true},
		"no right, to a watch":  {fmt.Errorf("failed to list *v1.Job: %w", apierrors.NewForbidden(jobs, "", errors.New(`User "u" cannot list resource "jobs" in API group "batch" in the namespace "runs"`))), true},
		"a policy":              {apierrors.NewForbidden(jobs, "everdict-x-1", errors.New("ValidatingAdmissionPolicy 'images' with binding 'images' denied request: workloads cannot use images of this registry")), false},
		"a webhook that quotes": {apierrors.NewForbidden(jobs, "everdict-x-1", errors.New(`admission webhook "w" denied the request: User "everdict" cannot have this`)), false},
	} {
		err := p.err("create the Job", c.err)
		var auth *fleet.AuthError
		var refused *fleet.RefusedError
		if errors.As(err, &auth) != c.auth || errors.As(err, &refused) == c.auth {
			t.Errorf("%s: %T %v, want the credential refused: %v", name, err, err, c.auth)
		}
		if refused != nil && (refused.Cause != fleet.CausePolicy || refused.Message != c.err.Error()) {
			t.Errorf("%s: %+v, want the policy's own words", name, refused)
		}
	}
}
