package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

// A pull whose caller goes away leaves nothing behind, wherever the offer is at that moment.
func TestWithdrawnPullGoesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.dial(b.config(&runner{}))
	ctx, cancel := context.WithCancel(t.Context())
	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, PullRequest{Request: "a"})
		pulled <- err
	}()
	until(t, "the pull to wait", func() bool { return len(b.c.last().Pulls()) == 1 })
	cancel()
	if err := next(t, "the pull's end", pulled); !errors.Is(err, context.Canceled) {
		t.Fatalf("pull: got %v", err)
	}
	until(t, "no pull to wait", func() bool { return len(b.c.last().Pulls()) == 0 })

	// The race: attempts become available while pulls are withdrawn. Each is either delivered or given back.
	delivered := 0
	const n = 200
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		b.c.jobs <- job(fmt.Sprint("race", i), 50_000)
		go cancel()
		o, err := s.Pull(ctx, PullRequest{Request: fmt.Sprint("race", i)})
		cancel()
		if err == nil {
			delivered++
			_, err = o.Started(t.Context())
			noErr(t, "started", err)
			continue
		}
		until(t, "the withdrawn pull to end", func() bool { return len(b.c.last().Pulls()) == 0 })
		select { // never handed out
		case <-b.c.jobs:
			delivered++
		default:
		}
	}
	until(t, "every attempt to be delivered or back", func() bool {
		b.c.mu.Lock()
		defer b.c.mu.Unlock()
		return delivered+len(b.c.returned) == n
	})
	if s.Err() != nil {
		t.Fatalf("session: %v", s.Err())
	}
}

// Asking again with the same request id, on a new session, returns the same attempt.
func TestP2_SameRequestSameAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.c.jobs <- job("a", 10)
	first := b.dial(b.config(&runner{}))
	o1, err := first.Pull(t.Context(), PullRequest{Request: "r"})
	noErr(t, "first pull", err)
	first.Close(CloseReason{Code: CloseNormal})
	_ = first.Wait()
	if _, err := o1.Started(t.Context()); err == nil {
		t.Fatal("started on a closed session succeeded")
	}
	second := b.dial(b.config(&runner{}))
	o2, err := second.Pull(t.Context(), PullRequest{Request: "r"})
	noErr(t, "second pull", err)
	if o1.AttemptRef != o2.AttemptRef {
		t.Fatalf("got %+v, then %+v", o1.AttemptRef, o2.AttemptRef)
	}
}

func TestP2_StandingsAndResults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.c.standing["job_stale"], b.c.standing["job_gone"] = Stale, Cancelled
	h := &runner{leases: []HeldLease{{AttemptRef: job("stale", 0).AttemptRef}, {AttemptRef: job("good", 0).AttemptRef}}}
	s := b.dial(b.config(h))

	b.c.jobs <- job("gone", 10)
	o, err := s.Pull(t.Context(), PullRequest{Request: "r"})
	noErr(t, "pull", err)
	if st, err := o.Started(t.Context()); err != nil || st != Cancelled {
		t.Fatalf("started: got %q, %v", st, err)
	}
	ack, err := s.Heartbeat(t.Context())
	noErr(t, "heartbeat", err)
	if len(ack.Leases) != 2 || ack.Leases[0].Standing != Stale || ack.Leases[0].TTL != 0 || ack.Leases[1].Standing != Stands {
		t.Fatalf("verdicts: %+v", ack.Leases)
	}
	// Late evidence is taken, the result changes nothing.
	w, err := s.OpenEvidence(t.Context(), job("stale", 0).AttemptRef)
	noErr(t, "open", err)
	if w.Standing() != Stale {
		t.Fatalf("standing: %q", w.Standing())
	}
	noErr(t, "send", w.Send(t.Context(), "log", 0, []byte("late")))
	if a, err := w.Result(t.Context(), []byte("{}")); err != nil || a.Status != ResultStale {
		t.Fatalf("result: %+v, %v", a, err)
	}
	// The same result twice is accepted twice; another one is rejected.
	for i, doc := range []string{`{"a":1}`, `{"a":1}`, `{"a":2}`} {
		w, err := s.OpenEvidence(t.Context(), job("good", 0).AttemptRef)
		noErr(t, "open", err)
		want := ResultAccepted
		if i == 2 {
			want = ResultRejected
		}
		if a, err := w.Result(t.Context(), []byte(doc)); err != nil || a.Status != want {
			t.Fatalf("result %d: %+v, %v; want %s", i, a, err, want)
		}
		if err := w.Send(t.Context(), "log", 0, []byte("x")); err == nil {
			t.Fatal("sent after the result")
		}
	}
	var re *RemoteError
	if _, err := s.OpenEvidence(t.Context(), AttemptRef{Run: "r", Job: "j", Token: "wrong"}); !errors.As(err, &re) || re.Code != "not_held" {
		t.Fatalf("wrong token: got %v", err)
	}
}

