package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everdict/everdict/protocol"
)

func readAllSSE(r io.Reader) (events []sseEvent, err error) {
	s := &sseReader{r: bufio.NewReaderSize(r, 16)}
	for {
		e, err := s.next()
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func TestSSEFormat(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       []sseEvent
	}{
		{"one", "id: 1\nevent: status\ndata: {}\n\n", []sseEvent{{"1", "status", []byte("{}")}}},
		{"CRLF and no space", "id:1\r\ndata:x\r\n\r\n", []sseEvent{{"1", "", []byte("x")}}},
		{"comments and unknown fields", ": hb\n\nfoo: bar\ndata: x\n: y\n\n", []sseEvent{{"", "", []byte("x")}}},
		{"several data lines", "data: a\ndata:\ndata:  b\n\n", []sseEvent{{"", "", []byte("a\n\n b")}}},
		{"an event without data is none", "event: a\nid: 2\n\ndata: x\n\n", []sseEvent{{"", "", []byte("x")}}},
		{"cut in the middle", "data: a\n\ndata: b\n", []sseEvent{{"", "", []byte("a")}}},
		{"longer than the buffer", "data: " + strings.Repeat("x", 100) + "\n\n", []sseEvent{{"", "", []byte(strings.Repeat("x", 100))}}},
		{"id with NUL", "id: a\x00b\ndata: x\n\n", []sseEvent{{"", "", []byte("x")}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := readAllSSE(strings.NewReader(row.text))
			if !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v, want EOF", err)
			}
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(sseEvent{})); diff != "" {
				t.Errorf("%q (-want +got):\n%s", row.text, diff)
			}
		})
	}
}

func TestF25_SSEEventIsBounded(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("data: "), endlessX{})
	if _, err := readAllSSE(endless); !errors.Is(err, errSSETooLong) {
		t.Errorf("an endless line ended with %v, want errSSETooLong", err)
	}
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzSSE(f *testing.F) {
	f.Add("id: 1\nevent: status\ndata: {}\n\n")
	f.Add("data: a\r\ndata: b\r\n\r\n: hb\n\nretry: 5\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		events, err := readAllSSE(strings.NewReader(text))
		if !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v, want EOF", err)
		}
		size := 0
		for _, e := range events {
			size += len(e.data) + len(e.id) + len(e.name)
		}
		if size > len(text) {
			t.Errorf("%d bytes became %d", len(text), size)
		}
	})
}

// liveServer serves /runs/{id}/live/stream in pieces: each connection gets the
// next one, then the connection is cut unless the piece has an end.
type liveServer struct {
	pieces   []string
	asked    []string
	run      string
	runAsked int
}

func (s *liveServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/stream") {
		s.runAsked++
		return answer(200, "application/json", s.run), nil
	}
	s.asked = append(s.asked, r.Header.Get("Last-Event-ID"))
	if len(s.pieces) == 0 {
		return nil, syscall.ECONNREFUSED
	}
	piece := s.pieces[0]
	s.pieces = s.pieces[1:]
	if status, ok := strings.CutPrefix(piece, "status "); ok {
		var code int
		fmt.Sscan(status, &code)
		return answer(code, "text/html", "<title>proxy</title>"), nil
	}
	return answer(200, "text/event-stream", piece), nil
}

func (s *liveServer) client(t *testing.T) *Client { return newClient(t, s.RoundTrip) }

const endSucceeded = "event: end\ndata: {\"status\":\"succeeded\"}\n\n"

func traceEvent(id string, from, total int) string {
	var events []string
	for i := from; i < total; i++ {
		events = append(events, fmt.Sprintf(`{"kind":"message","t":%d,"role":"assistant","text":"m%d"}`, i, i))
	}
	if id != "" {
		// With ids, total counts what is stored, which may be more.
		return fmt.Sprintf("id: %s\nevent: trace\ndata: {\"events\":[%s],\"total\":5}\n\n", id, strings.Join(events, ","))
	}
	return fmt.Sprintf("event: trace\ndata: {\"events\":[%s],\"total\":%d}\n\n", strings.Join(events, ","), total)
}

