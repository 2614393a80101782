package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Handler is the coordinator's side of a session. Methods are called concurrently for different streams. ctx ends with
// the session. An error of type *RemoteError reaches the runner as it is, any other as code "internal" (and is logged).
type Handler interface {
	// Hello decides about a runner that has connected. It returns a verdict per lease of the hello; one without is not renewed. It is the place of
	// the takeover rule: to replace an older session of the same runner, Close that one with CloseTakenOver. An
	// *UpdateRequiredError or *RevokedError closes with that reason. No other method is called before it returned.
	Hello(ctx context.Context, s *CoordinatorSession, h Hello) (Welcome, error)
	// Heartbeat renews leases. Called for one heartbeat of a session at a time. An error ends the session.
	Heartbeat(ctx context.Context, s *CoordinatorSession, hb Heartbeat) (HeartbeatAck, error)
	// Pull begins a wait for an attempt for this runner and returns at once: a fleet waits most of the time, and no
	// goroutine is to wait with it. answer is called exactly once, from any goroutine, in Pull or later, with an attempt or
	// an error, soon after ctx has ended at the latest. It sees the attempt through to its acknowledgement before it
	// returns. ctx also ends when the runner withdraws or asks again with the same id on a newer stream; an attempt that is
	// answered nonetheless is given back through GiveBack (withdrawn) or is the answer to the newer one (asked again).
	Pull(ctx context.Context, s *CoordinatorSession, req PullRequest, answer func(*Attempt, error))
	// Started acknowledges an offered attempt and returns its standing.
	Started(ctx context.Context, s *CoordinatorSession, ref AttemptRef) (Standing, error)
	// GiveBack takes an attempt back, refused, withdrawn or given up later. The standing is the one before.
	GiveBack(ctx context.Context, s *CoordinatorSession, ref AttemptRef, why GiveBack) (Standing, error)
	// Evidence opens the store for an attempt's evidence and says what is there already.
	Evidence(ctx context.Context, s *CoordinatorSession, ref AttemptRef) (EvidenceSink, EvidenceReady, error)
	// Ask waits for a person's answer. Asked again with the same id it is the same question. ErrWithdrawn is the cause of
	// ctx when it will not be: the lost session of a runner that is going to ask again has another.
	Ask(ctx context.Context, s *CoordinatorSession, q Ask) (Answer, error)
	// Status and Drain bring the runner's own.
	Status(ctx context.Context, s *CoordinatorSession, st Status)
	Drain(ctx context.Context, s *CoordinatorSession, d Drain)
	// Closed is called once, last, for every session whose Hello was called, accepted or not.
	Closed(s *CoordinatorSession, err error)
}

// EvidenceSink stores the evidence of one attempt. Calls come one at a time.
type EvidenceSink interface {
	// Write stores p at offset of a channel, which is always exactly where the last write of that channel, or the
	// offset in EvidenceReady, ended. When it returns nil the bytes are acknowledged, and the runner may forget them.
	// A *ChannelClosedError closes this channel alone, which is how a cap is kept.
	Write(ctx context.Context, channel string, offset int64, p []byte) error
	// Result takes the result. The same result may come again when the answer was lost: answer it the same.
	Result(ctx context.Context, doc []byte) (ResultAck, error)
	// Close is called once, last, on every path.
	Close()
}

// CoordinatorSession is the coordinator's end of a session. All methods may be called concurrently.
type CoordinatorSession struct {
	*session
	handler Handler
	who     Principal
	redial  func() Duration
	hello   Hello
	control *stream // only written
	silence *time.Timer
	beating sync.Mutex

	mu    sync.Mutex
	pulls map[string]*servedPull
	spent []string // the last withdrawals that came before their pull
}

// servedPull is a pull whose stream is open.
type servedPull struct {
	st        *stream
	request   string
	ctx       context.Context
	cancel    context.CancelCauseFunc
	withdrawn bool
}

var (
	errWithdrawn = errors.New("link: pull withdrawn by the runner")
	errAgain     = errors.New("link: pull asked again on a newer stream")
)

// Principal is who connected.
func (c *CoordinatorSession) Principal() Principal { return c.who }

// Hello is what the runner said of itself.
func (c *CoordinatorSession) Hello() Hello { return c.hello }

// RemoteAddr is the address of the peer, or of the last proxy before us.
func (c *CoordinatorSession) RemoteAddr() string { return c.ws.raw.RemoteAddr().String() }

