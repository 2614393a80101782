package kube

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
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
