//go:build kube

package kube

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// lossy is a way to the cluster on which the first answer to each kind of change is lost:
// the cluster has done it, and who asked sees the connection end.
type lossy struct {
	mu sync.Mutex
	// codes are those of the cluster's answers, by method and resource; the first of each
	// was lost.
	codes map[string][]int
}

func (l *lossy) answer(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	_, path, within := strings.Cut(r.URL.Path, "/namespaces/")
	if r.Method == http.MethodGet || !within {
		forward.ServeHTTP(w, r)
		return
	}
	got := httptest.NewRecorder()
	forward.ServeHTTP(got, r)
	change := r.Method + " " + strings.Split(path, "/")[1]
	l.mu.Lock()
	l.codes[change] = append(l.codes[change], got.Code)
	first := len(l.codes[change]) == 1
	l.mu.Unlock()
	if first {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), got.Header())
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

// of are the cluster's answers to a kind of change.
func (l *lossy) of(change string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.codes[change])
}

// TestF14_TheAnswerToALaunchIsLost: once after each step of a launch, and once after the
// removal. The launch goes on where it was: there is one unit, the run is done at its first
// attempt, and nothing is left.
func TestF14_TheAnswerToALaunchIsLost(t *testing.T) {
	t.Parallel()
	l := &lossy{codes: map[string][]int{}}
	doc := through(t, nil, l.answer) // before the house: it is closed after it
	h, ns := launching(t, patient)
	secret(t, h, "lossy-config", doc)
	register(t, h, protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "lossy", Version: "1.0.0", Image: runnerImage, Namespace: ns, KubeconfigSecret: "lossy-config"})
	wait, open := gate(t)
	req := on("run " + wait)
	req.Runtime = "lossy"
	id := h.Submit(req)
	h.Running(id)
	pod := podOf(t, ns, id, 1)
	jobs, err := kubernetesClient(t).BatchV1().Jobs(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 1 || !metav1.IsControlledBy(pod, &jobs.Items[0]) {
		t.Errorf("there are %d Jobs, %v; want one, with the Pod", len(jobs.Items), err)
	}
	open()
	succeeded(t, h.Settled(id), 1)
	noUnits(t, ns)
	for _, change := range []string{"POST jobs", "POST secrets", "DELETE secrets", "PATCH jobs", "DELETE jobs"} {
		if codes := l.of(change); len(codes) == 0 || codes[0] >= 300 {
			t.Errorf("%s: the cluster answered %v; want the first done, and lost", change, codes)
		}
	}
	if made := l.of("POST jobs"); len(made) < 2 || slices.ContainsFunc(made[1:], func(code int) bool { return code != http.StatusConflict }) {
		t.Errorf("the Job was made with the answers %v; want it made once, and found after that", made)
	}
	house.Eventually(t, "its slot is free", func() bool { return h.Pool("lossy").Running == 0 })
}
