package api_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

// The stream of a workspace ends when its credential does, and says so.
func TestEventsEndWithTheSession(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{auth: auth.Config{Required: true}, config: func(c *api.Config) { c.BeatEvery = 10 * time.Millisecond }})
	key, err := e.keys.Bootstrap(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	raw := e.do("POST", "/session", `{"apiKey":"`+key+`"}`).wants(http.StatusOK).header.Get("Set-Cookie")
	cookie, _, _ := strings.Cut(raw, ";")
	for name, path := range map[string]string{"workspace": "/events", "run": ""} {
		if path == "" {
			var run protocol.SubmittedRun
			e.do("POST", "/runs", goodRun, "Authorization", "Bearer "+key).wants(http.StatusAccepted).into(&run)
			path = "/runs/" + run.RunID + "/live/stream"
		}
		raw := e.do("POST", "/session", `{"apiKey":"`+key+`"}`).wants(http.StatusOK).header.Get("Set-Cookie")
		own, _, _ := strings.Cut(raw, ";")
		req, err := http.NewRequestWithContext(t.Context(), "GET", e.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Cookie", own)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%s: status %d, %v", name, res.StatusCode, res.Header)
		}
		stream := bufio.NewReader(res.Body)
		if line, err := stream.ReadString('\n'); err != nil || line != ": hb\n" {
			t.Fatalf("%s begins with %q, %v", name, line, err)
		}
		var begin strings.Builder
		for name == "workspace" && !strings.HasSuffix(begin.String(), "id: f-1\nevent: hello\n") {
			line, err := stream.ReadString('\n')
			if err != nil {
				t.Fatalf("%s says no hello: %q, %v", name, begin.String(), err)
			}
			begin.WriteString(line)
		}
		e.do("DELETE", "/session", "", browser(own)...).wants(http.StatusNoContent)
		rest, err := io.ReadAll(stream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		said := strings.Contains(string(rest), "event: end\ndata: {\"reason\":\"session\"}\n\n")
		if said != (name == "workspace") {
			t.Errorf("%s: %s", name, rest)
		}
	}
	e.do("GET", "/events", "", append(browser(cookie), "Last-Event-ID", "nonsense")...).problem(http.StatusBadRequest, protocol.CodeBadRequest)
	runner, err := e.runners.Pair(t.Context(), "team", "ann", protocol.PairRequest{Label: "mac"})
	if err != nil {
		t.Fatal(err)
	}
	e.do("GET", "/events", "", "Authorization", "Bearer "+runner.Token).problem(http.StatusForbidden, protocol.CodeForbidden)
}

func TestSummaryRetryAndSearchRoutes(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	e.do("POST", "/runs/"+id+"/retry", "").problem(http.StatusConflict, protocol.CodeConflict)
	e.do("POST", "/runs/"+id+"/cancel", "").wants(http.StatusOK)
	var again protocol.SubmittedRun
	e.do("POST", "/runs/"+id+"/retry", "").wants(http.StatusAccepted).into(&again)
	if again.RunID == "" || again.RunID == id || again.Origin.CausedByRunID != id {
		t.Errorf("retry: %+v", again)
	}
	e.do("POST", "/runs/run_none/retry", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	if body := string(e.do("GET", "/summary", "").wants(http.StatusOK).body); !strings.Contains(body, `"waiting":[]`) {
		t.Errorf("summary: %s", body)
	}
	for _, bad := range []string{"", "q=", "q=" + strings.Repeat("x", 201), "q=x&limit=0", "q=x&case=maybe"} {
		e.do("GET", "/runs/"+id+"/logs/search?"+bad, "").problem(http.StatusBadRequest, protocol.CodeBadRequest)
	}
	e.do("GET", "/runs/"+id+"/logs/search?q=x", "").wants(http.StatusOK)
	for _, bad := range []string{"limit=0", "limit=4194305", "before=0", "colors=perhaps"} {
		e.do("GET", "/runs/"+id+"/logs?"+bad, "").problem(http.StatusBadRequest, protocol.CodeBadRequest)
	}
	if got := e.do("GET", "/runs?count=true&limit=1", "").wants(http.StatusOK).header.Get("X-Everdict-Total"); got != "1" {
		t.Errorf("total %q, want 1", got)
	}
	e.runs.write(id, func(ev *fakeEvidence) { ev.log = []byte("\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07end\n") })
	var view protocol.LogView
	e.do("GET", "/runs/"+id+"/logs?colors=true", "").wants(http.StatusOK).into(&view)
	if want := "\x1b[31mred\x1b[0m end\n"; view.Text != want {
		t.Errorf("log with colours %q, want %q", view.Text, want)
	}
	e.do("GET", "/runs/"+id+"/logs", "").wants(http.StatusOK).into(&view)
	if want := "red end\n"; view.Text != want {
		t.Errorf("log without %q, want %q", view.Text, want)
	}
}
