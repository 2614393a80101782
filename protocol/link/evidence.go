package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// evidenceChunk is the most that one chunk carries: small, so that what lies before a heartbeat is small.
	evidenceChunk = runnerWrite - frameHeader - chunkHeader - MaxChannelName
	// streamInFlight bounds the unacknowledged bytes of one evidence stream below yamux's window, so that a slow
	// coordinator's disk stops this stream in acquire and never inside yamux with the bulk turn in its hands.
	streamInFlight = yamuxWindow / 2
)

// EvidenceWriter sends the evidence of one attempt and then its result. Send may be called concurrently for different
// channels. When it fails, open a new one and go on from Resume: nothing that was not acknowledged counts as stored.
type EvidenceWriter struct {
	s        *session
	st       *stream
	standing Standing
	resume   map[string]int64

	done chan struct{} // closed when the reader of acknowledgements is gone; err is set then

	mu       sync.Mutex
	err      error
	channels map[string]*outChannel
	unacked  int // bytes, over all channels
	changed  chan struct{}
	verdict  *ResultAck
	sent     bool // the result is on its way
}

// outChannel is the sending side of one channel.
type outChannel struct {
	mu     sync.Mutex // held while a chunk is written, which keeps offsets in order
	next   int64
	acked  int64
	closed *ChannelClosedError
	flight []inFlight
}

// inFlight is a chunk that is not acknowledged yet.
type inFlight struct {
	end  int64
	n    int
	sent time.Time
}

// OpenEvidence opens the evidence stream of an attempt. It waits for the coordinator to say what it has already.
func (r *RunnerSession) OpenEvidence(ctx context.Context, ref AttemptRef) (*EvidenceWriter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, err := r.open(&EvidenceOpen{AttemptRef: ref})
	if err != nil {
		return nil, err
	}
	stop := st.interrupt(ctx)
	m, err := st.answer(ctx, "evidence", r.timing.Reply)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		st.close()
		return nil, err
	}
	ready, ok := m.(*EvidenceReady)
	if !ok {
		st.close()
		return nil, &ProtocolError{Op: "evidence", Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	w := &EvidenceWriter{
		s: r.session, st: st, standing: ready.Standing, resume: ready.Offsets,
		done: make(chan struct{}), channels: map[string]*outChannel{}, changed: make(chan struct{}),
	}
	for name, off := range ready.Offsets {
		w.channels[name] = &outChannel{next: off, acked: off}
	}
	st.setReadDeadline(time.Time{})
	if !r.spawn(w.readAcks) {
		st.close()
		return nil, r.Err()
	}
	return w, nil
}

// Standing is the attempt's standing when the stream was opened. Evidence of a stale attempt is taken as late evidence.
func (w *EvidenceWriter) Standing() Standing { return w.standing }

// Resume is the offset from which to send a channel: what the coordinator had stored when the stream was opened.
func (w *EvidenceWriter) Resume(channel string) int64 { return w.resume[channel] }

// Acked is the number of bytes of a channel that the coordinator has stored. What lies before it may be forgotten.
func (w *EvidenceWriter) Acked(channel string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.channels[channel]; c != nil {
		return c.acked
	}
	return 0
}

// Done is closed when the stream has ended; Err then says why.
func (w *EvidenceWriter) Done() <-chan struct{} { return w.done }

// Err is why the stream ended, nil while it is open and after a result was answered.
func (w *EvidenceWriter) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the stream. What was sent and not acknowledged may or may not be stored; the next OpenEvidence tells.
func (w *EvidenceWriter) Close() {
	w.finish(fmt.Errorf("link: evidence: %w", ErrClosed))
	w.st.cut.Store(true)
	w.st.setReadDeadline(past)
	w.st.setWriteDeadline(past)
	w.st.close()
	<-w.done
}

// finish records why the stream ended; the first reason counts.
func (w *EvidenceWriter) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.verdict == nil {
		w.err = err
	}
	w.wake()
}

