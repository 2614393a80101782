//go:build kube

package kube

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// These tests take the cluster from all others, so that they do not run beside them.

// part is a program of the cluster, by the name of its pid file (e2e/k8s/up.sh).
type part struct {
	t    *testing.T
	name string
	argv []string
	pid  int
}

func partOf(t *testing.T, name string) *part {
	t.Helper()
	p := &part{t: t, name: name}
	b, err := os.ReadFile(p.file("pids", ""))
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	p.argv = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	return p
}

func (p *part) file(dir, suffix string) string {
	state := os.Getenv("EVERDICT_KUBE_STATE")
	if state == "" {
		p.t.Fatal("EVERDICT_KUBE_STATE names no cluster: make test-k8s")
	}
	return filepath.Join(state, dir, p.name+suffix)
}

// kill ends it as a crash does; the test brings it back at its end at the latest.
func (p *part) kill() {
	p.t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	house.Eventually(p.t, p.name+" is gone", func() bool { return syscall.Kill(p.pid, 0) != nil || dead(p.pid) })
	p.pid = 0
	p.t.Cleanup(p.start)
}

// dead says whether a process is one that nobody has collected yet.
func dead(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " Z")
}

func (p *part) start() {
	if p.pid != 0 {
		return
	}
	p.t.Helper()
	log, err := os.OpenFile(p.file("log", ".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // down.sh ends it
	p.pid = cmd.Process.Pid
	if err := os.WriteFile(p.file("pids", ""), []byte(strconv.Itoa(p.pid)), 0o644); err != nil {
		p.t.Fatal(err)
	}
	house.Eventually(p.t, "the cluster is whole again", func() bool {
		n, err := node(p.t)
		return err == nil && condition(n, corev1.NodeReady) == corev1.ConditionTrue && len(n.Spec.Taints) == 0
	})
}

// node is the cluster's only one.
func node(t *testing.T) (*corev1.Node, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all, err := kubernetesClient(t).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return &all.Items[0], nil
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// patient waits for a place as long as a test may take.
func patient(c *coordinator.Config, _ *protocol.RuntimeSpec) {
	c.Launch.PendingTimeout = 5 * time.Minute
}

// podOf is the only Pod of an attempt.
func podOf(t *testing.T, ns, id string, attempt int64) *corev1.Pod {
	t.Helper()
	pods, err := unitPods(t.Context(), kubernetesClient(t), ns, fleet.UnitName(id, attempt))
	if err != nil || len(pods) != 1 {
		t.Fatalf("Pods of attempt %d of %s: %d, %v; want one", attempt, id, len(pods), err)
	}
	return &pods[0]
}

func succeeded(t *testing.T, run protocol.Run, attempt int64) {
	t.Helper()
	if run.Status != protocol.StatusSucceeded || run.Attempt != attempt {
		t.Errorf("%s is %s, attempt %d, %+v; want it done at attempt %d", run.ID, run.Status, run.Attempt, run.Failure, attempt)
	}
}

// TestP4_TheClusterDies: the API server is killed while a run is in its Pod and another
// waits for the slot. The first does not notice; the second says what is wrong, and has
// its unit when the cluster is back. Neither is tried twice.
func TestP4_TheClusterDies(t *testing.T) {
	h, ns := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		one := 1
		s.MaxConcurrent = &one
	})
	wait, open := gate(t)
	first, second := h.Submit(on("run "+wait)), h.Submit(on("say hello"))
	h.Running(first)
	api := partOf(t, "apiserver")
	api.kill()
	open()
	succeeded(t, h.Settled(first), 1)
	blocked(t, h, second, "connection refused; trying again")
	api.start()
	succeeded(t, h.Settled(second), 1)
	noUnits(t, ns)
}

// TestF17_TheNodeIsLost: the kubelet is killed. A run goes on as long as its runner
// renews its lease; when that has died with the node, the run's attempt says so, and the
// next one waits for a place.
func TestF17_TheNodeIsLost(t *testing.T) {
	h, ns := launching(t, patient, func(c *coordinator.Config, _ *protocol.RuntimeSpec) {
		// It runs out in the test, and not before the coordinator has seen the node.
		c.Lease.TTL, c.Timing.LeaseTTL = 15*time.Second, 15*time.Second
	})
	stays, open := gate(t)
	never, _ := gate(t)
	lives, dies := h.Submit(on("run "+stays)), h.Submit(on("run "+never+"\nsay done"))
	h.Running(lives)
	h.Running(dies)
	var pod *corev1.Pod
	house.Eventually(t, "the cluster knows that both are ready", func() bool {
		pod = podOf(t, ns, dies, 1)
		return ready(pod) && ready(podOf(t, ns, lives, 1))
	})
	kubelet := partOf(t, "kubelet")
	kubelet.kill()
	house.Eventually(t, "the node is not ready", func() bool {
		n, err := node(t)
		return err == nil && condition(n, corev1.NodeReady) != corev1.ConditionTrue && !ready(podOf(t, ns, dies, 1))
	})
	if run := h.Run(lives); run.Status != protocol.StatusRunning || run.Attempt != 1 {
		t.Errorf("%s is %s, attempt %d; want it to go on", lives, run.Status, run.Attempt)
	}
	killPod(t, pod)
	h.Until(dies, "its attempt is lost with the node", func(protocol.Run) bool {
		all, err := h.Client.Attempts(t.Context(), dies)
		return err == nil && len(all) > 0 && strings.Contains(all[0].Message, "node "+pod.Spec.NodeName+" is not ready")
	})
	blocked(t, h, dies, "unschedulable: 0/1 nodes are available")
	open()
	succeeded(t, h.Settled(lives), 1)
	kubelet.start()
	h.Until(dies, "it runs again", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt > 1 })
	if _, err := h.Client.Cancel(t.Context(), dies); err != nil {
		t.Fatal(err)
	}
	h.Settled(dies)
	noUnits(t, ns)
}

