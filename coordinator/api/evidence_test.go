package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/everdict/everdict/coordinator/api"
	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/protocol"
)

func message(i int) protocol.TraceEvent {
	text := fmt.Sprintf("step <%d>", i)
	return protocol.TraceEvent{Kind: protocol.EventMessage, T: float64(i), Role: "assistant", Text: &text}
}

func TestP11_Logs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	path := "/runs/" + id + "/logs"
	var view protocol.LogView
	e.do("GET", path, "").wants(http.StatusOK).into(&view)
	if view.Found || view.Status != protocol.StatusQueued {
		t.Errorf("log of a run that has none: %+v, want not found and its status", view)
	}
	if r := e.do("GET", path+"?raw=1", "").wants(http.StatusOK); len(r.body) != 0 {
		t.Errorf("bytes of a log that is not there: %q", r.body)
	}

	raw := []byte("plain\n\x1b[31mred\x1b[0m \x1b]0;title\x07tab\there\r\n\x00\xff ü \u202egnitset\u202c\n")
	e.runs.write(id, func(f *fakeEvidence) { f.log = raw })
	e.do("GET", path, "").wants(http.StatusOK).into(&view)
	if want := "plain\nred tab\there\n\ufffd ü gnitset\n"; view.Text != want || !view.Found || view.Bytes != int64(len(raw)) || view.Truncated {
		t.Errorf("view = %+v, want the text %q", view, want)
	}
	for _, ask := range [][]string{{"?raw=1"}, {"", "Accept", "text/plain"}} {
		r := e.do("GET", path+ask[0], "", ask[1:]...).wants(http.StatusOK)
		if string(r.body) != string(raw) {
			t.Errorf("raw log by %v = %q, want the bytes as written", ask, r.body)
		}
		if r.header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
			t.Errorf("raw log has the headers %v, with which a browser might run it", r.header)
		}
	}
	if got := e.do("GET", path+"?raw=1&offset=6&tail=4", "").wants(http.StatusOK); string(got.body) != string(raw[len(raw)-4:]) {
		t.Errorf("tail = %q, want the last four bytes", got.body)
	}

	e.runs.write(id, func(f *fakeEvidence) { f.log = []byte(strings.Repeat("0123456789abcde\n", 1<<19)) })
	e.do("GET", path, "").wants(http.StatusOK).into(&view)
	if !view.Truncated || len(view.Text) != 4<<20 || view.Bytes != 8<<20 {
		t.Errorf("view of an 8 MiB log: truncated %v, %d bytes of %d; want its last 4 MiB", view.Truncated, len(view.Text), view.Bytes)
	}
}

