//go:build kube

package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/fleet/kube"
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
	// That there is no place for it would be known after minutes.
	h, ns := launching(t, patient, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = "docker.io/everdict-test/nowhere:0" })
	run := h.Settled(h.Submit(on("say hello")))
	failed(t, run, protocol.ClassConfig, protocol.ReasonImage, "everdict-test/nowhere:0", "ErrImageNeverPull")
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
	h, ns := launching(t, once) // a container at its limit may stand still for seconds before the kernel ends something in it
	run := h.Settled(h.Submit(on("run head -c 300000000 /dev/zero | tail -n 1 | wc -c")))
	failed(t, run, protocol.ClassInfra, protocol.ReasonOOM)
	noUnits(t, ns)
}

// TestF17_AForcedDeletion: the attempt ends as evicted within its lease, the run is
// tried again in a new unit, and the pool is as large as before.
func TestF17_AForcedDeletion(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, expiring)
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
	h, ns := launching(t, once, expiring)
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
	h, ns := launching(t, patient)
	wait, _ := gate(t)
	running := h.Submit(on("run " + wait))
	large := on("say hello")
	large.Case.Resources = &protocol.Resources{MemoryMB: 1 << 24}
	pending := h.Submit(large)
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

// TestF9_P9_APlaceThatIsNotThere: the run says what the cluster says, and ends.
func TestF9_P9_APlaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, once, func(_ *coordinator.Config, s *protocol.RuntimeSpec) {
		s.NodeSelector = map[string]string{"disk": "floppy"}
	})
	id := h.Submit(on("say hello"))
	blocked(t, h, id, "didn't match Pod's node affinity/selector")
	failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonUnschedulable, "didn't match Pod's node affinity/selector")
	noUnits(t, ns)
}

// TestP9_ANamespaceThatIsNotThere: the probe says so, and no run waits for it.
func TestP9_ANamespaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	const nowhere = "everdict-test-nowhere"
	h, _ := launching(t, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Namespace = nowhere })
	if p := h.Probe("cluster"); p.Reachable || p.Reason != protocol.ProbeError || !strings.Contains(p.Detail, `namespaces "`+nowhere+`" not found`) {
		t.Errorf("probe: %+v, want it to miss the namespace", p)
	}
	failed(t, h.Settled(h.Submit(on("say hello"))), protocol.ClassConfig, protocol.ReasonStart, `namespaces "`+nowhere+`" not found`)
}

