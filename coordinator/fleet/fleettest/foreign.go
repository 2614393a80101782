package fleettest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// quoted is in everything that the servers of Foreign say.
const quoted = "hunter2"

// Foreign checks that nothing of what another service says, at an address that somebody
// has a runtime point to, comes back in an error: not by a probe, an inspection, a list or
// a launch. at is a runtime there.
func Foreign(t *testing.T, opener fleet.Opener, at func(url string) *protocol.RuntimeSpec) {
	t.Helper()
	answer := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"a page":               answer(200, "text/html", "<p>"+quoted),
		"JSON of another kind": answer(200, "application/json", `{"password":"`+quoted+`"}`),
		"JSON of another form": answer(200, "application/json", `["`+quoted+`"]`),
		"a kind of its own":    answer(200, "application/json", `{"kind":"`+quoted+`","apiVersion":"`+quoted+`"}`),
		"text":                 answer(200, "text/plain", quoted),
		"a 400":                answer(400, "text/plain", "bad "+quoted),
		"a 401":                answer(401, "text/plain", "login with "+quoted),
		"a 403":                answer(403, "application/json", `{"error":"`+quoted+`"}`),
		"a 403 like Nomad's":   answer(403, "text/plain", "Permission denied\n"+quoted),
		"a 404":                answer(404, "text/html", "<h1>"+quoted+"</h1>"),
		"a 409":                answer(409, "application/json", `{"kind":"`+quoted+`"}`),
		"a 500":                answer(500, "text/plain", "panic: "+quoted),
		"a redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/"+quoted, http.StatusFound)
		},
		"a status line of its own": func(w http.ResponseWriter, _ *http.Request) {
			say(w, "HTTP/1.1 418 "+quoted+"\r\nContent-Length: 0\r\n\r\n")
		},
		"another protocol":      func(w http.ResponseWriter, _ *http.Request) { say(w, "SSH-2.0-"+quoted+"\r\n") },
		"a header that is none": func(w http.ResponseWriter, _ *http.Request) { say(w, "HTTP/1.1 200 OK\r\n"+quoted+"\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(handler)
			defer server.Close()
			spec := at(server.URL)
			silent := func(what string, said ...any) {
				t.Helper()
				if text := fmt.Sprintf("%+v", said); strings.Contains(text, quoted) {
					t.Errorf("%s tells what another service says: %s", what, text)
				}
			}
			prober := fleet.Prober{Opener: opener, Coordinator: "crd_1"}
			probe, err := prober.Probe(t.Context(), "w", spec)
			silent("a probe", probe, err)
			if err != nil || probe.Reachable || probe.Detail == "" {
				t.Errorf("probe: %+v, %v, want it not reachable, and why", probe, err)
			}
			in, err := prober.Inspect(t.Context(), "w", spec)
			silent("an inspection", in.Detail, in.Warnings, err)
			if err != nil || in.Reachable {
				t.Errorf("inspect: %+v, %v, want it not reachable", in, err)
			}
			p, err := opener.Open(t.Context(), fleet.Target{Coordinator: "crd_1", Workspace: "w", Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.List(t.Context())
			silent("a list", err)
			token := func(context.Context) (string, error) { return "jnt_x", nil }
			err = p.Launch(t.Context(), fleet.Order{Unit: "everdict-x-1", Job: "run_x", Attempt: 1, Token: token, URL: "http://127.0.0.1:1", Image: "i"})
			silent("a launch", err)
			_, err = p.Output(t.Context(), "everdict-x-1", 1000)
			silent("an output", err)
			silent("a removal", p.Terminate(t.Context(), "everdict-x-1"))
		})
	}
}

// say writes text as it is in place of an answer.
func say(w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer func(c net.Conn) { _ = c.Close() }(c)
	_, _ = c.Write([]byte(text))
}