// F18: a runner that drains says so and gives back what it holds, without waiting for the lease to end.
func TestF18_DrainAndGiveBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.dial(b.config(&runner{}))
	noErr(t, "drain", s.Drain(t.Context(), Drain{Reason: "SIGTERM"}))
	noErr(t, "status", s.Status(t.Context(), Status{Text: "leaving", Level: "warn"}))
	st, err := s.GiveBack(t.Context(), job("a", 0).AttemptRef, GiveBack{Reason: "draining", Started: true})
	if err != nil || st != Stands {
		t.Fatalf("give back: %q, %v", st, err)
	}
	b.c.jobs <- job("b", 10)
	o, err := s.Pull(t.Context(), PullRequest{Request: "r"})
	noErr(t, "pull", err)
	_, err = o.Refuse(t.Context(), GiveBack{Reason: "refused", Text: "no such lane"})
	noErr(t, "refuse", err)
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if len(b.c.drains) != 1 || len(b.c.status) != 1 || len(b.c.returned) != 2 || !b.c.returned[0].Started || b.c.returned[1].Text != "no such lane" {
		t.Fatalf("coordinator saw %+v %+v %+v", b.c.drains, b.c.status, b.c.returned)
	}
}

func TestCoordinatorMessagesReachTheRunner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := &runner{}
	b.dial(b.config(h))
	c := b.c.last()
	noErr(t, "cancel", c.Cancel(Cancel{Run: "r", Job: "j", Epoch: 2, Reason: "by its owner"}))
	noErr(t, "status", c.Status(Status{Text: "degraded: no start acknowledgement"}))
	noErr(t, "drain", c.Drain(Drain{RetryAfter: Duration(time.Second)}))
	until(t, "the messages", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.drains) == 1 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.cancels) != 1 || h.cancels[0].Epoch != 2 || len(h.statuses) != 1 || h.drains[0].RetryAfter.Std() != time.Second {
		t.Fatalf("runner saw %+v %+v %+v", h.cancels, h.statuses, h.drains)
	}
}

func TestAskWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	came, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	b.c.onAsk = func(ctx context.Context, q Ask) (Answer, error) {
		if q.ID == "never" {
			came <- struct{}{}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrWithdrawn) {
				t.Errorf("the handler is told %v", context.Cause(ctx))
			}
			gone <- struct{}{}
			return Answer{}, ctx.Err()
		}
		return Answer{Approved: true, Comment: q.Question}, nil
	}
	s := b.dial(b.config(&runner{}))
	a, err := s.Ask(t.Context(), Ask{AttemptRef: job("a", 0).AttemptRef, ID: "q1", Question: "delete it?"})
	if err != nil || a.ID != "q1" || !a.Approved || a.Comment != "delete it?" {
		t.Fatalf("ask: %+v, %v", a, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := s.Ask(ctx, Ask{AttemptRef: job("a", 0).AttemptRef, ID: "never"})
		asked <- err
	}()
	next(t, "the question to be asked", came)
	cancel()
	if err := next(t, "the asker", asked); !errors.Is(err, context.Canceled) {
		t.Fatalf("ask: got %v", err)
	}
	next(t, "the handler to be told", gone)
}

func TestChannelCapClosesThatChannelAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.c.onWrite = func(_ context.Context, channel string, offset int64, _ []byte) error {
		if channel == "log" && offset >= 100_000 {
			return &ChannelClosedError{Channel: channel, Code: "cap", Message: "100 kB"}
		}
		return nil
	}
	s := b.dial(b.config(&runner{}))
	w, err := s.OpenEvidence(t.Context(), job("a", 0).AttemptRef)
	noErr(t, "open", err)
	var closed *ChannelClosedError
	err = w.Send(t.Context(), "log", 0, make([]byte, 1<<20))
	if !errors.As(err, &closed) || closed.Code != "cap" {
		t.Fatalf("send over the cap: got %v", err)
	}
	noErr(t, "trace", w.Send(t.Context(), "trace", 0, []byte("{}")))
	if a, err := w.Result(t.Context(), []byte("{}")); err != nil || a.Status != ResultAccepted {
		t.Fatalf("result: %+v, %v", a, err)
	}
	if n := int64(len(b.c.bytes("job_a", "log"))); n < 100_000 || n != w.Acked("log") {
		t.Fatalf("stored %d, acknowledged %d", n, w.Acked("log"))
	}
}