func TestF23_TraceGoesOnAfterTheStreamIsCut(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		pieces []string
		asked  []string
	}{
		{"resumed by id", []string{traceEvent("a", 0, 2) + "id: lost", traceEvent("b", 2, 3) + endSucceeded}, []string{"", "a"}},
		{"a server without ids that starts again", []string{traceEvent("", 0, 2), traceEvent("", 0, 1) + traceEvent("", 1, 3) + endSucceeded}, []string{"", ""}},
		{"through 502 and 503", []string{traceEvent("a", 0, 1), "status 502", "status 503", traceEvent("b", 1, 3) + endSucceeded}, []string{"", "a", "a", "a"}},
		{"cut inside an event", []string{traceEvent("a", 0, 1) + traceEvent("b", 1, 2)[:40], traceEvent("c", 1, 3) + endSucceeded}, []string{"", "a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &liveServer{pieces: row.pieces}
				var got []string
				for e, err := range s.client(t).FollowTrace(t.Context(), "run_1") {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, *e.Text)
				}
				if diff := cmp.Diff([]string{"m0", "m1", "m2"}, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(row.asked, s.asked); diff != "" {
					t.Errorf("Last-Event-ID (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestStreamGivesUp(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		pieces []string
		tries  func(int) bool
		status int
		after  time.Duration
	}{
		{"at once on 404", []string{"status 404"}, func(n int) bool { return n == 1 }, 404, 0},
		{"at once on 403", []string{"status 403"}, func(n int) bool { return n == 1 }, 403, 0},
		{"after Patience when nobody answers", nil, func(n int) bool { return n > 20 && n < 400 }, 0, 2 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &liveServer{pieces: row.pieces}
				start := time.Now()
				var last error
				for _, err := range s.client(t).FollowLog(t.Context(), "run_1", "") {
					last = err
				}
				if last == nil || StatusOf(last) != row.status || !row.tries(len(s.asked)) {
					t.Errorf("after %d tries: %v", len(s.asked), last)
				}
				if took := time.Since(start); took < row.after || took > row.after+10*time.Second {
					t.Errorf("gave up after %s, want about %s", took, row.after)
				}
			})
		})
	}
}

// F32: a stream that looks open but carries nothing is found and made again.
func TestF32_SilentStreamIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		c := newClient(t, func(r *http.Request) (*http.Response, error) {
			if connections++; connections == 2 {
				return answer(200, "text/event-stream", "data: \"b\"\n\n"+endSucceeded), nil
			}
			pr, pw := io.Pipe()
			go func() {
				io.WriteString(pw, "id: 7\ndata: \"a\"\n\n")
				for range 3 { // alive by comments alone
					time.Sleep(40 * time.Second)
					io.WriteString(pw, ": hb\n\n")
				}
				<-r.Context().Done() // and then nothing, without a close
				pw.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: pr}, nil
		})
		start := time.Now()
		var got []string
		for text, err := range c.FollowLog(t.Context(), "run_1", protocol.StreamStdout) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text)
		}
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if took := time.Since(start); took < 165*time.Second || took > 170*time.Second {
			t.Errorf("took %s, want three beats of 40 s and 45 s of silence", took)
		}
	})
}