// quota lets a namespace have so many of something, until lift.
func quota(t *testing.T, ns string, of corev1.ResourceName, most int64) (lift func()) {
	t.Helper()
	quotas := kubernetesClient(t).CoreV1().ResourceQuotas(ns)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{of: *resource.NewQuantity(most, resource.DecimalSI)}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the quota is in force", func() bool {
		q, err := quotas.Get(t.Context(), "test", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	return func() {
		t.Helper()
		if err := quotas.Delete(t.Context(), "test", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestF9_P9_AQuota: the run says what the cluster says, and goes on when there is room.
func TestF9_P9_AQuota(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, patient)
	lift := quota(t, ns, corev1.ResourcePods, 0)
	id := h.Submit(on("say hello"))
	blocked(t, h, id, "exceeded quota: test")
	lift()
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run is %s, %+v; want it done once there is room", run.Status, run.Failure)
	}
	noUnits(t, ns)
}

// TestF9_P9_AQuotaOfObjects: where a quota has no room for the Job or the Secret of a unit, the
// run says so, and ends after a while.
func TestF9_P9_AQuotaOfObjects(t *testing.T) {
	t.Parallel()
	for _, of := range []corev1.ResourceName{"count/jobs.batch", corev1.ResourceSecrets} {
		t.Run(strings.ReplaceAll(string(of), "/", " "), func(t *testing.T) {
			t.Parallel()
			h, ns := launching(t, once)
			quota(t, ns, of, 0)
			if p := h.Probe("cluster"); !p.Reachable {
				t.Errorf("probe: %+v; want it reachable, since a quota may have room later", p)
			}
			id := h.Submit(on("say hello"))
			blocked(t, h, id, "waits: quota: ")
			blocked(t, h, id, "exceeded quota: test")
			failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonUnschedulable, "exceeded quota: test")
			noUnits(t, ns)
		})
	}
}

// TestF9_AQuotaOfJobs: runs that a quota has no room for go as others make it.
func TestF9_AQuotaOfJobs(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, patient)
	quota(t, ns, "count/jobs.batch", 1)
	var ids []string
	for range 4 {
		ids = append(ids, h.Submit(on("say hello")))
	}
	for _, id := range ids {
		succeeded(t, h.Settled(id), 1)
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
	secret(t, h, "other-config", bad)
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
	secret(t, h, "other-config", good)
	if p := probe(); !p.Reachable || !strings.Contains(p.Detail, "kubernetes v1.") {
		t.Errorf("probe with the good one: %+v", p)
	}
	if run := h.Settled(id); run.Status != protocol.StatusSucceeded {
		t.Errorf("the run is %s, %+v", run.Status, run.Failure)
	}
	noUnits(t, ns)
}

// TestF14_ACredentialThatMayNotDoAll: the probe names all that is missing.
func TestF14_ACredentialThatMayNotDoAll(t *testing.T) {
	t.Parallel()
	ns := namespace(t, false)
	c := kubernetesClient(t)
	p, err := kube.New(kube.Config{Secrets: secrets{"cluster": withToken(t, launcher(t, ns))}, Log: quiet}).Open(t.Context(), fleet.Target{Coordinator: "crd-rights", Workspace: "default",
		Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", Image: unitImage, Namespace: ns, KubeconfigSecret: "cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the launcher's rights are enough", func() bool {
		_, err := p.Probe(t.Context())
		return err == nil
	})
	role, err := c.RbacV1().Roles(ns).Get(t.Context(), "everdict-launcher", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, rule := range role.Rules {
		if slices.Contains(rule.Resources, "jobs") || slices.Contains(rule.Resources, "events") {
			role.Rules[i].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "get" || verb == "list" })
		}
	}
	if _, err := c.RbacV1().Roles(ns).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the probe names what is missing", func() bool {
		_, err := p.Probe(t.Context())
		var refused *fleet.AuthError
		return errors.As(err, &refused) && strings.Contains(err.Error(), "kubeconfigSecret cluster") && strings.Contains(err.Error(), "it may not get, list jobs; list events in namespace "+ns)
	})
}

// TestF14_P9_ACredentialThatMayLookAndNotLaunch: the runs say so, too.
func TestF14_P9_ACredentialThatMayLookAndNotLaunch(t *testing.T) {
	t.Parallel()
	h, _ := launching(t)
	for _, resource := range []string{"jobs", "secrets"} {
		ns, name := namespace(t, true), "no-"+resource
		doc := withToken(t, launcher(t, ns))
		roles := kubernetesClient(t).RbacV1().Roles(ns)
		role, err := roles.Get(t.Context(), "everdict-launcher", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, rule := range role.Rules {
			if slices.Contains(rule.Resources, resource) {
				role.Rules[i].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "create" })
			}
		}
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		secret(t, h, name, doc)
		register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: name, Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: name})
		req := on("say hello")
		req.Runtime = name
		id := h.Submit(req)
		blocked(t, h, id, "cannot launch: the cluster refuses kubeconfigSecret "+name)
		blocked(t, h, id, `cannot create resource "`+resource+`"`)
		if _, err := h.Client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonCancelled)
	}
}

// TestF16_APolicyAgainstJobs: probe and run have its words, whatever these are.
func TestF16_APolicyAgainstJobs(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	c, ctx := kubernetesClient(t).AdmissionregistrationV1(), context.Background()
	const words = "workloads cannot use images of this registry"
	_, err := c.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: words, Reason: new(metav1.StatusReasonForbidden)}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ValidatingAdmissionPolicies().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the policy: %v", err)
		}
	})
	_, err = c.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: ns, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ValidatingAdmissionPolicyBindings().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the binding: %v", err)
		}
	})
	house.Eventually(t, "the probe meets the policy", func() bool {
		p := h.Probe("cluster")
		return !p.Reachable && p.Reason == protocol.ProbeError && strings.Contains(p.Detail, words)
	})
	failed(t, h.Settled(h.Submit(on("say hello"))), protocol.ClassConfig, protocol.ReasonStart, words)
	noUnits(t, ns)
}

