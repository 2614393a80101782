package house

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everdict/everdict/protocol"
)

// Register registers a runtime.
func (h *House) Register(spec protocol.RuntimeSpec) {
	h.T.Helper()
	doc, err := json.Marshal(spec)
	if err == nil {
		_, err = h.Client.RegisterRuntime(context.Background(), doc)
	}
	if err != nil {
		h.T.Fatalf("register runtime %s: %v", spec.ID, err)
	}
}

// Probe asks for the cluster of a registered runtime.
func (h *House) Probe(runtime string) *protocol.Probe {
	h.T.Helper()
	p, err := h.Client.ProbeRuntime(context.Background(), json.RawMessage(`{"id":"`+runtime+`"}`))
	if err != nil {
		h.T.Fatalf("probe runtime %s: %v", runtime, err)
	}
	return p
}

// SetSecret keeps a secret of the workspace.
func (h *House) SetSecret(name, value string) {
	h.T.Helper()
	if err := h.Client.SetSecret(context.Background(), name, protocol.SecretRequest{Value: value}); err != nil {
		h.T.Fatalf("set secret %s: %v", name, err)
	}
}

// Blocked waits until a run's placement has words in it.
func (h *House) Blocked(id, words string) {
	h.T.Helper()
	h.Until(id, id+" waits: "+words, func(r protocol.Run) bool {
		return r.Placement != nil && strings.Contains(r.Placement.BlockedReason, words)
	})
}

// RawLog is the log of a run.
func (h *House) RawLog(id string) string {
	h.T.Helper()
	r, err := h.Client.RawLog(context.Background(), id, protocol.LogQuery{})
	if err != nil {
		h.T.Fatalf("read the log of %s: %v", id, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		h.T.Fatalf("read the log of %s: %v", id, err)
	}
	return string(b)
}

// Gate is what a script waits for, as a shell command, until open is called.
func Gate(t testing.TB) (wait string, open func()) {
	t.Helper()
	var opened atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !opened.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return "until wget -q -O /dev/null " + s.URL + " 2>/dev/null; do sleep 0.1; done", func() { opened.Store(true) }
}

// Failed checks the failure of a run that is over.
func Failed(t testing.TB, run protocol.Run, class, reason string, words ...string) {
	t.Helper()
	f := run.Failure
	if run.Status != protocol.StatusFailed || f == nil || f.Class != class || f.Reason != reason {
		t.Fatalf("the run is %s, %+v; want it failed as %s/%s", run.Status, f, class, reason)
	}
	for _, w := range words {
		if !strings.Contains(f.Message, w) {
			t.Errorf("the failure says %q, want %q in it", f.Message, w)
		}
	}
}

// Done checks a run that is to succeed at its first attempt.
func Done(t testing.TB, run protocol.Run) {
	t.Helper()
	if run.Status != protocol.StatusSucceeded || run.Attempt != 1 {
		t.Fatalf("the run is %s, attempt %d, %+v; want it done at the first", run.Status, run.Attempt, run.Failure)
	}
}