// F25: what is too large is refused before it is sent, and the session lives on.
func TestF25_LimitsAreCheckedBeforeSending(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *AcceptConfig) { c.Timing = DefaultTiming() }) // 20 MB of JSON take their time
	s := b.dial(b.config(&runner{}))
	w, err := s.OpenEvidence(t.Context(), job("a", 0).AttemptRef)
	noErr(t, "open", err)
	checks := map[string]func() error{
		"result":       func() error { _, err := w.Result(t.Context(), make([]byte, MaxResult+1)); return err },
		"channel name": func() error { return w.Send(t.Context(), strings.Repeat("x", MaxChannelName+1), 0, []byte("x")) },
		"text":         func() error { return s.Status(t.Context(), Status{Text: strings.Repeat("x", MaxText+1)}) },
		"request id": func() error {
			_, err := s.Pull(t.Context(), PullRequest{Request: strings.Repeat("x", MaxID+1)})
			return err
		},
		"stream": func() error {
			_, err := b.c.last().Open(t.Context(), StreamOpen{Kind: "exec", Attempt: job("a", 0).AttemptRef,
				Params: json.RawMessage(`"` + strings.Repeat("x", MaxMessage) + `"`)})
			return err
		},
	}
	for name, check := range checks {
		var le *LimitError
		if err := check(); !errors.As(err, &le) || le.Measured <= le.Configured {
			t.Errorf("%s: got %v, want a *LimitError", name, err)
		}
	}
	// A job that no runner can be given goes back with the reason, and the puller hears of it.
	b.c.jobs <- job("huge", MaxJob+1)
	var re *RemoteError
	if _, err := s.Pull(t.Context(), PullRequest{Request: "r"}); !errors.As(err, &re) || re.Code != CodeTooLarge {
		t.Errorf("pull of a huge job: got %v", err)
	}
	var oe *OffsetError
	if err := w.Send(t.Context(), "log", 7, []byte("x")); !errors.As(err, &oe) || oe.Want != 0 {
		t.Errorf("hole: got %v, want an *OffsetError", err)
	}
	noErr(t, "flush", w.Flush(t.Context()))
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if len(b.c.returned) != 1 || b.c.returned[0].Reason != CodeTooLarge {
		t.Errorf("given back: %+v", b.c.returned)
	}
}

func TestServerOpenedStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config(&runner{})
	content := bytes.Repeat([]byte("file "), 200_000)
	cfg.Streams = map[string]StreamHandler{
		KindFile: func(_ context.Context, open StreamOpen, d *Duplex) error {
			var f FileOpen
			if err := json.Unmarshal(open.Params, &f); err != nil || f.Path != "a.txt" {
				return &RemoteError{Code: "not_found", Message: f.Path}
			}
			if err := d.Accept(json.RawMessage(`{"size":1000000}`)); err != nil {
				return err
			}
			if err := d.Write(SubStdout, content); err != nil {
				return err
			}
			return d.CloseSub(SubStdout)
		},
		KindExec: func(ctx context.Context, _ StreamOpen, d *Duplex) error { // cat, with a terminal
			if err := d.Accept(nil); err != nil {
				return err
			}
			rows := 0
			for {
				r, err := d.Recv(ctx)
				switch {
				case err != nil:
					return err
				case r.Resize != nil:
					rows = r.Resize.Rows
				case r.EOF:
					return d.Exit(Exit{Code: rows})
				default:
					if err := d.Write(SubStdout, r.Data); err != nil {
						return err
					}
				}
			}
		},
	}
	b.dial(cfg)
	c, ref := b.c.last(), job("a", 0).AttemptRef

	var re *RemoteError
	if _, err := c.Open(t.Context(), StreamOpen{Kind: KindAttach, Attempt: ref}); !errors.As(err, &re) || re.Code != CodeUnsupported {
		t.Fatalf("attach without a handler: got %v", err)
	}
	if _, err := c.Open(t.Context(), StreamOpen{Kind: KindFile, Attempt: ref, Params: json.RawMessage(`{"path":"b"}`)}); !errors.As(err, &re) || re.Code != "not_found" {
		t.Fatalf("missing file: got %v", err)
	}
	d, err := c.Open(t.Context(), StreamOpen{Kind: KindFile, Attempt: ref, Params: json.RawMessage(`{"path":"a.txt"}`)})
	noErr(t, "open file", err)
	var got []byte
	for {
		r, err := d.Recv(t.Context())
		noErr(t, "receive file", err)
		if r.EOF {
			break
		}
		got = append(got, r.Data...)
	}
	d.Close()
	if string(d.Params()) != `{"size":1000000}` || !bytes.Equal(got, content) {
		t.Fatalf("file: %d bytes with %s", len(got), d.Params())
	}

	d, err = c.Open(t.Context(), StreamOpen{Kind: KindExec, Attempt: ref, Params: json.RawMessage(`{"argv":["cat"]}`)})
	noErr(t, "open exec", err)
	noErr(t, "resize", d.Resize(Resize{Rows: 42, Cols: 80}))
	wrote := make(chan error, 1)
	go func() {
		err := d.Write(SubStdin, content)
		if err == nil {
			err = d.CloseSub(SubStdin)
		}
		wrote <- err
	}()
	got = got[:0]
	for {
		r, err := d.Recv(t.Context())
		noErr(t, "receive exec", err)
		if r.Exit != nil {
			if r.Exit.Code != 42 {
				t.Fatalf("exit: %+v", r.Exit)
			}
			break
		}
		got = append(got, r.Data...)
	}
	noErr(t, "write", <-wrote)
	if !bytes.Equal(got, content) {
		t.Fatalf("echo: %d of %d bytes", len(got), len(content))
	}
	if _, err := d.Recv(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("after the end: %v", err)
	}
	d.Close()
	// A viewer that goes away ends the handler.
	d, err = c.Open(t.Context(), StreamOpen{Kind: KindFile, Attempt: ref, Params: json.RawMessage(`{"path":"a.txt"}`)})
	noErr(t, "open file", err)
	d.Close()
	until(t, "the streams to be gone", func() bool { return c.mux.NumStreams() <= 2 })
}