// TestF17_ANodeIsLostBeforeThePodBegins: Pods are bound to a node whose kubelet has just
// died. The cluster says nothing of them for minutes. Their runs say what is wrong as soon as
// the cluster knows of the node, or, with a credential that may not ask for nodes, when
// nobody has taken the Pod; they go elsewhere, here to the same node when it is back.
func TestF17_ANodeIsLostBeforeThePodBegins(t *testing.T) {
	var spec protocol.RuntimeSpec
	h, ns := launching(t, patient, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { spec = *s })
	secret(t, h, "narrow-config", withToken(t, launcher(t, ns)))
	spec.ID, spec.KubeconfigSecret = "narrow", "narrow-config"
	register(t, h, spec)
	kubelet := partOf(t, "kubelet")
	kubelet.kill()
	runtimes := []string{"cluster", "narrow"}
	lost := map[string]string{"cluster": "not ready: NodeStatusUnknown", "narrow": "no kubelet has taken the Pod within"}
	ids := map[string]string{}
	for _, runtime := range runtimes {
		req := on("say done")
		req.Runtime = runtime
		ids[runtime] = h.Submit(req)
	}
	for runtime, id := range ids {
		house.Eventually(t, "the Pod of "+runtime+" has a node", func() bool {
			pods, err := unitPods(t.Context(), kubernetesClient(t), ns, fleet.UnitName(id, 1))
			return err == nil && len(pods) == 1 && pods[0].Spec.NodeName != ""
		})
	}
	for _, runtime := range runtimes { // the cluster knows sooner
		id := ids[runtime]
		var first protocol.Attempt
		h.Until(id, "its attempt is lost with the node", func(protocol.Run) bool {
			all, err := h.Client.Attempts(t.Context(), id)
			if err != nil || len(all) == 0 || all[0].Outcome == protocol.AttemptActive {
				return false
			}
			first = all[0]
			return true
		})
		if !strings.Contains(first.Message, lost[runtime]) {
			t.Errorf("the attempt on %s is %s: %s; want %q", runtime, first.Outcome, first.Message, lost[runtime])
		}
	}
	kubelet.start()
	for runtime, id := range ids {
		if run := h.Settled(id); run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
			t.Errorf("the run on %s is %s, attempt %d, %+v; want it done at another attempt", runtime, run.Status, run.Attempt, run.Failure)
		}
	}
	noUnits(t, ns)
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// killPod kills the processes of a Pod, as the loss of its machine does.
func killPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), "pod"+string(p.UID)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("no process of Pod %s was found", p.Name)
	}
}

// TestF17_ATaintEvicts: a node that is emptied takes its units' runs back to the queue,
// and they are done when there is a place again.
func TestF17_ATaintEvicts(t *testing.T) {
	h, ns := launching(t, patient, expiring)
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	nodes := kubernetesClient(t).CoreV1().Nodes()
	taint := func(taints ...corev1.Taint) {
		t.Helper()
		house.Eventually(t, "the node's taints are set", func() bool {
			n, err := node(t)
			if err == nil {
				n.Spec.Taints = taints
				_, err = nodes.Update(context.Background(), n, metav1.UpdateOptions{})
			}
			return err == nil
		})
	}
	t.Cleanup(func() { taint() })
	taint(corev1.Taint{Key: "everdict.dev/test", Effect: corev1.TaintEffectNoExecute})
	h.Until(id, "its attempt ends", func(r protocol.Run) bool { return r.Status == protocol.StatusQueued })
	blocked(t, h, id, "unschedulable: 0/1 nodes are available")
	taint()
	open()
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt < 2 {
		t.Errorf("the run is %s, attempt %d, %+v; want it done at another attempt", run.Status, run.Attempt, run.Failure)
	}
	noUnits(t, ns)
}
