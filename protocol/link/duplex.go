package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// StreamHandler serves one stream that the coordinator opened: a file view, a command in a running sandbox. It must
// call d.Accept, or return an error that the coordinator gets instead of the stream: a *RemoteError as it is, others as
// "internal". ctx ends with the session or when the coordinator closes the stream. The stream is closed when it returns.
type StreamHandler func(ctx context.Context, open StreamOpen, d *Duplex) error

// Sub-streams of an exec.
const (
	SubStdin  byte = 0
	SubStdout byte = 1
	SubStderr byte = 2
)

const (
	// duplexWindow bounds what one end of a Duplex has sent and the other's Recv has not yet taken.
	duplexWindow = 64 << 10
	// duplexLeast is what a frame takes of the window at least, so that the window bounds the frames that wait, too.
	duplexLeast = 64
)

// room is what the frame takes of the window at either end.
func (r *Received) room() int { return max(len(r.Data), duplexLeast) }

// Received is what Recv returns: exactly one of Data (with Sub), EOF (of Sub), Resize and Exit.
type Received struct {
	Sub    byte
	Data   []byte
	EOF    bool
	Resize *Resize
	Exit   *Exit
}

// Duplex is a stream into a running attempt. Bytes travel in numbered sub-streams with flow control: Write, CloseSub, Resize
// and Exit wait while the other end does not Recv. They may be called concurrently, Recv by one goroutine.
type Duplex struct {
	st     *stream
	params json.RawMessage

	ctx    context.Context // ends with the stream
	cancel context.CancelCauseFunc
	done   chan struct{} // the reader is gone

	mu       sync.Mutex
	accepted bool
	unread   int // of the window: sent and not consumed by the peer
	room     chan struct{}
	queue    []Received
	queued   int // of the window: in queue
	arrived  chan struct{}
	taken    int // of the window: Recv handed it out and the peer does not know
	err      error
}

