//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

func failed(t *testing.T, run protocol.Run, class, reason string, words ...string) {
	t.Helper()
	house.Failed(t, run, class, reason, words...)
}

func blocked(t *testing.T, h *house.House, id, words string) {
	t.Helper()
	h.Blocked(id, words)
}

func once(c *coordinator.Config, _ *protocol.RuntimeSpec) { c.Lease.MaxAttempts = 1 }

func TestF16_AnImageThatIsNowhere(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = "docker.io/everdict-test/nowhere:0" })
	began := time.Now()
	run := h.Settled(h.Submit(on("say hello")))
	failed(t, run, protocol.ClassConfig, protocol.ReasonImage, "everdict-test/nowhere:0", "ErrImageNeverPull")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to know that, want seconds", took)
	}
	noUnits(t, ns)
}

func TestF16_ANameThatIsNoImage(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	req := on("say hello")
	req.Case.Image = "UPPER::bad"
	failed(t, h.Settled(h.Submit(req)), protocol.ClassConfig, protocol.ReasonImage, "UPPER::bad")
	noUnits(t, ns)
}

// TestP9_AnImageWithoutGit: what the run needs and its image lacks is known at once.
func TestP9_AnImageWithoutGit(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	req := on("say hello")
	req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"a": "b"}}}
	failed(t, h.Settled(h.Submit(req)), protocol.ClassConfig, protocol.ReasonUnsupportedByRunner, "no runner offers git")
	noUnits(t, ns)
}

// TestF15_MemoryRunsOut: whichever process the kernel ends, the run says why.
func TestF15_MemoryRunsOut(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, once)
	run := h.Settled(h.Submit(on("run head -c 300000000 /dev/zero | tail -n 1 | wc -c")))
	failed(t, run, protocol.ClassInfra, protocol.ReasonOOM)
	noUnits(t, ns)
}

// TestF17_AForcedDeletion: the attempt ends as evicted within its lease, the run is
// tried again in a new unit, and the pool is as large as before.
func TestF17_AForcedDeletion(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	if err := force(t.Context(), kubernetesClient(t), ns, fleet.UnitName(id, 1)); err != nil {
		t.Fatal(err)
	}
	h.Until(id, "the second attempt runs", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt == 2 })
	open()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Fatalf("the run is %s, %+v", run.Status, run.Failure)
	}
	attempts, err := h.Client.Attempts(t.Context(), id)
	if err != nil || len(attempts) != 2 || !strings.Contains(attempts[0].Message, "evicted") {
		t.Errorf("attempts %+v, %v; want the first evicted", attempts, err)
	}
	noUnits(t, ns)
}

// TestF17_TheLastAttemptIsEvicted: the run says so.
func TestF17_TheLastAttemptIsEvicted(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, once)
	wait, _ := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	if err := force(t.Context(), kubernetesClient(t), ns, fleet.UnitName(id, 1)); err != nil {
		t.Fatal(err)
	}
	run := h.Settled(id)
	failed(t, run, protocol.ClassInfra, protocol.ReasonEvicted)
	if !run.Failure.Retryable {
		t.Error("it says that a retry cannot help")
	}
	noUnits(t, ns)
}

// TestF18_ADeletionWithGrace: the run may end in the time that its runner drains, and
// is not tried again.
func TestF18_ADeletionWithGrace(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	c := kubernetesClient(t)
	pods, err := unitPods(t.Context(), c, ns, fleet.UnitName(id, 1))
	if err != nil || len(pods) != 1 {
		t.Fatalf("Pods: %d, %v", len(pods), err)
	}
	if err := c.CoreV1().Pods(ns).Delete(t.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the runner drains", func() bool {
		for _, r := range h.Pool("cluster").Runners {
			if r.Status != nil && strings.Contains(r.Status.Text, "draining") {
				return true
			}
		}
		return false
	})
	open()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Fatalf("the run is %s, attempt %d, %+v; want it done at the first", run.Status, run.Attempt, run.Failure)
	}
	noUnits(t, ns)
}

// TestP6_Cancel: of a run in its Pod, and of one whose Pod finds no node.
func TestP6_Cancel(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	wait, _ := gate(t)
	running := h.Submit(on("run " + wait))
	big := on("say hello")
	big.Case.Resources = &protocol.Resources{MemoryMB: 1 << 24}
	pending := h.Submit(big)
	h.Running(running)
	blocked(t, h, pending, "unschedulable: 0/1 nodes are available")
	blocked(t, h, pending, "Insufficient memory")
	for _, id := range []string{running, pending} {
		if _, err := h.Client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonCancelled)
	}
	noUnits(t, ns)
}

// TestP9_APlaceThatIsNotThere: the run says what the cluster says, and ends.
func TestP9_APlaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, once, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		s.NodeSelector = map[string]string{"disk": "floppy"}
	})
	id := h.Submit(on("say hello"))
	blocked(t, h, id, "didn't match Pod's node affinity/selector")
	failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonUnschedulable, "didn't match Pod's node affinity/selector")
	noUnits(t, ns)
}

// TestP9_AQuota: the run says what the cluster says, and goes on when there is room.
func TestP9_AQuota(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	quotas := kubernetesClient(t).CoreV1().ResourceQuotas(ns)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the quota is in force", func() bool {
		q, err := quotas.Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	id := h.Submit(on("say hello"))
	blocked(t, h, id, "exceeded quota: none")
	if err := quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run is %s, %+v; want it done once there is room", run.Status, run.Failure)
	}
	noUnits(t, ns)
}

// TestF14_ACredentialThatIsRefused: probe and placement name it, and a new value is
// taken without a restart.
func TestF14_ACredentialThatIsRefused(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	ctx := context.Background()
	good, bad := withToken(t, launcher(t, ns)), withToken(t, "nonsense")
	set := func(value string) {
		t.Helper()
		if err := h.Client.SetSecret(ctx, "other-config", protocol.SecretRequest{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	set(bad)
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "other", Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "other-config"})
	probe := func() *protocol.Probe {
		t.Helper()
		p, err := h.Client.ProbeRuntime(ctx, json.RawMessage(`{"id":"other"}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := probe(); p.Reachable || p.Reason != protocol.ProbeAuth || !strings.Contains(p.Detail, "kubeconfigSecret other-config") || strings.Contains(p.Detail, "nonsense") {
		t.Errorf("probe: %+v, want the credential by name", p)
	}
	req := on("say hello")
	req.Runtime = "other"
	id := h.Submit(req)
	blocked(t, h, id, "refuses kubeconfigSecret other-config")
	set(good)
	if p := probe(); !p.Reachable || !strings.Contains(p.Detail, "kubernetes v1.") {
		t.Errorf("probe with the good one: %+v", p)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run is %s, %+v", run.Status, run.Failure)
	}
	noUnits(t, ns)
}
