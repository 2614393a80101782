package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// serveStream serves one stream that the runner opened.
func (c *CoordinatorSession) serveStream(st *stream) {
	m, err := st.first()
	if err != nil {
		if !errors.Is(err, errStreamEnd) && c.Err() == nil {
			st.fail(err)
		}
		return
	}
	switch m := m.(type) {
	case *PullRequest:
		c.servePull(st, m)
	case *EvidenceOpen:
		c.serveEvidence(st, m)
	case *giveBack:
		s, err := c.handler.GiveBack(c.ctx, c, m.AttemptRef, m.GiveBack)
		st.stand(s, err)
	case *Ask:
		c.serveAsk(st, m)
	case *Heartbeat:
		c.serveBeat(st, m)
	case *withdraw:
		c.endPull(m.Request)
		_ = st.send(&done{})
	case *Status:
		c.handler.Status(c.ctx, c, *m)
		_ = st.send(&done{})
	case *Drain:
		c.handler.Drain(c.ctx, c, *m)
		_ = st.send(&done{})
	default:
		st.fail(notServed(m))
	}
}

// stand answers with a standing or an error.
func (st *stream) stand(s Standing, err error) {
	if err != nil {
		st.fail(err)
		return
	}
	_ = st.send(&standing{Standing: s})
}

// ErrWithdrawn is why the context of Handler.Ask ends when nobody waits for the answer any more, and the runner is there
// to say so.
var ErrWithdrawn = errors.New("link: the question was withdrawn")

func (c *CoordinatorSession) serveAsk(st *stream, q *Ask) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	// The runner ends the stream when who asked is gone.
	c.wg.Go(func() {
		_, err := st.read(time.Time{})
		if errors.Is(err, errStreamEnd) {
			err = ErrWithdrawn
		}
		cancel(err)
	})
	defer func() {
		st.cut.Store(true)
		st.setReadDeadline(past)
	}()
	a, err := c.handler.Ask(ctx, c, *q)
	if err != nil {
		st.fail(err)
		return
	}
	a.ID = q.ID
	_ = st.send(&a)
}

// servePull hands a pull to the handler. While it waits it has neither a goroutine nor a reader: a withdrawal comes on a
// stream of its own, and the end of the session ends ctx.
func (c *CoordinatorSession) servePull(st *stream, req *PullRequest) {
	p := &servedPull{st: st, request: req.Request}
	p.ctx, p.cancel = context.WithCancelCause(c.ctx)
	c.mu.Lock()
	spent := slices.Index(c.spent, req.Request)
	old := c.pulls[req.Request]
	full := old == nil && len(c.pulls) >= MaxLeases
	switch {
	case spent >= 0:
		c.spent = slices.Delete(c.spent, spent, spent+1)
	case full:
	default:
		if old != nil {
			old.cancel(errAgain)
		}
		c.pulls[req.Request] = p
	}
	c.mu.Unlock()
	if spent >= 0 || full {
		p.cancel(nil)
		if full {
			st.fail(&RemoteError{Code: CodeTooLarge, Message: fmt.Sprintf("more than %d waiting pulls", MaxLeases)})
		}
		return
	}
	st.fr.buf = nil
	st.y.Shrink()
	st.reading(false) // until there is an answer
	st.kept = true
	c.handler.Pull(p.ctx, c, *req, func(a *Attempt, err error) {
		c.answerPull(p, a, err)
		c.mu.Lock()
		if c.pulls[p.request] == p {
			delete(c.pulls, p.request)
		}
		c.mu.Unlock()
		p.cancel(nil)
		c.release(st)
	})
}

// answerPull brings the handler's answer to the runner and sees an attempt through to its acknowledgement.
func (c *CoordinatorSession) answerPull(p *servedPull, a *Attempt, err error) {
	st := p.st
	st.reading(true)
	switch cause := context.Cause(p.ctx); {
	case a != nil && err == nil && cause == errWithdrawn:
		c.takeBack(a, "withdrawn")
		return
	case cause == errAgain:
		st.fail(&RemoteError{Code: CodeReplaced, Message: "asked again on a newer stream"})
		return
	case cause == errWithdrawn:
		return
	case err != nil:
		var re *RemoteError
		if errors.As(cause, &re) { // a drain
			err = re
		}
		if c.Err() == nil {
			st.fail(err)
		}
		return
	case a == nil:
		st.fail(errors.New("link: handler answered with neither an attempt nor an error"))
		return
	}
	if err := st.sendDocument(&offer{Attempt: *a, JobBytes: int64(len(a.Payload))}, a.Payload); err != nil {
		var le *LimitError
		if errors.As(err, &le) {
			// The runner cannot be given this job, now or ever; another pull must not meet it again unseen.
			c.takeBack(a, CodeTooLarge)
			st.fail(&RemoteError{Code: CodeTooLarge, Message: le.Error()})
		}
		return // otherwise the runner asks again with the same id
	}
	m, err := st.message(c.in(c.timing.StartAck))
	if err != nil {
		c.mu.Lock()
		withdrawn := p.withdrawn
		c.mu.Unlock()
		if withdrawn && c.Err() == nil {
			c.takeBack(a, "withdrawn")
		}
		return // no acknowledgement: the lease's start timer decides
	}
	switch m := m.(type) {
	case *started:
		s, err := c.handler.Started(c.ctx, c, a.AttemptRef)
		st.stand(s, err)
	case *GiveBack:
		s, err := c.handler.GiveBack(c.ctx, c, a.AttemptRef, *m)
		st.stand(s, err)
	default:
		st.fail(&ProtocolError{Op: "pull", Err: fmt.Errorf("unexpected message %s", m.messageType())})
	}
}