func TestLeavingAStreamClosesIt(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: \"a\"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(closed)
	}))
	defer server.Close()
	c, err := New(Config{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for range c.FollowLog(t.Context(), "run_1", "") {
		break
	}
	<-closed
}

func TestWaitFollowsTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &liveServer{run: `{"id":"run_1","status":"succeeded","verdict":true}`, pieces: []string{
			"event: status\ndata: {\"status\":\"running\"}\n\n" + traceEvent("a", 0, 1) +
				"event: status\ndata: {\"status\":\"suspended\"}\n\n" +
				"event: novelty\ndata: 1\n\n" + endSucceeded}}
		var seen []string
		run, err := s.client(t).Watch(t.Context(), "run_1", func(e protocol.LiveEvent) {
			seen = append(seen, e.Kind+" "+string(e.Status))
		})
		if err != nil || run.Verdict == nil || !*run.Verdict || s.runAsked != 1 {
			t.Errorf("run %+v after %d reads, %v", run, s.runAsked, err)
		}
		want := []string{"status running", "trace ", "status suspended", "novelty ", "end succeeded"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	})
}

func TestWaitPollsWhereStreamsDoNotWork(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"status 404", "status 403", "status 200", "event: status\ndata: nonsense\n\n", "event: trace\ndata: {}\n\n"} {
		t.Run(piece, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var polls int
				c := newClient(t, func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/stream") {
						return (&liveServer{pieces: []string{piece}}).RoundTrip(r)
					}
					polls++
					switch {
					case polls == 2:
						return answer(502, "text/html", ""), nil
					case polls < 5:
						return answer(200, "application/json", `{"id":"run_1","status":"running"}`), nil
					default:
						return answer(200, "application/json", `{"id":"run_1","status":"failed"}`), nil
					}
				}, func(cfg *Config) { cfg.Retries = -1 })
				var seen []protocol.Status
				run, err := c.Watch(t.Context(), "run_1", func(e protocol.LiveEvent) { seen = append(seen, e.Status) })
				if err != nil || run.Status != protocol.StatusFailed {
					t.Errorf("got %+v, %v", run, err)
				}
				if diff := cmp.Diff([]protocol.Status{"running", "failed", "failed"}, seen); diff != "" {
					t.Errorf("observed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s := &liveServer{}
		start := time.Now()
		_, err := s.client(t).Wait(ctx, "run_1")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestWaitForARunThatIsNotThere(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := newClient(t, func(*http.Request) (*http.Response, error) {
		asked.Add(1)
		return answer(404, "application/json", `{"code":"NOT_FOUND","message":"no run run_1"}`), nil
	})
	if _, err := c.Wait(t.Context(), "run_1"); !IsNotFound(err) || asked.Load() != 2 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}

func TestTracePages(t *testing.T) {
	t.Parallel()
	c := newClient(t, func(r *http.Request) (*http.Response, error) {
		body, next := `[]`, "2"
		switch r.URL.Query().Get("cursor") {
		case "":
			body, next = `[{"kind":"message","t":1,"text":"a"}]`, "1"
		case "1":
			body = `[{"kind":"message","t":2,"text":"b"}]`
		}
		res := answer(200, "application/json", body)
		res.Header.Set("Link", `</runs/run_1/trace?cursor=`+next+`>; rel="next"`)
		return res, nil
	})
	var got []string
	for e, err := range c.Trace(t.Context(), "run_1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, *e.Text)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Whoever waits is told when the server is away and when it is back.
func TestContactIsToldOfEveryTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &liveServer{run: `{"id":"run_1","status":"succeeded"}`, pieces: []string{traceEvent("a", 0, 1), "status 503", "status 502", traceEvent("b", 1, 2) + endSucceeded}}
		var told []int
		c := newClient(t, s.RoundTrip, func(cfg *Config) {
			cfg.Contact = func(err error) {
				if err == nil {
					told = append(told, 200)
					return
				}
				told = append(told, StatusOf(err))
			}
		})
		if _, err := c.Wait(t.Context(), "run_1"); err != nil {
			t.Fatal(err)
		}
		// The stream, its end, two refusals, the stream again, the record.
		if diff := cmp.Diff([]int{200, 0, 503, 502, 200, 200}, told); diff != "" {
			t.Errorf("told of (-want +got):\n%s", diff)
		}
	})
}