// TestManySmallWrites sends more pieces of one byte than may wait for Recv: the sender waits, and the stream goes on.
func TestManySmallWrites(t *testing.T) {
	t.Parallel()
	const n = 3000
	b := newBench(t)
	cfg := b.config(&runner{})
	read := make(chan struct{})
	cfg.Streams = map[string]StreamHandler{KindExec: func(ctx context.Context, _ StreamOpen, d *Duplex) error {
		if err := d.Accept(nil); err != nil {
			return err
		}
		<-read
		resized := 0
		for got := 0; ; {
			r, err := d.Recv(ctx)
			switch {
			case err != nil:
				return err
			case r.Resize != nil:
				resized++
			case r.EOF:
				return d.Exit(Exit{Code: got + resized})
			case r.Sub != byte(got%2) || r.Data[0] != byte(got):
				return fmt.Errorf("piece %d is %v of %d", got, r.Data, r.Sub)
			default:
				got++
			}
		}
	}}
	b.dial(cfg)
	d, err := b.c.last().Open(t.Context(), StreamOpen{Kind: KindExec, Attempt: job("a", 0).AttemptRef})
	noErr(t, "open exec", err)
	defer d.Close()
	var wrote atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for i := range n {
			err := d.Write(byte(i%2), []byte{byte(i)})
			if err == nil && i%100 == 0 {
				err = d.Resize(Resize{Rows: i, Cols: 80})
			}
			if err != nil {
				ended <- err
				return
			}
			wrote.Add(1)
		}
		ended <- d.CloseSub(SubStdin)
	}()
	until(t, "the window to be full", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.unread+duplexLeast > duplexWindow || wrote.Load() == n
	})
	if wrote.Load() == n {
		t.Errorf("%d pieces were sent to an end that takes none", n)
	}
	close(read)
	noErr(t, "write", <-ended)
	r, err := d.Recv(t.Context())
	if err != nil || r.Exit == nil || r.Exit.Code != n+n/100 {
		t.Errorf("the other end received %+v, %v; want %d pieces and %d sizes", r.Exit, err, n, n/100)
	}
}

// foreign is a peer that speaks frames by hand.
func foreign(t *testing.T, b *bench) *yamux.Session {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), b.server.URL+Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + string(testToken)}}, Subprotocols: []string{Subprotocol}})
	noErr(t, "dial", err)
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false
	cfg.LogOutput = io.Discard
	mux, err := yamux.Client(websocket.NetConn(context.Background(), ws, websocket.MessageBinary), cfg)
	noErr(t, "yamux", err)
	t.Cleanup(func() { _ = mux.Close() })
	control := raw(t, mux, `{"type":"hello","protocol":1,"from_the_future":{"a":[1]},"slots":1}`)
	if got := reply(t, control); got != "welcome" {
		t.Fatalf("hello: answered with %s", got)
	}
	return mux
}

