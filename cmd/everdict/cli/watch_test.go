package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// waiting is a command that waits for a run, and what it says meanwhile.
type waiting struct {
	lines *bufio.Reader
	code  chan int
}

func waitFor(t *testing.T, ctx context.Context, url string, args ...string) *waiting {
	t.Helper()
	a := newTestApp(t, url)
	pr, pw := io.Pipe()
	a.err = pw
	w := &waiting{bufio.NewReader(pr), make(chan int, 1)}
	go func() {
		w.code <- a.run(ctx, args)
		pw.Close()
	}()
	t.Cleanup(func() { io.Copy(io.Discard, w.lines) })
	return w
}

// until reads lines up to one that contains text.
func (w *waiting) until(t *testing.T, text string) string {
	t.Helper()
	var before strings.Builder
	for {
		line, err := w.lines.ReadString('\n')
		if strings.Contains(line, text) {
			return line
		}
		before.WriteString(line)
		if err != nil {
			t.Fatalf("never said %q: %s (%v)", text, &before, err)
		}
	}
}

// P9: whoever waits is told what for, without asking.
func TestP9_WaitSaysWhyARunWaits(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	url := f.serve(false)
	a := newTestApp(t, url)
	a.in = strings.NewReader(`{"harness":{"id":"scripted"},"runtime":"nowhere","case":{"id":"c","task":"x","env":{"kind":"prompt"}}}`)
	if code := a.run(t.Context(), []string{"submit", "-f", "-"}); code != 0 {
		t.Fatalf("submit: %s", &a.stderr)
	}
	id, _, _ := strings.Cut(a.stdout.String(), " ")
	w := waitFor(t, t.Context(), url, "runs", "wait", id, "-o", "json")
	if got, want := w.until(t, "waits:"), id+" waits: no runner of this workspace is online\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if code := newTestApp(t, url).run(t.Context(), []string{"runs", "cancel", id}); code != 0 {
		t.Fatalf("cancel: exit code %d", code)
	}
	rest, _ := io.ReadAll(w.lines)
	if code := <-w.code; code != 2 || strings.Contains(string(rest), "waits:") {
		t.Errorf("after the cancel: exit code %d and %q, want 2 and the reason no second time", code, rest)
	}
}

// Who wants quiet hears of a question all the same, and of nothing else: the run waits for them.
func TestQuietWaitSaysThatARunAsks(t *testing.T) {
	t.Parallel()
	url := newFake(t).serve(false)
	a := newTestApp(t, url)
	a.in = strings.NewReader(`{"harness":{"id":"scripted"},"case":{"id":"c","task":"x","approval":"before-start","env":{"kind":"prompt"}}}`)
	if code := a.run(t.Context(), []string{"submit", "-f", "-"}); code != 0 {
		t.Fatalf("submit: %s", &a.stderr)
	}
	id, _, _ := strings.Cut(a.stdout.String(), " ")
	w := waitFor(t, t.Context(), url, "runs", "wait", "-q", id)
	if got, want := w.until(t, "waits for"), id+" waits for approval\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if got, want := w.until(t, "runs reject"), "  everdict runs approve "+id+", or everdict runs reject "+id+"\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if code := newTestApp(t, url).run(t.Context(), []string{"runs", "reject", id}); code != 0 {
		t.Fatalf("reject: exit code %d", code)
	}
	if rest, _ := io.ReadAll(w.lines); strings.Contains(string(rest), "after") {
		t.Errorf("with -q: said %q", rest)
	}
	if code := <-w.code; code != 2 {
		t.Errorf("exit code %d of a run that was rejected, want 2", code)
	}
}

func TestWaitSaysAnotherReasonNowAndThen(t *testing.T) {
	t.Parallel()
	now := instant
	a := newTestApp(t, "")
	a.now = func() time.Time { return now }
	p := &progress{a: a.app, id: "run_1"}
	for _, row := range []struct {
		after  time.Duration
		reason string
		said   string
	}{
		{0, "nobody is there", "run_1 waits: nobody is there\n"},
		{5 * time.Second, "nobody is there", ""},
		{5 * time.Second, "all are\nbusy", ""}, // too soon
		{25 * time.Second, "all are\nbusy", "run_1 waits: all are busy\n"},
		{time.Hour, "all are busy", ""},
	} {
		now = now.Add(row.after)
		a.stderr.Reset()
		p.waits(row.reason)
		if got := a.stderr.String(); got != row.said {
			t.Errorf("%q after %s: said %q, want %q", row.reason, row.after, got, row.said)
		}
	}
	a.quiet = true
	if p.waits("another"); a.stderr.Len() > 0 {
		t.Errorf("with -q: said %q", &a.stderr)
	}
}

// A coordinator that is gone is said once, within seconds, and waited for.
func TestWaitSaysThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: status\ndata: {\"status\":\"running\"}\n\n")
		w.(http.Flusher).Flush()
		close(held)
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	w := waitFor(t, ctx, s.URL, "runs", "wait", "run_1")
	<-held
	w.until(t, "running after")
	s.Listener.Close()
	s.CloseClientConnections()
	start := time.Now()
	if got, want := w.until(t, "no answer"), "no answer from "+s.URL+", trying again\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it was said after %s, want a few seconds", took)
	}
	cancel(&interruptError{os.Interrupt})
	rest, _ := io.ReadAll(w.lines)
	if code := <-w.code; code != 130 || bytes.Contains(rest, []byte("no answer")) {
		t.Errorf("exit code %d and %q, want 130 and no second time", code, rest)
	}
}

// A coordinator that takes a request and does not answer is not waited for in silence.
func TestASilentServerIsSpokenOf(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, "[]")
	}))
	defer s.Close()
	w := waitFor(t, t.Context(), s.URL, "runs", "list")
	if got, want := w.until(t, "answered"), s.URL+" has not answered yet\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	close(release)
	_, _ = io.ReadAll(w.lines)
	if code := <-w.code; code != 0 {
		t.Errorf("exit code %d when the answer has come, want 0", code)
	}
}

func TestContactIsSaidOncePerOutage(t *testing.T) {
	t.Parallel()
	var c contact
	fail := fmt.Errorf("refused")
	say := func(want bool) {
		t.Helper()
		if got := c.news("http://x"); (got != "") != want {
			t.Errorf("said %q, want something: %t", got, want)
		}
	}
	say(false)
	c.told(fail)
	say(false) // a restart takes less
	c.since = c.since.Add(-patienceWithServer)
	c.told(fail)
	say(true)
	say(false)
	c.told(nil)
	say(false)
	c.told(fail)
	c.since = c.since.Add(-patienceWithServer)
	say(true)
}
