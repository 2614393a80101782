//go:build kube

package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// launching is a house that launches on the cluster, and the runtime "cluster" in a
// namespace of its own.
func launching(t *testing.T, configure ...func(*coordinator.Config, *protocol.RuntimeSpec)) (h *house.House, ns string) {
	t.Helper()
	// The Pods are in the node's network, so that their runner finds the house on
	// loopback; the restricted standard forbids that.
	ns = namespace(t, true)
	h = &house.House{T: t, Address: house.FreeAddress(t), Config: coordinator.Config{DataDir: t.TempDir(), Version: "test", Log: house.Log(t, "coordinator")}}
	house.Lasting(&h.Config)
	h.Config.Lease.StartAck, h.Config.Timing.StartAck = 20*time.Second, 20*time.Second // a runner may have a twentieth of a core
	h.Config.Launch = coordinator.Launch{URL: h.URL(), HostNetwork: true, ImagePullPolicy: "Never", Grace: 2 * time.Second, PendingTimeout: 5 * time.Second}
	spec := protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "cluster", Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "cluster-config"}
	for _, f := range configure {
		f(&h.Config, &spec)
	}
	h.Start()
	t.Cleanup(h.Stop)
	secret(t, h, "cluster-config", kubeconfig(t))
	register(t, h, spec)
	return h, ns
}

// expiring lets leases run out within seconds.
func expiring(c *coordinator.Config, _ *protocol.RuntimeSpec) {
	c.Lease.TTL, c.Timing.LeaseTTL = 6*time.Second, 6*time.Second
}

// secret is one of the workspace's.
func secret(t *testing.T, h *house.House, name, value string) {
	t.Helper()
	if err := h.Client.SetSecret(context.Background(), name, protocol.SecretRequest{Value: value}); err != nil {
		t.Fatal(err)
	}
}

func register(t *testing.T, h *house.House, spec protocol.RuntimeSpec) {
	t.Helper()
	h.Register(spec)
}

func gate(t *testing.T) (wait string, open func()) { return house.Gate(t) }

// on is a run of the scripted agent on the cluster.
func on(script string) *protocol.RunRequest {
	r := house.Scripted(script)
	r.Runtime = "cluster"
	r.Case.Resources = &protocol.Resources{CPU: 50, MemoryMB: 64}
	return r
}

// noUnits waits until nothing of ours is in a namespace.
func noUnits(t *testing.T, ns string) {
	t.Helper()
	c, ours := kubernetesClient(t), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=everdict"}
	house.Eventually(t, "nothing is left on the cluster", func() bool {
		jobs, err := c.BatchV1().Jobs(ns).List(context.Background(), ours)
		if err != nil || len(jobs.Items) > 0 {
			return false
		}
		pods, err := c.CoreV1().Pods(ns).List(context.Background(), ours)
		if err != nil || len(pods.Items) > 0 {
			return false
		}
		secrets, err := c.CoreV1().Secrets(ns).List(context.Background(), ours)
		return err == nil && len(secrets.Items) == 0
	})
}

// TestP12_ARunOnTheCluster: it succeeds in a Pod of its own, with evidence; what the
// Pod was given is what the case declares and no credential, and nothing is left.
func TestP12_ARunOnTheCluster(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	wait, open := gate(t)
	id := h.Submit(on("say hello from a Pod\nrun cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; id -u; env; " + wait))
	h.Running(id)
	pods, err := unitPods(t.Context(), kubernetesClient(t), ns, fleet.UnitName(id, 1))
	if err != nil || len(pods) != 1 {
		t.Fatalf("Pods of the run: %d, %v; want one", len(pods), err)
	}
	checkPod(t, &pods[0])
	open()
	run := h.Settled(id)
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Fatalf("the run is %s, attempt %d, %+v; want it done at once", run.Status, run.Attempt, run.Failure)
	}
	if run.Placement.Runtime == nil || run.Placement.Runtime.ID != "cluster" || run.Provenance.RunnerLabel != fleet.UnitName(id, 1) {
		t.Errorf("placement %+v, provenance %+v; want the runtime and the unit", run.Placement, run.Provenance)
	}
	log := logOf(t, h, id)
	for _, want := range []string{"67108864", "20250"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: want the declared memory as the Pod's limit, and a user that is not root:\n%s", want, log)
		}
	}
	for _, secret := range []string{protocol.JoinTokenPrefix, protocol.RunnerTokenPrefix, "KUBERNETES_"} {
		if strings.Contains(log, secret) {
			t.Errorf("the job's environment has %s...:\n%s", secret, log)
		}
	}
	noUnits(t, ns)
}

// TestTheImagesOwnUser: it can read what its unit is given, whatever its groups are.
func TestTheImagesOwnUser(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]bool{"token": false, "payload": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, ns := launching(t, once, func(c *coordinator.Config, s *protocol.RuntimeSpec) {
				c.Launch.User, s.Image, s.Payload = -1, ownImage, payload
			})
			id := h.Submit(on("run id -u; id -g"))
			succeeded(t, h.Settled(id), 1)
			if log := logOf(t, h, id); strings.Count(log, "1000") < 2 {
				t.Errorf("the log is %q, want the image's user and group", log)
			}
			noUnits(t, ns)
		})
	}
}

// checkPod reads what the Pod may do.
func checkPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	c := p.Spec.Containers[0]
	s := c.SecurityContext
	if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken || *s.AllowPrivilegeEscalation ||
		!slices.Contains(s.Capabilities.Drop, "ALL") || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the Pod may do more than it needs: %+v", p.Spec)
	}
	if c.Resources.Limits.Memory().Value() != 64<<20 || c.Resources.Requests.Memory().Value() != 64<<20 || c.Resources.Limits.Cpu().MilliValue() != 50 {
		t.Errorf("resources %+v, want requests and limits of 64 MiB and 50m", c.Resources)
	}
	for _, e := range c.Env {
		if strings.Contains(e.Value, protocol.JoinTokenPrefix) || strings.Contains(e.Value, protocol.RunnerTokenPrefix) {
			t.Errorf("variable %s holds a token", e.Name)
		}
	}
	if argv := strings.Join(append(c.Command, c.Args...), " "); strings.Contains(argv, protocol.JoinTokenPrefix) {
		t.Errorf("argv %q holds the token", argv)
	}
}

func logOf(t *testing.T, h *house.House, id string) string {
	t.Helper()
	return h.RawLog(id)
}