func TestTraceAndTrajectory(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	e.do("GET", "/runs/"+id+"/trajectory", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	const n = 2500 // more than two pages
	e.runs.write(id, func(f *fakeEvidence) {
		for i := range n {
			f.events = append(f.events, message(i))
		}
	})
	check := func(what string, events []protocol.TraceEvent) {
		t.Helper()
		if len(events) != n {
			t.Fatalf("%s has %d events, want %d", what, len(events), n)
		}
		for i, ev := range events {
			if ev.T != float64(i) || *ev.Text != fmt.Sprintf("step <%d>", i) {
				t.Fatalf("%s: event %d is %+v", what, i, ev)
			}
		}
	}

	var all []protocol.TraceEvent
	path := "/runs/" + id + "/trace"
	for path != "" {
		r := e.do("GET", path, "").wants(http.StatusOK)
		var page []protocol.TraceEvent
		r.into(&page)
		all = append(all, page...)
		path = ""
		if link, _, found := strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), ">"); found {
			path = link
		}
	}
	check("the trace by pages", all)

	for _, ask := range [][]string{{"?format=jsonl"}, {"", "Accept", "application/x-ndjson"}} {
		r := e.do("GET", "/runs/"+id+"/trace"+ask[0], "", ask[1:]...).wants(http.StatusOK)
		all = nil
		for line := range strings.Lines(string(r.body)) {
			var ev protocol.TraceEvent
			if err := json.Unmarshal([]byte(line), &ev); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			all = append(all, ev)
		}
		check("the trace by lines", all)
	}
	if r := e.do("GET", "/runs/"+id+"/trace?format=jsonl&limit=2&cursor=10", "").wants(http.StatusOK); strings.Count(string(r.body), "\n") != 2 {
		t.Errorf("two lines of the trace = %q", r.body)
	}

	var live protocol.LiveTrajectory
	e.do("GET", "/runs/"+id+"/trajectory/live", "").wants(http.StatusOK).into(&live)
	check("the live trajectory", live.Events)
	if !live.Found || live.Status != protocol.StatusQueued {
		t.Errorf("live trajectory: found %v, status %s", live.Found, live.Status)
	}
	sealed := protocol.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	e.runs.write(id, func(f *fakeEvidence) { f.sealed = &sealed })
	var whole protocol.Trajectory
	e.do("GET", "/runs/"+id+"/trajectory", "").wants(http.StatusOK).into(&whole)
	check("the trajectory", whole.Events)
	if whole.Meta.EventCount != n || whole.Meta.SealedAt != sealed || len(whole.Segments) != 1 {
		t.Errorf("trajectory meta %+v, segments %+v", whole.Meta, whole.Segments)
	}
	e.do("GET", "/runs/"+id+"/trace?cursor=nowhere", "").problem(http.StatusBadRequest, protocol.CodeBadRequest)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	e.do("GET", "/runs/"+id+"/diff", "").problem(http.StatusNotFound, protocol.CodeNotFound)
	diff := "diff --git a/ok.txt b/ok.txt\r\n+\xff<script>\n"
	e.runs.write(id, func(f *fakeEvidence) { f.diff = []byte(diff) })
	r := e.do("GET", "/runs/"+id+"/diff", "").wants(http.StatusOK)
	if string(r.body) != diff || !strings.HasPrefix(r.header.Get("Content-Type"), "text/x-diff") {
		t.Errorf("diff = %q (%s), want the bytes as text/x-diff", r.body, r.header.Get("Content-Type"))
	}
}

// sse reads an event stream event by event.
type sse struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Reader
}

type sseEvent struct{ id, name, data, comment string }

func (e *env) stream(path string, header ...string) *sse {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), "GET", e.url+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		e.t.Fatalf("GET %s: status %d, headers %v; want an event stream that proxies pass on", path, res.StatusCode, res.Header)
	}
	return &sse{e.t, res.Body, bufio.NewReader(res.Body)}
}

// next is the next event, or comment if comments are asked for.
func (s *sse) next(comments bool) (ev sseEvent, ended bool) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err == io.EOF {
			return ev, true
		}
		if err != nil {
			s.t.Fatalf("read the stream: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = value
		case "":
			if value != "" {
				ev.comment = value
			} else if ev.data != "" || comments && ev.comment != "" {
				return ev, false
			} else {
				ev = sseEvent{}
			}
		}
	}
}

func TestLogStreamFollowsResumesAndEnds(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	add := func(s string) { e.runs.write(id, func(f *fakeEvidence) { f.log = append(f.log, s...) }) }
	e.do("HEAD", "/runs/"+id+"/logs/stream", "").wants(http.StatusOK)
	s := e.stream("/runs/" + id + "/logs/stream")
	want := func(s *sse, data string) sseEvent {
		t.Helper()
		ev, ended := s.next(false)
		if ended || ev.data != data || ev.name != "" {
			t.Fatalf("event %+v (ended %v), want the data %s", ev, ended, data)
		}
		return ev
	}
	add("one\n")
	first := want(s, `"one\n"`)
	// A character that two writes share is sent once it is whole, and until
	// then there is no place to resume from.
	add("\xc3")
	add("\xbc two\n")
	var text string
	var last sseEvent
	for !strings.HasSuffix(text, "two\n") {
		ev, ended := s.next(false)
		if ended {
			t.Fatalf("the stream ended after %q", text)
		}
		var part string
		if err := json.Unmarshal([]byte(ev.data), &part); err != nil {
			t.Fatal(err)
		}
		text, last = text+part, ev
	}
	if text != "ü two\n" || last.id == "" {
		t.Errorf("text %q with last id %q, want ü two", text, last.id)
	}

	resumed := e.stream("/runs/"+id+"/logs/stream", "Last-Event-ID", first.id)
	want(resumed, `"ü two\n"`)

	e.do("POST", "/runs/"+id+"/cancel", "").wants(http.StatusOK)
	for _, stream := range []*sse{s, resumed} {
		ev, ended := stream.next(false)
		if ended || ev.name != "end" || ev.data != `{"status":"failed"}` {
			t.Fatalf("last event %+v (ended %v), want end with the status", ev, ended)
		}
		if _, ended := stream.next(false); !ended {
			t.Error("the stream goes on after its end")
		}
	}
	e.do("GET", "/runs/"+id+"/logs/stream", "", "Last-Event-ID", "elsewhere").problem(http.StatusBadRequest, protocol.CodeBadRequest)
}