// TestF14_AnExpiredCertificate: the probe and the placement name the credential and that
// it has expired, which the cluster does not say.
func TestF14_AnExpiredCertificate(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	secret(t, h, "old-config", withCertificate(t, time.Now().Add(-time.Hour)))
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "old", Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "old-config"})
	p, err := h.Client.ProbeRuntime(t.Context(), json.RawMessage(`{"id":"old"}`))
	if err != nil || p.Reachable || p.Reason != protocol.ProbeAuth || !strings.Contains(p.Detail, "kubeconfigSecret old-config") || !strings.Contains(p.Detail, "client certificate expired at") {
		t.Errorf("probe: %+v, %v; want the credential by name, and that it has expired", p, err)
	}
	req := on("say hello")
	req.Runtime = "old"
	blocked(t, h, h.Submit(req), "its client certificate expired at")
	secret(t, h, "old-config", withCertificate(t, time.Now().Add(time.Hour)))
	if p, err = h.Client.ProbeRuntime(t.Context(), json.RawMessage(`{"id":"old"}`)); err != nil || !p.Reachable {
		t.Errorf("probe with one that has not expired: %+v, %v", p, err)
	}
}

// withCertificate is the kubeconfig of an admin whose client certificate is good until a
// moment.
func withCertificate(t *testing.T, until time.Time) string {
	t.Helper()
	pki := filepath.Join(os.Getenv("EVERDICT_KUBE_STATE"), "pki")
	ca, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(until.UnixNano()), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotBefore: until.Add(-48 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, signer, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data := func(kind string, b []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return strings.Split(kubeconfig(t), "users:")[0] + "users: [{name: u, user: {client-certificate-data: " + data("CERTIFICATE", cert) +
		", client-key-data: " + data("EC PRIVATE KEY", der) + "}}]\ncontexts: [{name: everdict, context: {cluster: everdict, user: u}}]\ncurrent-context: everdict\n"
}

// TestF14_AnAddressThatAnswersNothing: the probe ends within its time, and a run that waits
// for the cluster says so.
func TestF14_AnAddressThatAnswersNothing(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	secret(t, h, "a-token", "nonsense")
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "silent", Version: "1.0.0", Image: runnerImage, Namespace: ns, Server: swallow(t), AuthSecret: "a-token"})
	req := on("say hello")
	req.Runtime = "silent"
	id := h.Submit(req)
	p, err := h.Client.ProbeRuntime(t.Context(), json.RawMessage(`{"id":"silent"}`))
	if err != nil || p.Reachable || p.Reason != protocol.ProbeUnreachable {
		t.Errorf("probe: %+v, %v; want it unreachable", p, err)
	}
	blocked(t, h, id, "cannot see what runs on its cluster")
	blocked(t, h, id, "trying again every")
	if _, err := h.Client.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	failed(t, h.Settled(id), protocol.ClassInfra, protocol.ReasonCancelled)
}

// twinOf starts a second Pod for the Job of a first. It goes with its Job, but is not the
// Job controller's, which removes one of two Pods when it sees them: on a busy machine
// before the second has started.
func twinOf(t *testing.T, first *corev1.Pod) *corev1.Pod {
	t.Helper()
	twin := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: first.Name + "-twin", Namespace: first.Namespace, Labels: maps.Clone(first.Labels), Annotations: first.Annotations,
		OwnerReferences: slices.Clone(first.OwnerReferences)}, Spec: first.Spec}
	delete(twin.Labels, batchv1.ControllerUidLabel) // by which the controller would adopt it
	for i := range twin.OwnerReferences {
		twin.OwnerReferences[i].Controller = nil
	}
	twin.Spec.NodeName = ""
	if _, err := kubernetesClient(t).CoreV1().Pods(first.Namespace).Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return twin
}

