package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

// session is what both ends have in common: the connection, its end, and its turn for bulk writes.
type session struct {
	timing Timing
	log    *slog.Logger
	ws     *wsConn
	mux    *yamux.Session
	// ctx ends with the session; its cause is the session's error. cancel ends it and interrupts the streams that are read.
	ctx    context.Context
	cancel context.CancelCauseFunc
	read   struct {
		sync.Mutex
		streams map[*stream]struct{}
	}
	// piece is the largest write; bulk is the turn that larger writes than smallWrite take, so that at most one of them
	// lies in yamux's queue before a heartbeat.
	piece int
	bulk  chan struct{}
	pacer *pacer

	gate     sync.Mutex    // orders spawn before the wait for wg, and guards serve and early
	serve    func(*stream) // serves the streams that the peer opens, once the hello is over
	early    int           // streams that the peer opened before that
	wg       sync.WaitGroup
	finished chan struct{} // closed when the session is over and its goroutines are gone
	streams  atomic.Int32  // opened by the peer
}

func newSession(ws *wsConn, timing Timing, log *slog.Logger, piece int) *session {
	s := &session{timing: timing, log: log, ws: ws, piece: piece, bulk: make(chan struct{}, 1), finished: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.ctx, s.cancel = ctx, func(cause error) {
		cancel(cause)
		s.interruptReads()
	}
	s.read.streams = make(map[*stream]struct{})
	ws.failed = func() { s.cancel(ws.cause()) }
	ws.opening = s.opening
	return s
}

// start begins yamux over the connection. Errors are programming errors in its configuration.
func (s *session) start(client bool) (err error) {
	cfg := yamuxConfig(s.timing, s.log)
	s.ws.raw.arm(s.timing.DeadPeer, s.timing.Write)
	if client {
		s.mux, err = yamux.Client(s.ws, cfg)
	} else {
		s.mux, err = yamux.Server(s.ws, cfg)
	}
	return err
}

// Done is closed when the session is over.
func (s *session) Done() <-chan struct{} { return s.ctx.Done() }

// Err is why the session is over, nil while it lives.
func (s *session) Err() error { return context.Cause(s.ctx) }

// Wait returns when the session is over and none of its goroutines is left, with the reason. Handlers that ignore
// their context hold it up.
func (s *session) Wait() error {
	<-s.finished
	return s.Err()
}

// Close ends the session with a reason that the other end sees as a typed error. It takes at most Timing.Close. Only the
// first call counts.
func (s *session) Close(reason CloseReason) {
	s.end(reason.localError(), reason)
}

// end records err as the session's error, says goodbye with reason and lets everything go.
func (s *session) end(err error, reason CloseReason) {
	if s.Err() != nil {
		return
	}
	s.cancel(err)
	s.ws.raw.lastWords(s.timing.Close)
	_ = s.ws.ws.Close(websocket.StatusCode(reason.Code), reason.text())
	s.drop()
}

// drop lets the connection go without a word.
func (s *session) drop() {
	_ = s.mux.Close()
	_ = s.ws.ws.CloseNow()
}

// spawn starts a goroutine of the session on behalf of a caller from outside, and reports false when the session is over.
func (s *session) spawn(f func()) bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.Err() != nil {
		return false
	}
	s.wg.Go(f)
	return true
}

// wait returns when no goroutine of a session that is over is left.
func (s *session) wait() {
	s.gate.Lock()
	s.gate.Unlock() //nolint:staticcheck // a spawn that began before the end has added itself now
	s.wg.Wait()
}

// giveUp ends the session because this end cannot trust it any more.
func (s *session) giveUp(err error) {
	code := CloseTimeout
	var pe *ProtocolError
	if errors.As(err, &pe) {
		code = CloseProtocol
	}
	s.end(err, CloseReason{Code: code, Message: err.Error()})
}

// opening is called when the peer opens a stream.
func (s *session) opening() {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.serve == nil {
		s.early++
		return
	}
	s.accept()
}

// serveStreams begins to serve the streams that the peer opens, each in a goroutine of its own. accepted of them were
// taken before. When the session is over and the last of them has been served, over is called.
func (s *session) serveStreams(serve func(*stream), accepted int, over func()) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.serve = serve
	for range s.early - accepted {
		s.accept()
	}
	context.AfterFunc(s.ctx, func() {
		<-s.mux.CloseChan() // the goodbye is said by then
		s.drop()
		s.wait()
		over()
		close(s.finished)
	})
}

// accept starts the goroutine of one stream that the peer opens. The caller holds gate.
func (s *session) accept() {
	if s.Err() != nil {
		return
	}
	s.wg.Add(1)
	go func() {
		st := s.accepted()
		if st == nil {
			s.wg.Done()
			return
		}
		s.serve(st)
		if !st.kept {
			s.release(st)
		}
	}()
}

