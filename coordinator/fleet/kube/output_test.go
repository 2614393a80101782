package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
)

// TestOutputOfTwoPods: what one Pod of a unit has printed is read although the other's cannot
// be, and an error is none of "there is no output".
func TestOutputOfTwoPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code    int
		message string
		fails   bool
	}{
		"no container yet":             {http.StatusBadRequest, `container "runner" in pod "b" is waiting to start: ContainerCreating`, false},
		"no container any more":        {http.StatusBadRequest, "failed to get container status: rpc error: code = NotFound desc = an error occurred when try to find container", false},
		"the runtime is away":          {http.StatusBadRequest, "failed to get container status: rpc error: code = Unavailable desc = connection refused", true},
		"the kubelet has just started": {http.StatusNotFound, "the server could not find the requested resource ( pods/log b)", true},
		"the kubelet is away":          {http.StatusBadGateway, "dial tcp 10.0.0.5:10250: i/o timeout", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case strings.HasSuffix(r.URL.Path, "/a/log"):
					fmt.Fprint(w, "of a\n")
				case strings.HasSuffix(r.URL.Path, "/b/log"):
					w.WriteHeader(c.code)
					fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
						c.code, map[int]string{http.StatusBadRequest: "BadRequest", http.StatusNotFound: "NotFound"}[c.code], c.message)
				default:
					fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`)
				}
			}))
			defer server.Close()
			p, err := New(Config{Secrets: secrets{"token": "t"}}).Open(t.Context(), fleet.Target{Coordinator: "c", Workspace: "w", Spec: pointsTo(server.URL)})
			if err != nil {
				t.Fatal(err)
			}
			out, err := p.Output(t.Context(), "u", 100)
			if string(out) != "of a\n" || (err != nil) != c.fails {
				t.Errorf("output %q, %v; want what a printed, an error: %v", out, err, c.fails)
			}
			if c.fails && !strings.Contains(err.Error(), c.message) {
				t.Errorf("the error is %v, want %q in it", err, c.message)
			}
		})
	}
}
