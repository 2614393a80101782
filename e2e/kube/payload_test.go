//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// unreachable makes the runtime one whose runners are given their runs, where none of them
// finds the coordinator.
func unreachable(c *coordinator.Config, s *protocol.RuntimeSpec) {
	s.Payload = true
	c.Launch.URL, c.Launch.Deliver = "http://127.0.0.1:1", time.Second
}

// TestP12_APayloadInAPod: a run is carried out where its runner never reaches the
// coordinator, and its result is the one in the output. While it runs, neither the cluster
// nor the job finds the payload, and a second Pod of the Job waits for it in vain (P3).
func TestP12_APayloadInAPod(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, unreachable)
	wait, open := gate(t)
	var found atomic.Bool
	tell := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { found.Store(true) }))
	defer tell.Close()
	id := h.Submit(on("run if env | grep -E 'EVERDICT_(PAYLOAD|API)' || [ -e /var/run/everdict ] || [ -n \"$(ls -A /var/run/everdict-payload)\" ]; then wget -q -O /dev/null " +
		tell.URL + "; fi; " + wait))
	c, unit := kubernetesClient(t), fleet.UnitName(id, 1)
	var first corev1.Pod
	house.Eventually(t, "the cluster has forgotten the payload of what runs", func() bool {
		pods, err := unitPods(context.Background(), c, ns, unit)
		if err != nil || len(pods) != 1 || len(pods[0].Status.ContainerStatuses) == 0 || pods[0].Status.ContainerStatuses[0].State.Running == nil {
			return false
		}
		first = pods[0]
		secrets, err := c.CoreV1().Secrets(ns).List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=everdict"})
		return err == nil && len(secrets.Items) == 0
	})
	checkPod(t, &first)
	if doc, err := json.Marshal(first); err != nil || strings.Contains(string(doc), protocol.RunnerTokenPrefix) || strings.Contains(string(doc), "EVERDICT_(PAYLOAD") {
		t.Errorf("the Pod shows the payload, %v:\n%s", err, doc)
	}
	twin := twinOf(t, &first)
	house.Eventually(t, "the twin waits for what is not there any more", func() bool {
		said, err := c.CoreV1().Events(ns).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + twin.Name + ",reason=FailedMount"})
		return err == nil && len(said.Items) > 0
	})
	if p, err := c.CoreV1().Pods(ns).Get(t.Context(), twin.Name, metav1.GetOptions{}); err != nil || p.Status.Phase != corev1.PodPending {
		t.Errorf("the twin is %s, %v; want it waiting", p.Status.Phase, err)
	}
	open()
	run := h.Settled(id)
	succeeded(t, run, 1)
	if run.Provenance.RunnerLabel != unit || found.Load() {
		t.Errorf("it was run by %s, want its unit; the job found what is not its own: %v", run.Provenance.RunnerLabel, found.Load())
	}
	noUnits(t, ns)
}

// TestP3_APayloadThatNoPodTakes: the attempt ends when the unit is gone from the cluster,
// for the reason that it was taken away for.
func TestP3_APayloadThatNoPodTakes(t *testing.T) {
	t.Parallel()
	h, ns := launching(t, unreachable, func(_ *coordinator.Config, s *protocol.RuntimeSpec) { s.Image = "everdict.test/nowhere:0" })
	failed(t, h.Settled(h.Submit(on("say hello"))), protocol.ClassConfig, protocol.ReasonImage, "everdict.test/nowhere:0")
	noUnits(t, ns)
}

// TestP5_AnOutputThatIsNotReadAtOnce: a log that the cluster does not give is asked for again. It
// has the only copy of the result.
func TestP5_AnOutputThatIsNotReadAtOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	doc := through(t, nil, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/log") {
			switch asked.Add(1) {
			case 1:
				w.WriteHeader(http.StatusBadGateway)
				return
			case 2:
				w.WriteHeader(http.StatusNotFound)
				return
			}
		}
		forward.ServeHTTP(w, r)
	})
	h, ns := launching(t, unreachable)
	secret(t, h, "flaky-config", doc)
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "flaky", Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "flaky-config", Payload: true})
	req := on("say an hour of work")
	req.Runtime = "flaky"
	succeeded(t, h.Settled(h.Submit(req)), 1)
	if n := asked.Load(); n < 3 {
		t.Errorf("the log was asked for %d times, want two failures and more", n)
	}
	noUnits(t, ns)
}
