//go:build kube

package kube

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// TestTheLimitHolds: a pool of two never has three Pods, whoever waits is told so, and
// all runs are done.
func TestTheLimitHolds(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		two := 2
		s.MaxConcurrent = &two
	})
	wait, open := gate(t)
	var ids []string
	for range 6 {
		ids = append(ids, h.Submit(on("run "+wait)))
	}
	h.Running(ids[0])
	h.Running(ids[1])
	blocked(t, h, ids[5], "waits for a slot: 2 of 2 in use")
	open()
	c := kubernetesClient(t)
	for _, id := range ids {
		run := h.Until(id, id+" is done, at most two at a time", func(r protocol.Run) bool {
			pods, err := c.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return false
			}
			alive := 0
			for _, p := range pods.Items {
				if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].State.Running != nil {
					alive++
				}
			}
			if alive > 2 {
				t.Fatalf("%d Pods run at a time, want at most 2", alive)
			}
			return r.Status.Terminal()
		})
		if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
			t.Errorf("%s is %s, attempt %d, %+v", id, run.Status, run.Attempt, run.Failure)
		}
	}
	noUnits(t, ns)
}

// TestP4_TheCoordinatorIsRestarted: a run in its Pod does not notice, one that waits is
// launched by the next life, and no unit is made twice.
func TestP4_TheCoordinatorIsRestarted(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		one := 1
		s.MaxConcurrent = &one
	})
	wait, open := gate(t)
	first, second := h.Submit(on("run "+wait)), h.Submit(on("run "+wait))
	h.Running(first)
	h.Stop()
	h.Start()
	h.Until(first, "it runs on", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning })
	blocked(t, h, second, "waits for a slot: 1 of 1 in use")
	open()
	for _, id := range []string{first, second} {
		if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
			t.Errorf("%s is %s, attempt %d, %+v; want it done at the first", id, run.Status, run.Attempt, run.Failure)
		}
	}
	noUnits(t, ns)
}

// TestP5_AResultThatNobodyTook: the coordinator is away when the run ends, and its Pod
// does not wait for it. The result is taken from the Pod's output.
func TestP5_AResultThatNobodyTook(t *testing.T) {
	t.Parallel()
	// What runs is lost only if nobody looks at the cluster within the lease.
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = impatientImage })
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	h.Stop()
	open()
	c := kubernetesClient(t)
	house.Eventually(t, "the Pod has ended", func() bool {
		pods, err := unitPods(t.Context(), c, ns, fleet.UnitName(id, 1))
		if err != nil || len(pods) != 1 || len(pods[0].Status.ContainerStatuses) == 0 {
			return false
		}
		return pods[0].Status.ContainerStatuses[0].State.Terminated != nil
	})
	h.Start()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Errorf("the run is %s, attempt %d, %+v; want it done at the first", run.Status, run.Attempt, run.Failure)
	}
	noUnits(t, ns)
}

// TestARunWithoutARuntime goes to the cluster when no runner is there for it.
func TestARunWithoutARuntime(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	req := on("say hello")
	req.Runtime = ""
	run := h.Settled(h.Submit(req))
	if run.Status != protocol.StatusSucceeded || !strings.Contains(run.Placement.Why, "runtime cluster launches one") {
		t.Errorf("the run is %s, %+v, placement %+v", run.Status, run.Failure, run.Placement)
	}
	noUnits(t, ns)
	house.Eventually(t, "the pool shows no runner that has ended", func() bool { return len(h.Pool("cluster").Runners) == 0 })
}

// TestTheImageOfACase: the runner is brought into it.
func TestTheImageOfACase(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	req := on("run of-the-case")
	req.Case.Image = caseImage
	id := h.Submit(req)
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Fatalf("the run is %s, %+v", run.Status, run.Failure)
	}
	if log := logOf(t, h, id); !strings.Contains(log, "in its own image") {
		t.Errorf("log %q", log)
	}
	noUnits(t, ns)
}

// TestASecretThatMovesAPool: a kubeconfig that names another namespace moves its runtime at once.
// What runs in the one before goes on, and nothing is left there.
func TestASecretThatMovesAPool(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	other := namespace(t, true)
	config := func(ns string) string {
		return strings.Replace(withToken(t, launcher(t, ns)), "user: u}", "user: u, namespace: "+ns+"}", 1)
	}
	before, after := config(ns), config(other)
	if before == after {
		t.Fatal("the kubeconfigs do not name their namespaces")
	}
	secret(t, h, "moving", before)
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "moving", Version: "1.0.0", Image: runnerImage, KubeconfigSecret: "moving", Warm: 1})
	submit := func(script string) string {
		req := on(script)
		req.Runtime, req.Case.Resources = "moving", &protocol.Resources{CPU: 60, MemoryMB: 64} // no unit that is kept ready
		return h.Submit(req)
	}
	wait, open := gate(t)
	first := submit("run " + wait)
	h.Running(first)
	secret(t, h, "moving", after)
	second := submit("run " + wait)
	h.Running(second)
	podOf(t, other, second, 1) // where the secret names it now
	open()
	succeeded(t, h.Settled(first), 1)
	succeeded(t, h.Settled(second), 1)
	noUnits(t, ns)
}
