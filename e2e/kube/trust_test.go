//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// TestTrustZones: under per-tenant a runtime that says nothing has its Pods in the
// workspace's namespace and in a hardened class, and one that says otherwise is refused.
// The class of the cluster under test encloses as little as any other: that the Pod names
// it is what is tested.
func TestTrustZones(t *testing.T) {
	t.Parallel()
	c, ctx := kubernetesClient(t), context.Background()
	const ns, class = "everdict-default", "gvisor"
	if _, err := c.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Handler: "runc"}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.NodeV1().RuntimeClasses().Delete(ctx, class, metav1.DeleteOptions{}) })
	if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}) })

	h, another := launching(t, func(c *coordinator.Config, s *protocol.RuntimeSpec) {
		c.Launch.Isolation = fleet.Isolation{Mode: fleet.IsolationPerTenant}
		s.Namespace = ""
	})
	for _, change := range []func(*protocol.RuntimeSpec){
		func(s *protocol.RuntimeSpec) { s.Namespace = another },
		func(s *protocol.RuntimeSpec) { s.RuntimeClass = "runc" },
	} {
		spec := protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "loose", Version: "1.0.0", Image: runnerImage, KubeconfigSecret: "cluster-config"}
		change(&spec)
		doc, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Client.RegisterRuntime(ctx, doc); err == nil || !strings.Contains(err.Error(), "runtime loose does not meet this coordinator's trust zones") {
			t.Errorf("register %s: %v, want it refused by name", doc, err)
		}
	}
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	if pod := podOf(t, ns, id, 1); pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName != class {
		t.Errorf("the Pod's class is %v, want %s", pod.Spec.RuntimeClassName, class)
	}
	open()
	succeeded(t, h.Settled(id), 1)
	noUnits(t, ns)
}