func TestLiveStream(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{config: func(c *api.Config) { c.BeatEvery = time.Millisecond }})
	id := e.submit()
	s := e.stream("/runs/" + id + "/live/stream?lanes=trace,screen,log")
	// Silence is filled, so that no proxy takes the stream for dead.
	for range 3 {
		if ev, ended := s.next(true); ended || ev.comment != "hb" {
			t.Fatalf("a silent stream sent %+v (ended %v), want beats", ev, ended)
		}
	}
	e.runs.write(id, func(f *fakeEvidence) {
		f.events = append(f.events, message(1))
		f.log = []byte("\x1b[1mloud\x1b[0m\n")
	})
	got := map[string]string{}
	for len(got) < 2 {
		ev, ended := s.next(false)
		if ended {
			t.Fatalf("the stream ended with %v", got)
		}
		got[ev.name] = ev.data
	}
	if want := `{"events":[{"kind":"message","t":1,"role":"assistant","text":"step \u003c1\u003e"}],"total":1}`; got["trace"] != want {
		t.Errorf("trace event %s, want %s", got["trace"], want)
	}
	if want := `{"text":"loud\n","offset":0,"next":0}`; got["log"] != want {
		t.Errorf("log event %s, want %s", got["log"], want)
	}
}

// Only who submitted a run, or an admin, watches it live.
func TestLiveStreamIsTheSubmitters(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	member := func(subject string) string {
		issued, err := e.keys.Issue(t.Context(), auth.Principal{Subject: subject, Workspace: "default", Roles: []string{protocol.RoleMember}}, protocol.KeyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + issued.APIKey
	}
	ann, ben := member("ann"), member("ben")
	id := e.submit("Authorization", ann)
	e.do("GET", "/runs/"+id+"/live/stream", "", "Authorization", ben).problem(http.StatusForbidden, protocol.CodeForbidden)
	e.do("GET", "/runs/"+id, "", "Authorization", ben).wants(http.StatusOK)
	e.stream("/runs/"+id+"/live/stream", "Authorization", ann)
	e.stream("/runs/" + id + "/live/stream") // the development mode's admin
}

// A client that leaves frees what serves it.
func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{})
	id := e.submit()
	s := e.stream("/runs/" + id + "/logs/stream")
	if ev, _ := s.next(true); ev.comment != "hb" {
		t.Fatalf("first event %+v, want a beat that opens the stream", ev)
	}
	s.body.Close()
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(e.log.String(), "route=/runs/{id}/logs/stream") {
		if time.Now().After(deadline) {
			t.Fatalf("the stream still runs, nothing was logged:\n%s", e.log.String())
		}
		// Wait for whatever happens next, here another request.
		e.do("GET", "/healthz", "")
	}
}

// What breaks in the middle of an answer cuts it, so that nobody takes a part
// for the whole.
func TestBrokenEvidenceCutsTheAnswer(t *testing.T) {
	t.Parallel()
	e := newEnv(t, options{config: func(c *api.Config) { c.Runs = brokenDiff{c.Runs} }})
	id := e.submit()
	res, err := http.Get(e.url + "/runs/" + id + "/diff")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil {
		t.Errorf("read %d bytes of a diff whose source failed, and no error", len(b))
	}
	if !strings.Contains(e.log.String(), "disk is gone") {
		t.Errorf("the log does not say why:\n%s", e.log.String())
	}
}

type brokenDiff struct{ api.Runs }

func (brokenDiff) Diff(context.Context, auth.Principal, string, int64) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("+line\n", 10_000)), iotest.ErrReader(errors.New("disk is gone")))), nil
}