func raw(t *testing.T, mux *yamux.Session, msg string) io.ReadWriteCloser {
	t.Helper()
	st, err := mux.OpenStream()
	noErr(t, "open", err)
	rawWrite(t, st, msg)
	return st
}

func rawWrite(t *testing.T, w io.Writer, msg string) {
	t.Helper()
	_, err := w.Write(append(appendHeader(nil, kindMessage, len(msg)), msg...))
	noErr(t, "write", err)
}

// reply reads one message and returns its type, with the code of an error.
func reply(t *testing.T, r io.Reader) string {
	t.Helper()
	fr := frameReader{r: r}
	kind, n, err := fr.header()
	if err != nil {
		return err.Error()
	}
	f, err := fr.payload(kind, n)
	noErr(t, "payload", err)
	if re, ok := f.msg.(*RemoteError); ok {
		return "error " + re.Code
	}
	return f.msg.messageType()
}

// What a newer or a broken peer sends: unknown things are skipped where a stream goes on, answered where it begins,
// and malformed ones end that stream alone.
func TestForeignPeers(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *AcceptConfig) { c.Timing = DefaultTiming() }) // it neither beats nor pings
	mux := foreign(t, b)
	for name, row := range map[string]struct{ first, want string }{
		"unknown first message":  {`{"type":"teleport"}`, "error unsupported"},
		"known but not a stream": {`{"type":"cancel","job":"j"}`, "error unsupported"},
		"not JSON":               {`{"type":`, "error protocol"},
		"no type":                {`{}`, "error protocol"},
		"wrong type of field":    {`{"type":"pull","request":7}`, "error protocol"},
		"empty request":          {`{"type":"pull"}`, "error protocol"},
		"negative epoch":         {`{"type":"evidence","run":"r","job":"j","epoch":-1}`, "error protocol"},
		"unknown field":          {`{"type":"status","text":"x","colour":"red"}`, "done"},
	} {
		st := raw(t, mux, row.first)
		if got := reply(t, st); got != row.want {
			t.Errorf("%s: answered with %q, want %q", name, got, row.want)
		}
		_ = st.Close()
	}
	// Inside an evidence stream: unknown messages and kinds are skipped, a hole is an error.
	st := raw(t, mux, `{"type":"evidence","run":"r","job":"j","epoch":1}`)
	if got := reply(t, st); got != "ready" {
		t.Fatalf("evidence: %s", got)
	}
	rawWrite(t, st, `{"type":"checksum","of":"log"}`)
	_, err := st.Write(append(appendHeader(nil, 'Z', 3), "abc"...))
	noErr(t, "write", err)
	_, err = st.Write(appendChunk(nil, "log", 0, []byte("hello")))
	noErr(t, "write", err)
	if got := reply(t, st); got != "ack" {
		t.Fatalf("chunk: %s", got)
	}
	_, err = st.Write(appendChunk(nil, "log", 3, []byte("lo world"))) // overlaps what is stored
	noErr(t, "write", err)
	if got := reply(t, st); got != "ack" {
		t.Fatalf("overlap: %s", got)
	}
	_, err = st.Write(appendChunk(nil, "log", 100, []byte("x")))
	noErr(t, "write", err)
	if got := reply(t, st); got != "error protocol" {
		t.Fatalf("hole: %s", got)
	}
	if got := string(b.c.bytes("j", "log")); got != "hello world" {
		t.Fatalf("stored %q", got)
	}
	if b.c.last().Err() != nil {
		t.Fatalf("the session ended: %v", b.c.last().Err())
	}
}

// Many sessions that end in one moment do not keep the machine busy with that.
func TestF33_ManySessionsEndTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *AcceptConfig) { c.Timing = DefaultTiming() })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	const n = 200
	for i := range n {
		s := b.dial(b.config(&runner{}))
		wg.Go(func() {
			_, _ = s.Pull(ctx, PullRequest{Request: fmt.Sprint(i)})
			s.Close(CloseReason{Code: CloseNormal})
			_ = s.Wait()
		})
	}
	begin := time.Now()
	cancel()
	wg.Wait()
	until(t, "the coordinator to forget them", func() bool { return b.acceptor.Sessions() == 0 })
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("%d sessions took %v to end", n, took)
	}
}
