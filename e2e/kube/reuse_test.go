//go:build kube

package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// again registers a version of the runtime that keeps nothing.
func again(t *testing.T, h *house.House, ns string) {
	t.Helper()
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "cluster", Version: "2.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "cluster-config"})
}

// done is a run that has succeeded at its first attempt, and the unit that had it.
func done(t *testing.T, h *house.House, req *protocol.RunRequest) (id, unit string) {
	t.Helper()
	id = h.Submit(req)
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Fatalf("%s is %s, attempt %d, %+v; want it done at the first", id, run.Status, run.Attempt, run.Failure)
	}
	return id, run.Provenance.RunnerLabel
}

// TestARunnerIsUsedAgain: two runs of one size have one Pod, in which the second finds
// nothing of the first; a third of another size has its place.
func TestARunnerIsUsedAgain(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		one := 1
		s.MaxConcurrent, s.IdleSeconds = &one, 300
	})
	first, unit := done(t, h, on(`run setsid sleep 1001 & (sleep 1002 &) ; for d in /tmp $HOME /dev/shm; do mkdir -p $d/leavings/of/it && echo secret >$d/leavings/of/it/file && chmod 000 $d/leavings; done; echo secret >/dev/termination-log; touch /leavings /var/leavings 2>/dev/null || echo closed`))
	if log := logOf(t, h, first); !strings.Contains(log, "closed") {
		t.Errorf("the root file system could be written: %s", log)
	}
	second, other := done(t, h, on(`run ls -A /tmp $HOME /dev/shm; cat /dev/termination-log; for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; done 2>/dev/null; echo looked`))
	if other != unit {
		t.Errorf("the runs were in %s and %s, want one unit for both", unit, other)
	}
	log := logOf(t, h, second)
	if !strings.Contains(log, "looked") {
		t.Errorf("the second did not look: %s", log)
	}
	for _, left := range []string{"leavings", "secret", "sleep 1001", "sleep 1002"} {
		if strings.Contains(log, left) {
			t.Errorf("the second run finds %q of the first:\n%s", left, log)
		}
	}
	big := on("say hello")
	big.Case.Resources = &protocol.Resources{CPU: 50, MemoryMB: 80}
	if _, third := done(t, h, big); third == unit {
		t.Errorf("a run of another size was in the unit of the first, %s", unit)
	}
	again(t, h, ns)
	noUnits(t, ns)
}

// TestARunnerThatIsKeptReady takes the run that comes, and another is made ready.
func TestARunnerThatIsKeptReady(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		s.Warm, s.WarmSize = 1, &protocol.Resources{CPU: 50, MemoryMB: 64}
	})
	c := kubernetesClient(t)
	ready := func() (names []string) {
		pods, err := c.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=everdict"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				names = append(names, p.Labels["everdict.dev/unit"])
			}
		}
		return names
	}
	var before []string
	house.Eventually(t, "one is ready", func() bool { before = ready(); return len(before) == 1 })
	if _, unit := done(t, h, on("say hello")); unit != before[0] {
		t.Errorf("the run was in %s, want the one that was ready, %s", unit, before[0])
	}
	house.Eventually(t, "another is ready", func() bool { now := ready(); return len(now) == 1 && now[0] != before[0] })
	again(t, h, ns)
	noUnits(t, ns)
}