func newDuplex(st *stream) *Duplex {
	d := &Duplex{st: st, done: make(chan struct{}), room: make(chan struct{}, 1), arrived: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancelCause(st.s.ctx)
	return d
}

// Open opens a stream into a running attempt and waits until the runner has accepted it. The caller must Close it. A
// runner that has no handler for the kind answers with a *RemoteError of CodeUnsupported.
func (c *CoordinatorSession) Open(ctx context.Context, open StreamOpen) (*Duplex, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, err := c.open(&open)
	if err != nil {
		return nil, err
	}
	stop := st.interrupt(ctx)
	m, err := st.message(c.in(c.timing.Reply))
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		st.close()
		if errors.Is(err, errStreamEnd) {
			err = fmt.Errorf("link: open %s: stream ended without an answer", open.Kind)
		}
		return nil, err
	}
	o, ok := m.(*opened)
	if !ok {
		st.close()
		return nil, &ProtocolError{Op: "open " + open.Kind, Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	d := newDuplex(st)
	d.params, d.accepted = o.Params, true
	if !c.spawn(d.read) {
		st.close()
		return nil, c.Err()
	}
	return d, nil
}

// serveStream serves one stream that the coordinator opened.
func (r *RunnerSession) serveStream(st *stream) {
	m, err := st.first()
	if err != nil {
		if !errors.Is(err, errStreamEnd) && r.Err() == nil {
			st.fail(err)
		}
		return
	}
	open, ok := m.(*StreamOpen)
	if !ok {
		st.fail(notServed(m))
		return
	}
	serve := r.serve[open.Kind]
	if serve == nil {
		st.fail(&RemoteError{Code: CodeUnsupported, Message: fmt.Sprintf("this runner does not serve %q streams", open.Kind)})
		return
	}
	d := newDuplex(st)
	if !r.spawn(d.read) {
		return
	}
	if err := serve(d.ctx, *open, d); err != nil && d.ctx.Err() == nil {
		st.fail(err)
	}
	d.Close()
}

// Params are what the runner said when it accepted.
func (d *Duplex) Params() json.RawMessage { return d.params }

// Accept says that the stream is served, with params for the opener.
func (d *Duplex) Accept(params json.RawMessage) error {
	d.mu.Lock()
	was := d.accepted
	d.accepted = true
	d.mu.Unlock()
	if was {
		return errors.New("link: stream already accepted")
	}
	return d.st.send(&opened{Params: params})
}

// Write sends p on a sub-stream and waits while the other end has not taken what was sent before.
func (d *Duplex) Write(sub byte, p []byte) error {
	var buf []byte
	for len(p) > 0 {
		r := Received{Sub: sub, Data: p[:min(len(p), runnerWrite-frameHeader-1)]}
		if err := d.reserve(&r); err != nil {
			return err
		}
		buf = append(appendHeader(buf[:0], kindSub, 1+len(r.Data)), sub)
		if err := d.st.write(append(buf, r.Data...)); err != nil {
			return err
		}
		p = p[len(r.Data):]
	}
	return nil
}

// reserve waits until the window has room for what the other end is to receive.
func (d *Duplex) reserve(r *Received) error {
	for {
		d.mu.Lock()
		if !d.accepted {
			d.mu.Unlock()
			return errors.New("link: write before accept")
		}
		fits := d.unread+r.room() <= duplexWindow
		if fits {
			d.unread += r.room()
		}
		d.mu.Unlock()
		if fits {
			signal(d.room) // there may be room for another writer
			return nil
		}
		select {
		case <-d.room:
		case <-d.ctx.Done():
			return d.Err()
		}
	}
}

// send is for what takes the least of the window.
func (d *Duplex) send(m message) error {
	if err := d.reserve(&Received{}); err != nil {
		return err
	}
	return d.st.send(m)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// CloseSub says that no more bytes of a sub-stream follow.
func (d *Duplex) CloseSub(sub byte) error { return d.send(&eof{Channel: sub}) }

// Resize changes the terminal's size.
func (d *Duplex) Resize(r Resize) error { return d.send(&r) }

// Exit says how the command ended. It is the last thing a runner sends.
func (d *Duplex) Exit(e Exit) error { return d.send(&e) }

// Recv waits for what the other end sends. Data belongs to the caller. After the other end closed the stream and all was
// received it returns io.EOF's meaning as ErrClosed; a handler's error on the other end is a *RemoteError.
func (d *Duplex) Recv(ctx context.Context) (Received, error) {
	for {
		d.mu.Lock()
		if len(d.queue) > 0 {
			r := d.queue[0]
			d.queue[0] = Received{}
			d.queue = d.queue[1:]
			d.queued -= r.room()
			d.taken += r.room()
			tell := 0
			if d.taken >= duplexWindow/4 {
				tell, d.taken = d.taken, 0
			}
			d.mu.Unlock()
			if tell > 0 {
				_ = d.st.send(&consumed{Bytes: int64(tell)}) // a failure ends the stream, which the next Recv tells
			}
			return r, nil
		}
		err := d.err
		d.mu.Unlock()
		if err != nil {
			return Received{}, err
		}
		select {
		case <-d.arrived:
		case <-d.done:
		case <-ctx.Done():
			return Received{}, ctx.Err()
		}
	}
}

// Err is why the stream ended, nil while it is open.
func (d *Duplex) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close ends the stream. What the other end had not received of it may be lost only if the session ends as well.
func (d *Duplex) Close() {
	d.finish(ErrClosed)
	d.st.close()
	d.st.cut.Store(true)
	d.st.setReadDeadline(past)
	d.st.setWriteDeadline(past)
	<-d.done
}

func (d *Duplex) finish(err error) {
	d.mu.Lock()
	if d.err == nil {
		d.err = err
	}
	err = d.err
	d.mu.Unlock()
	d.cancel(err)
}

// read owns the reading side of the stream: it books what the peer consumed and queues the rest.
func (d *Duplex) read() {
	defer close(d.done)
	for {
		f, err := d.st.read(time.Time{})
		if errors.Is(err, errStreamEnd) {
			err = ErrClosed
		}
		if err == nil {
			err = d.take(f)
		}
		if err != nil {
			d.finish(err)
			return
		}
	}
}

func (d *Duplex) take(f frame) error {
	var r Received
	switch m := f.msg.(type) {
	case nil:
		if f.kind != kindSub {
			return &ProtocolError{Op: "stream", Err: fmt.Errorf("unexpected frame of kind %q", f.kind)}
		}
		r = Received{Sub: f.sub, Data: append([]byte(nil), f.data...)}
	case *consumed:
		d.mu.Lock()
		d.unread = max(0, d.unread-int(min(m.Bytes, duplexWindow)))
		d.mu.Unlock()
		signal(d.room)
		return nil
	case *eof:
		r = Received{Sub: m.Channel, EOF: true}
	case *Resize:
		r = Received{Resize: m}
	case *Exit:
		r = Received{Exit: m}
	case *RemoteError:
		return m
	default:
		return nil // a later message
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queued+r.room() > duplexWindow {
		return &ProtocolError{Op: "stream", Err: errors.New("the other end ignores flow control")}
	}
	d.queue = append(d.queue, r)
	d.queued += r.room()
	signal(d.arrived)
	return nil
}