// accepted is the next stream that the peer opened; nil if the session is over, or is ended because of it.
func (s *session) accepted() *stream {
	if s.streams.Add(1) > MaxStreams {
		s.giveUp(&ProtocolError{Op: "accept stream", Err: &LimitError{Limit: "streams", Configured: MaxStreams, Measured: MaxStreams + 1}})
		return nil
	}
	y, err := s.mux.AcceptStream()
	if err == nil {
		return s.wrap(y)
	}
	if !s.mux.IsClosed() {
		// The acknowledgement of the stream could not be written in time: the connection is as good as dead.
		s.giveUp(&TimeoutError{Op: "accept stream", After: s.timing.Write})
	}
	return nil
}

// release ends a stream that the peer opened.
func (s *session) release(st *stream) {
	st.close()
	s.streams.Add(-1)
	s.wg.Done()
}

// open opens a stream and sends its first message.
func (s *session) open(first message) (*stream, error) {
	b, err := appendMessage(nil, first)
	if err != nil {
		return nil, err
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	y, err := s.mux.OpenStream()
	if err != nil {
		return nil, s.explain("open "+first.messageType(), err)
	}
	st := s.wrap(y)
	if err := st.write(b); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// explain turns yamux's errors into ours.
func (s *session) explain(op string, err error) error {
	if s.mux.IsClosed() {
		s.cancel(s.ws.cause()) // unless a reason is already known
	}
	if err := s.Err(); err != nil {
		return err
	}
	switch {
	case errors.Is(err, yamux.ErrConnectionWriteTimeout):
		// yamux may still send what timed out, so the stream's bytes are not known any more.
		err := &TimeoutError{Op: op, After: s.timing.Write}
		s.giveUp(err)
		return err
	case errors.Is(err, yamux.ErrTimeout):
		return &TimeoutError{Op: op}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, yamux.ErrConnectionReset), errors.Is(err, yamux.ErrStreamClosed):
		return fmt.Errorf("link: %s: stream ended: %w", op, err)
	default:
		return fmt.Errorf("link: %s: %w", op, err)
	}
}

// stream is one yamux stream with frames in both directions. One goroutine reads; any may write.
type stream struct {
	s  *session
	y  *yamux.Stream
	fr frameReader
	wm sync.Mutex
	// cut is set when the stream was interrupted: from then on every deadline lies in the past.
	cut atomic.Bool
	// kept says that serve has returned and something else will release the stream.
	kept bool
}

func (s *session) wrap(y *yamux.Stream) *stream {
	st := &stream{s: s, y: y}
	st.fr.r = y
	st.reading(true)
	return st
}

// reading says whether somebody may read the stream, and is to be interrupted when the session ends.
//
// yamux lets a Read that waits spin from the moment its session ends until its stream is closed. A thousand sessions that
// end together would be busy with that for many seconds; so each Read is told to give up before yamux learns of the end.
func (st *stream) reading(yes bool) {
	s := st.s
	s.read.Lock()
	defer s.read.Unlock()
	if !yes {
		delete(s.read.streams, st)
		return
	}
	s.read.streams[st] = struct{}{}
	if s.Err() != nil {
		st.giveUp()
	}
}

// interruptReads ends what waits in a Read, on the goroutine that ends the session.
func (s *session) interruptReads() {
	s.read.Lock()
	defer s.read.Unlock()
	for st := range s.read.streams {
		st.giveUp()
	}
}

// close ends our direction. The peer's handler sees the end of the stream and ends its own.
func (st *stream) close() {
	st.reading(false)
	_ = st.y.Close()
}

// read waits until deadline (the zero time: for ever) for a frame to begin, then reads it.
func (st *stream) read(deadline time.Time) (frame, error) {
	st.setReadDeadline(deadline)
	return st.readArmed()
}

// readArmed is read with whatever deadline the stream has.
func (st *stream) readArmed() (frame, error) {
	kind, n, err := st.fr.header()
	if err != nil {
		return frame{}, st.readError(err)
	}
	st.setReadDeadline(st.s.in(st.s.timing.Reply + time.Duration(n)*time.Second/slowLink))
	f, err := st.fr.payload(kind, n)
	if err != nil {
		return frame{}, st.readError(err)
	}
	return f, nil
}

// slowLink is the slowest connection that is waited for, in bytes per second.
const slowLink = 4 << 10

// errStreamEnd: the peer ended the stream between two frames.
var errStreamEnd = errors.New("link: end of stream")

func (st *stream) readError(err error) error {
	var pe *ProtocolError
	if errors.As(err, &pe) {
		return err
	}
	if errors.Is(err, io.EOF) && !st.s.mux.IsClosed() && st.s.Err() == nil {
		return errStreamEnd
	}
	return st.s.explain("read", err)
}

// message reads frames until one holds a message that this build knows.
func (st *stream) message(deadline time.Time) (message, error) {
	for {
		f, err := st.read(deadline)
		if err != nil {
			return nil, err
		}
		if f.kind != kindMessage {
			if _, ok := f.msg.(*unknown); ok {
				continue
			}
			return nil, &ProtocolError{Op: "read", Err: fmt.Errorf("frame of kind %q where a message was expected", f.kind)}
		}
		if _, ok := f.msg.(*unknown); ok {
			continue
		}
		if re, ok := f.msg.(*RemoteError); ok {
			return nil, re
		}
		return f.msg, nil
	}
}

// first reads the message that a stream begins with. Here alone an unknown message is an error.
func (st *stream) first() (message, error) {
	f, err := st.read(st.s.in(st.s.timing.Reply))
	if err != nil {
		return nil, err
	}
	switch m := f.msg.(type) {
	case nil:
		return nil, &ProtocolError{Op: "open", Err: fmt.Errorf("stream begins with a frame of kind %q", f.kind)}
	case *unknown, *RemoteError:
		return nil, notServed(m)
	default:
		return m, nil
	}
}

func notServed(m message) error {
	return &RemoteError{Code: CodeUnsupported, Message: fmt.Sprintf("no stream begins with %.100q", m.messageType())}
}

// document reads n bytes that follow in data frames.
func (st *stream) document(n int64) ([]byte, error) {
	b := make([]byte, 0, min(n, MaxData))
	for int64(len(b)) < n {
		f, err := st.read(st.s.in(st.s.timing.Reply))
		if err != nil {
			return nil, err
		}
		if f.kind != kindData || len(f.data) == 0 || int64(len(b)+len(f.data)) > n {
			return nil, &ProtocolError{Op: "read document", Err: fmt.Errorf("frame of kind %q with %d bytes at %d of %d", f.kind, len(f.data), len(b), n)}
		}
		b = append(b, f.data...)
	}
	return b, nil
}

// in returns the time d from now.
func (s *session) in(d time.Duration) time.Time { return time.Now().Add(d) }

// send writes one message.
func (st *stream) send(m message) error {
	b, err := appendMessage(nil, m)
	if err != nil {
		return err
	}
	return st.write(b)
}

// sendDocument writes a message and, in data frames, the document that it announces.
func (st *stream) sendDocument(m message, doc []byte) error {
	b, err := appendMessage(nil, m)
	if err != nil {
		return err
	}
	st.wm.Lock()
	defer st.wm.Unlock()
	for first := true; first || len(doc) > 0; first = false {
		n := min(len(doc), 4*st.s.piece)
		if n > 0 {
			b = append(appendHeader(b, kindData, n), doc[:n]...)
			doc = doc[n:]
		}
		if err := st.writeLocked(b); err != nil {
			return err
		}
		b = b[:0]
	}
	return nil
}

// write writes whole frames.
func (st *stream) write(b []byte) error {
	st.wm.Lock()
	defer st.wm.Unlock()
	return st.writeLocked(b)
}

// writeLocked writes b in pieces. A large piece waits for the session's bulk turn, a small one goes straight to yamux.
func (st *stream) writeLocked(b []byte) error {
	s := st.s
	for len(b) > 0 {
		p := b[:min(len(b), s.piece)]
		b = b[len(p):]
		if err := st.writePiece(p); err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) writePiece(p []byte) error {
	s := st.s
	if len(p) > smallWrite {
		select {
		case s.bulk <- struct{}{}:
			defer func() { <-s.bulk }()
		case <-s.ctx.Done():
			return s.Err()
		}
	}
	st.setWriteDeadline(s.in(s.timing.Write))
	if _, err := st.y.Write(p); err != nil {
		return s.explain("write", err)
	}
	return nil
}

// fail answers the peer with an error, as far as the stream still can.
func (st *stream) fail(err error) {
	var re *RemoteError
	if !errors.As(err, &re) {
		re = &RemoteError{Code: CodeInternal, Message: "internal error"}
		var pe *ProtocolError
		if errors.As(err, &pe) {
			re = &RemoteError{Code: CodeProtocol, Message: pe.Err.Error()}
		} else {
			st.s.log.Error("handler failed", "error", err)
		}
	}
	if len(re.Message) > MaxText {
		re = &RemoteError{Code: re.Code, Message: re.Message[:MaxText], RetryAfter: re.RetryAfter}
	}
	_ = st.send(re)
}

// interrupt makes whatever waits on st, now or later, fail when ctx ends. The returned function undoes it, and reports
// false when it is too late.
func (st *stream) interrupt(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, st.giveUp)
}

// giveUp makes whatever waits on st, now or later, fail.
func (st *stream) giveUp() {
	st.cut.Store(true)
	_ = st.y.SetReadDeadline(past)
	_ = st.y.SetWriteDeadline(past)
}

var past = time.Unix(1, 0)

// setReadDeadline sets first and looks afterwards, so that an interrupt that comes between is not overwritten.
func (st *stream) setReadDeadline(t time.Time) {
	_ = st.y.SetReadDeadline(t)
	if st.cut.Load() {
		_ = st.y.SetReadDeadline(past)
	}
}

func (st *stream) setWriteDeadline(t time.Time) {
	_ = st.y.SetWriteDeadline(t)
	if st.cut.Load() {
		_ = st.y.SetWriteDeadline(past)
	}
}