// TestP3_AUnitThatWasStartedTwice: a cluster can start a second Pod for one Job. Its token
// is used up, and the run is the first's alone.
func TestP3_AUnitThatWasStartedTwice(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	wait, open := gate(t)
	id := h.Submit(on("run " + wait))
	h.Running(id)
	c := kubernetesClient(t)
	first := podOf(t, ns, id, 1)
	twin := twinOf(t, first)
	house.Eventually(t, "the twin's runner is turned away", func() bool {
		p, err := c.CoreV1().Pods(ns).Get(t.Context(), twin.Name, metav1.GetOptions{})
		if err != nil || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		end := p.Status.ContainerStatuses[0].State.Terminated
		return end != nil && end.ExitCode == member.ExitRevoked
	})
	h.Until(id, "the run goes on", func(r protocol.Run) bool { return r.Status == protocol.StatusRunning && r.Attempt == 1 })
	open()
	succeeded(t, h.Settled(id), 1)
	noUnits(t, ns)
}

// TestP15_ANetworkThatIsNotHeld: "network: none" is refused where nobody says that the
// cluster holds it, before there is a Pod.
func TestP15_ANetworkThatIsNotHeld(t *testing.T) {
	t.Parallel()
	h, ns := launching(t)
	req := on("say hello")
	req.Case.Network = &protocol.Network{Mode: protocol.NetworkNone}
	_, err := h.Client.Submit(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), `runtime cluster does not hold network "none"`) {
		t.Errorf("submit: %v, want it refused by name", err)
	}
	noUnits(t, ns)
}

// TestANetworkPolicy: where it is held, a unit's Pod has its policy before it is there, and
// nothing of it is left.
func TestANetworkPolicy(t *testing.T) {
	t.Parallel()
	ns := namespace(t, false)
	opener := kube.New(kube.Config{Secrets: secrets{"cluster": withToken(t, launcher(t, ns))}, ImagePullPolicy: "Never", Egress: []string{"127.0.0.1/32"}, URL: "http://localhost:8787", Log: quiet})
	p, err := opener.Open(t.Context(), fleet.Target{Coordinator: "crd-policy", Workspace: "default",
		Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "closed", Image: unitImage, Namespace: ns, KubeconfigSecret: "cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	if detail, err := p.Probe(t.Context()); err != nil {
		t.Errorf("probe: %q, %v; want the right to make policies", detail, err)
	}
	o := fleet.Order{Unit: fleet.UnitName("run_closed", 1), Job: "run_closed", Attempt: 1, URL: "http://localhost:8787", Network: protocol.NetworkNone,
		Token: func(context.Context) (string, error) { return "say $EVERDICT_NETWORK; wait", nil }}
	for range 2 {
		if err := p.Launch(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c := kubernetesClient(t)
	policy, err := c.NetworkingV1().NetworkPolicies(ns).Get(t.Context(), o.Unit, metav1.GetOptions{})
	if err != nil || len(policy.Spec.Egress) != 1 || policy.Spec.Egress[0].Ports[0].Port.IntValue() != 8787 || len(policy.Spec.Ingress) != 0 {
		t.Fatalf("policy %+v, %v", policy, err)
	}
	var pod corev1.Pod
	house.Eventually(t, "its Pod is there", func() bool {
		pods, err := unitPods(t.Context(), c, ns, o.Unit)
		if err != nil || len(pods) != 1 {
			return false
		}
		pod = pods[0]
		return true
	})
	if pod.CreationTimestamp.Before(&policy.CreationTimestamp) || len(pod.Spec.HostAliases) == 0 || pod.Spec.HostAliases[0].Hostnames[0] != "localhost" {
		t.Errorf("the Pod is of %v, its policy of %v, its names %+v; want the policy first, and the coordinator's name", pod.CreationTimestamp, policy.CreationTimestamp, pod.Spec.HostAliases)
	}
	if err := p.Terminate(t.Context(), o.Unit); err != nil {
		t.Fatal(err)
	}
	noUnits(t, ns)
	house.Eventually(t, "the policy goes with its Job", func() bool {
		all, err := c.NetworkingV1().NetworkPolicies(ns).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(all.Items) == 0
	})
}