// greet waits for the control stream and its hello, and answers it. After an error the session is over.
func (c *CoordinatorSession) greet(cfg AcceptConfig) error {
	deadline := c.in(c.timing.Handshake)
	ctx, cancel := context.WithDeadline(c.ctx, deadline)
	defer cancel()
	y, err := c.mux.AcceptStreamWithContext(ctx)
	if err != nil {
		err = fmt.Errorf("link: accept: no hello: %w", err)
		c.end(err, CloseReason{Code: CloseTimeout, Message: "no hello"})
		return err
	}
	c.control = c.wrap(y)
	m, err := c.control.message(deadline)
	if err == nil {
		if h, ok := m.(*Hello); ok {
			c.hello = *h
		} else {
			err = &ProtocolError{Op: "hello", Err: fmt.Errorf("first message is %s", m.messageType())}
		}
	}
	if err != nil {
		c.giveUp(err)
		return err
	}
	if c.hello.Protocol < max(1, cfg.MinProtocol) {
		_ = c.control.send(&UpdateRequired{MinProtocol: max(1, cfg.MinProtocol), MinVersion: cfg.MinVersion,
			Message: fmt.Sprintf("this runner speaks protocol %d, the coordinator needs %d", c.hello.Protocol, max(1, cfg.MinProtocol))})
		reason := CloseReason{Code: CloseUpdateRequired, Message: "protocol too old", MinVersion: cfg.MinVersion}
		c.Close(reason)
		return c.Err()
	}
	w, err := c.handler.Hello(c.ctx, c, c.hello)
	if err == nil {
		w.Protocol = min(c.hello.Protocol, Protocol)
		w.Settings = c.timing.settings()
		w.Settings.Redial = c.redial()
		w.Runner, w.Version = orElse(w.Runner, c.who.Runner), orElse(w.Version, cfg.Version)
		err = c.control.send(&w)
	}
	if err != nil {
		c.end(err, refusal(err))
		c.handler.Closed(c, c.Err())
		return err
	}
	return nil
}

// refusal is how a session whose hello was refused ends.
func refusal(err error) CloseReason {
	var (
		update   *UpdateRequiredError
		revoked  *RevokedError
		taken    *TakenOverError
		draining *DrainingError
		remote   *RemoteError
		protocol *ProtocolError
	)
	switch {
	case errors.As(err, &protocol):
		return CloseReason{Code: CloseProtocol, Message: protocol.Error()}
	case errors.As(err, &update):
		return CloseReason{Code: CloseUpdateRequired, Message: update.Message, MinVersion: update.MinVersion}
	case errors.As(err, &revoked):
		return CloseReason{Code: CloseRevoked, Message: revoked.Message}
	case errors.As(err, &taken):
		return CloseReason{Code: CloseTakenOver, Message: taken.Message}
	case errors.As(err, &draining):
		return CloseReason{Code: CloseDraining, Message: draining.Message, RetryAfter: draining.RetryAfter}
	case errors.As(err, &remote):
		return CloseReason{Code: CloseInternal, Message: remote.Code + ": " + remote.Message, RetryAfter: remote.RetryAfter.Std()}
	default:
		return CloseReason{Code: CloseInternal, Message: "internal error"}
	}
}

// run begins to serve. An idle session has no goroutine beside yamux's two: those of its streams are started when the
// peer opens one, heartbeats come on streams of their own, and decoding JSON needs its deep stack only while it lasts. A
// goroutine that lived as long as the session would keep that stack, thousands of times.
func (c *CoordinatorSession) run(forget func()) {
	c.control.fr.buf = nil
	c.control.y.Shrink()
	c.control.reading(false)
	c.silence = time.AfterFunc(c.timing.DeadPeer, func() {
		c.spawn(func() { c.giveUp(&TimeoutError{Op: "heartbeat", After: c.timing.DeadPeer}) })
	})
	c.serveStreams(c.serveStream, 1, func() {
		c.silence.Stop()
		c.control.close()
		c.handler.Closed(c, c.Err())
		forget()
	})
}

// serveBeat answers a heartbeat and puts off the moment at which its absence would end the session, even though the
// connection lives.
func (c *CoordinatorSession) serveBeat(st *stream, hb *Heartbeat) {
	c.silence.Reset(c.timing.DeadPeer)
	c.beating.Lock()
	defer c.beating.Unlock()
	// Looked up before the handler runs, while the heartbeat's list is fresh.
	c.mu.Lock()
	var lost []string
	for _, id := range hb.Pulls {
		if c.pulls[id] == nil {
			lost = append(lost, id)
		}
	}
	c.mu.Unlock()
	a, err := c.handler.Heartbeat(c.ctx, c, *hb)
	if err != nil {
		if c.Err() == nil {
			c.end(err, refusal(err))
		}
		return
	}
	a.LostPulls, a.Redial = lost, c.redial()
	_ = st.send(&a)
}

// Pulls are the request ids of the waiting pulls.
func (c *CoordinatorSession) Pulls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.pulls))
	for id := range c.pulls {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// endPull ends one waiting pull because the runner withdrew it.
func (c *CoordinatorSession) endPull(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pulls[id]; p != nil {
		p.withdrawn = true
		p.cancel(errWithdrawn)
		return
	}
	// Two streams are served by two goroutines: the withdrawal may be seen first.
	if len(c.spent) >= MaxLeases {
		c.spent = slices.Delete(c.spent, 0, 1)
	}
	c.spent = append(c.spent, id)
}

// endPulls ends all waiting pulls with an error that the runner sees.
func (c *CoordinatorSession) endPulls(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pulls {
		p.cancel(err)
	}
}

// Cancel tells the runner to end an attempt. It returns when the message is on its way: that the runner heard it, and that
// it obeyed, is seen from the result. A lost Cancel is made good by the verdict in the next heartbeat's answer, so
// the Handler must say Cancelled there too. It waits for its turn to write, Timing.Write at most.
func (c *CoordinatorSession) Cancel(m Cancel) error { return c.control.send(&m) }

// Drain tells the runner that this coordinator will close soon.
func (c *CoordinatorSession) Drain(m Drain) error { return c.control.send(&m) }

// Status sends a line for the runner's user.
func (c *CoordinatorSession) Status(m Status) error { return c.control.send(&m) }