// wake tells everybody who waits for an acknowledgement to look again. Needs mu.
func (w *EvidenceWriter) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// channel returns a channel's state, making it on first use.
func (w *EvidenceWriter) channel(name string) (*outChannel, error) {
	if err := checkChannel(name); err != nil {
		return nil, fmt.Errorf("link: evidence: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	c := w.channels[name]
	if c == nil {
		if len(w.channels) >= MaxChannels {
			return nil, &LimitError{Limit: "channels", Configured: MaxChannels, Measured: int64(len(w.channels) + 1)}
		}
		c = &outChannel{}
		w.channels[name] = c
	}
	return c, nil
}

// Send sends bytes of a channel. offset must be where the last Send (or Resume) ended. It returns when the bytes are on
// their way, not when they are stored; it waits while too much is unacknowledged. A *ChannelClosedError means that the
// coordinator wants no more of this channel; another error that the stream is over.
func (w *EvidenceWriter) Send(ctx context.Context, channel string, offset int64, p []byte) error {
	c, err := w.channel(channel)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset != c.next {
		return &OffsetError{Channel: channel, Got: offset, Want: c.next}
	}
	var buf []byte
	for len(p) > 0 {
		n := min(len(p), evidenceChunk)
		if err := w.reserve(ctx, c, n); err != nil {
			return err
		}
		buf = appendChunk(buf[:0], channel, c.next, p[:n])
		if err := w.st.write(buf); err != nil {
			w.finish(err)
			return err
		}
		c.next += int64(n)
		p = p[n:]
	}
	return nil
}

// reserve waits for room for the channel's next n bytes and notes them as in flight. Needs c.mu.
func (w *EvidenceWriter) reserve(ctx context.Context, c *outChannel, n int) error {
	end := c.next + int64(n)
	for {
		w.mu.Lock()
		switch {
		case w.err != nil:
			defer w.mu.Unlock()
			return w.err
		case w.sent:
			defer w.mu.Unlock()
			return errors.New("link: evidence: the result has been sent")
		case c.closed != nil:
			defer w.mu.Unlock()
			return c.closed
		}
		if w.unacked == 0 || w.unacked+n <= streamInFlight {
			w.mu.Unlock()
			break
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !w.s.pacer.acquire(ctx, n, w.done) {
		n = 0 // nothing to give back
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || isDone(w.done) {
		w.s.pacer.forget(n)
		if w.err != nil {
			return w.err
		}
		return fmt.Errorf("link: evidence: %w", ErrClosed)
	}
	c.flight = append(c.flight, inFlight{end: end, n: n, sent: time.Now()})
	w.unacked += n
	if w.unacked == n {
		w.st.setReadDeadline(w.s.in(w.s.timing.Ack))
	}
	return nil
}

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// readAcks is the goroutine that owns the stream's reading side.
func (w *EvidenceWriter) readAcks() {
	defer func() {
		w.mu.Lock()
		n := w.unacked
		w.unacked = 0
		for _, c := range w.channels {
			c.flight = nil
		}
		w.wake()
		close(w.done)
		w.mu.Unlock()
		w.s.pacer.forget(n)
		w.st.close()
	}()
	for {
		f, err := w.st.readArmed()
		if err != nil {
			var te *TimeoutError
			switch {
			case errors.As(err, &te):
				err = &TimeoutError{Op: "evidence: acknowledgement", After: w.s.timing.Ack}
			case errors.Is(err, errStreamEnd):
				err = errors.New("link: evidence: stream ended by the coordinator")
			}
			w.finish(err)
			return
		}
		switch m := f.msg.(type) {
		case *ack:
			w.take(m)
		case *ResultAck:
			w.mu.Lock()
			w.verdict = m
			w.wake()
			w.mu.Unlock()
			return
		case *RemoteError:
			w.finish(m)
			return
		case *unknown:
		default:
			w.finish(&ProtocolError{Op: "evidence", Err: fmt.Errorf("unexpected frame of kind %q", f.kind)})
			return
		}
		w.rearm()
	}
}

// rearm sets the deadline of the next acknowledgement: none while nothing waits for one.
func (w *EvidenceWriter) rearm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unacked > 0 || w.sent {
		w.st.setReadDeadline(w.s.in(w.s.timing.Ack))
	} else {
		w.st.setReadDeadline(time.Time{})
	}
}

// take books an acknowledgement.
func (w *EvidenceWriter) take(m *ack) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channels[m.Channel]
	if c == nil {
		return
	}
	if m.Closed != "" {
		c.closed = &ChannelClosedError{Channel: m.Channel, Code: m.Closed, Message: m.Message}
		for _, f := range c.flight {
			w.unacked -= f.n
			w.s.pacer.acked(f.n, now.Sub(f.sent))
		}
		c.flight = nil
	}
	c.acked = max(c.acked, m.Offset)
	for len(c.flight) > 0 && c.flight[0].end <= m.Offset {
		f := c.flight[0]
		c.flight = c.flight[1:]
		w.unacked -= f.n
		w.s.pacer.acked(f.n, now.Sub(f.sent))
	}
	w.wake()
}

// Flush waits until everything that was sent is acknowledged. Channels that the coordinator closed do not count.
func (w *EvidenceWriter) Flush(ctx context.Context) error {
	for {
		w.mu.Lock()
		err, unacked, changed := w.err, w.unacked, w.changed
		w.mu.Unlock()
		switch {
		case err != nil:
			return err
		case unacked == 0:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Result waits until all evidence is acknowledged, sends the result and waits for the coordinator's verdict on it. Each
// verdict ends the matter. An error means that the verdict is not known: send the same result again, on a new stream.
// The stream is over afterwards.
func (w *EvidenceWriter) Result(ctx context.Context, doc json.RawMessage) (ResultAck, error) {
	if len(doc) > MaxResult {
		return ResultAck{}, &LimitError{Limit: "result", Configured: MaxResult, Measured: int64(len(doc))}
	}
	if err := w.Flush(ctx); err != nil {
		return ResultAck{}, err
	}
	w.mu.Lock()
	if w.err != nil || w.sent {
		defer w.mu.Unlock()
		if w.err != nil {
			return ResultAck{}, w.err
		}
		return ResultAck{}, errors.New("link: evidence: the result has been sent")
	}
	w.sent = true
	w.mu.Unlock()

	stop := w.st.interrupt(ctx)
	defer stop()
	if err := w.st.sendDocument(&result{Bytes: int64(len(doc))}, doc); err != nil {
		w.finish(err)
		if ctx.Err() != nil {
			return ResultAck{}, ctx.Err()
		}
		return ResultAck{}, err
	}
	w.rearm()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.verdict != nil:
		return *w.verdict, nil
	case ctx.Err() != nil:
		return ResultAck{}, ctx.Err()
	default:
		return ResultAck{}, w.err
	}
}

// Offsets returns the acknowledged bytes per channel, as a hello wants them.
func (w *EvidenceWriter) Offsets() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := maps.Clone(w.resume)
	if m == nil {
		m = map[string]int64{}
	}
	for name, c := range w.channels {
		m[name] = c.acked
	}
	return m
}