// takeBack returns an attempt that did not reach the runner.
func (c *CoordinatorSession) takeBack(a *Attempt, reason string) {
	if _, err := c.handler.GiveBack(c.ctx, c, a.AttemptRef, GiveBack{Reason: reason}); err != nil {
		c.log.Warn("give back", "run", a.Run, "job", a.Job, "error", err)
	}
}

// serveEvidence stores chunks and acknowledges each, then takes the result.
func (c *CoordinatorSession) serveEvidence(st *stream, open *EvidenceOpen) {
	sink, ready, err := c.handler.Evidence(c.ctx, c, open.AttemptRef)
	if err != nil {
		st.fail(err)
		return
	}
	defer sink.Close()
	in := &evidenceIn{c: c, st: st, sink: sink, offsets: map[string]int64{}, closed: map[string]*ChannelClosedError{}}
	for name, off := range ready.Offsets {
		in.offsets[name] = off
	}
	if err := st.send(&ready); err != nil {
		st.fail(err)
		return
	}
	if err := in.run(); err != nil && !errors.Is(err, errStreamEnd) && c.Err() == nil {
		st.fail(err)
	}
}

// evidenceIn is the receiving side of one evidence stream.
type evidenceIn struct {
	c       *CoordinatorSession
	st      *stream
	sink    EvidenceSink
	offsets map[string]int64
	closed  map[string]*ChannelClosedError
}

func (in *evidenceIn) run() error {
	for {
		f, err := in.st.read(time.Time{})
		if err != nil {
			return err
		}
		if f.kind == kindChunk {
			if err := in.chunk(f); err != nil {
				return err
			}
			continue
		}
		switch m := f.msg.(type) {
		case *result:
			return in.result(m)
		case *unknown:
		default:
			return &ProtocolError{Op: "evidence", Err: fmt.Errorf("unexpected frame of kind %q", f.kind)}
		}
	}
}

// place checks where n bytes at offset belong and returns how many of them are stored already.
func (in *evidenceIn) place(channel string, offset, n int64) (known int64, err error) {
	at, ok := in.offsets[channel]
	if !ok && len(in.offsets) >= MaxChannels {
		return 0, &ProtocolError{Op: "evidence", Err: &LimitError{Limit: "channels", Configured: MaxChannels, Measured: MaxChannels + 1}}
	}
	if offset > at {
		return 0, &ProtocolError{Op: "evidence", Err: &OffsetError{Channel: channel, Got: offset, Want: at}}
	}
	return min(at-offset, n), nil
}

func (in *evidenceIn) chunk(f frame) error {
	if in.closed[f.channel] != nil {
		return in.ack(f.channel)
	}
	known, err := in.place(f.channel, f.offset, int64(len(f.data)))
	if err != nil {
		return err
	}
	if p := f.data[known:]; len(p) > 0 {
		if err := in.stored(f.channel, in.sink.Write(in.c.ctx, f.channel, f.offset+known, p)); err != nil {
			return err
		}
		if in.closed[f.channel] == nil {
			in.offsets[f.channel] = f.offset + int64(len(f.data))
		}
	}
	return in.ack(f.channel)
}

// stored notes a channel that the sink closed; other errors end the stream.
func (in *evidenceIn) stored(channel string, err error) error {
	var closed *ChannelClosedError
	if errors.As(err, &closed) {
		in.closed[channel] = closed
		return nil
	}
	return err
}

func (in *evidenceIn) ack(channel string) error {
	a := ack{Channel: channel, Offset: in.offsets[channel]}
	if c := in.closed[channel]; c != nil {
		a.Closed, a.Message = orElse(c.Code, "closed"), c.Message
	}
	return in.st.send(&a)
}

func (in *evidenceIn) result(m *result) error {
	doc, err := in.st.document(m.Bytes)
	if err != nil {
		return err
	}
	a, err := in.sink.Result(in.c.ctx, doc)
	if err != nil {
		return err
	}
	return in.st.send(&a)
}
