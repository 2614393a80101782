package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// RunnerHandler is the runner's side of the control stream. Two goroutines of the session call it, also at the same
// time: one Beat and Renewed, the other Cancel, Drain and Status. No method may block: a Beat that waits stops the heartbeat.
type RunnerHandler interface {
	// Beat returns what the next heartbeat says. Called once per interval.
	Beat() Heartbeat
	// Renewed brings the answer to a heartbeat. asked is the moment before it was sent, monotonic and wall reading both:
	// a verdict that Stands renews that lease until asked + TTL and not a moment longer. A lease that was in the heartbeat
	// and is not in the answer is neither renewed nor lost.
	Renewed(asked time.Time, ack HeartbeatAck)
	// Cancel asks to end an attempt. It may come twice, late, or for an attempt that is unknown.
	Cancel(Cancel)
	// Drain says that the coordinator will close soon.
	Drain(Drain)
	// Status is a line for the user.
	Status(Status)
}

// RunnerSession is the runner's end of a session. All methods may be called concurrently.
type RunnerSession struct {
	*session
	handler RunnerHandler
	serve   map[string]StreamHandler
	hello   Hello
	welcome Welcome
	asked   time.Time
	control *stream
	now     func() time.Time

	redial  atomic.Int64  // the last that the coordinator announced, in nanoseconds
	beatNow chan struct{} // somebody was added to askers

	mu     sync.Mutex
	pulls  map[string]*waitingPull
	askers []chan beatResult // answered by the next heartbeat
}

// waitingPull is a Pull that waits for its offer.
type waitingPull struct {
	missed int // answers in a row that called it lost
	cancel context.CancelCauseFunc
}

type beatResult struct {
	ack HeartbeatAck
	err error
}

// Welcome is the coordinator's answer to the hello, with the moment before the hello was sent, from which the verdicts'
// TTLs count.
func (r *RunnerSession) Welcome() (Welcome, time.Time) { return r.welcome, r.asked }

// Timing is the session's timing, as announced by the coordinator.
func (r *RunnerSession) Timing() Timing { return r.timing }

// greet opens the control stream and exchanges hello and welcome.
func (r *RunnerSession) greet(deadline time.Time) error {
	r.asked = time.Now()
	st, err := r.open(&r.hello)
	if err != nil {
		return err
	}
	r.control = st
	m, err := st.message(deadline)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *Welcome:
		if m.Protocol < 1 || m.Protocol > Protocol {
			return &UpdateRequiredError{Message: fmt.Sprintf("coordinator speaks protocol %d, this runner %d", m.Protocol, Protocol)}
		}
		r.welcome = *m
		r.timing = r.timing.adopt(m.Settings)
		r.redial.Store(int64(m.Settings.Redial))
		return nil
	case *UpdateRequired:
		return &UpdateRequiredError{MinProtocol: m.MinProtocol, MinVersion: m.MinVersion, Message: m.Message}
	default:
		return &ProtocolError{Op: "welcome", Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
}

// run starts the session's goroutines: one reads control, one beats, one pings.
func (r *RunnerSession) run() {
	r.ws.raw.arm(r.timing.DeadPeer, r.timing.Write)
	r.wg.Go(r.readControl)
	r.wg.Go(r.beatLoop)
	r.wg.Go(r.pingLoop)
	r.serveStreams(r.serveStream, 0, func() {})
}

func (r *RunnerSession) readControl() {
	defer r.control.close()
	for {
		m, err := r.control.message(time.Time{})
		if err != nil {
			if r.Err() == nil {
				r.giveUp(&ProtocolError{Op: "control", Err: err})
			}
			return
		}
		switch m := m.(type) {
		case *Cancel:
			r.handler.Cancel(*m)
		case *Drain:
			r.handler.Drain(*m)
		case *Status:
			r.handler.Status(*m)
		}
	}
}

// beatLoop is the heartbeat: it waits for nothing but its timer and its answer.
func (r *RunnerSession) beatLoop() {
	timer := time.NewTimer(0) // the first beat goes out at once, before any work
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-timer.C:
		case <-r.beatNow:
		}
		r.mu.Lock()
		askers := r.askers
		r.askers = nil
		r.mu.Unlock()
		asked := time.Now()
		ack, err := r.beat()
		if err == nil {
			r.handler.Renewed(asked, ack)
		}
		for _, a := range askers {
			a <- beatResult{ack, err}
		}
		if err != nil {
			r.giveUp(err)
			return
		}
		timer.Reset(max(0, r.timing.Heartbeat-time.Since(asked)))
	}
}

// beat sends one heartbeat, on a stream of its own, and waits for its answer.
func (r *RunnerSession) beat() (HeartbeatAck, error) {
	hb := r.handler.Beat()
	r.mu.Lock()
	hb.Pulls = make([]string, 0, len(r.pulls))
	for id := range r.pulls {
		hb.Pulls = append(hb.Pulls, id)
	}
	r.mu.Unlock()
	slices.Sort(hb.Pulls)
	m, err := r.call(r.ctx, &hb, r.timing.HeartbeatTimeout)
	if err != nil {
		return HeartbeatAck{}, err
	}
	ack, ok := m.(*HeartbeatAck)
	if !ok {
		return HeartbeatAck{}, &ProtocolError{Op: "heartbeat", Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	r.redial.Store(int64(ack.Redial))
	r.checkPulls(hb.Pulls, ack.LostPulls)
	return *ack, nil
}

// checkPulls fails the pulls that the coordinator did not know twice in a row. Once is no proof: the pull's stream and
// the control stream are read by different goroutines over there.
func (r *RunnerSession) checkPulls(asked, lost []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range asked {
		w := r.pulls[id]
		if w == nil {
			continue
		}
		if !slices.Contains(lost, id) {
			w.missed = 0
		} else if w.missed++; w.missed >= 2 {
			w.cancel(ErrPullLost)
		}
	}
}

// Heartbeat beats as soon as the beat before is answered, outside the interval, and returns the answer. It is how a runner that was suspended asks
// whether its attempts still stand before it lets them take one more step. Handler.Renewed is called as well.
func (r *RunnerSession) Heartbeat(ctx context.Context) (HeartbeatAck, error) {
	reply := make(chan beatResult, 1)
	r.mu.Lock()
	r.askers = append(r.askers, reply)
	r.mu.Unlock()
	signal(r.beatNow)
	select {
	case res := <-reply:
		return res.ack, res.err
	case <-r.ctx.Done():
		return HeartbeatAck{}, r.Err()
	case <-ctx.Done():
		return HeartbeatAck{}, ctx.Err()
	}
}

// pingLoop keeps both read deadlines fed and notices that the machine slept.
func (r *RunnerSession) pingLoop() {
	ticker := time.NewTicker(r.timing.Ping)
	defer ticker.Stop()
	last := r.now()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		now := r.now()
		if Elapsed(last, now) > r.timing.DeadPeer {
			r.giveUp(ErrSlept)
			return
		}
		last = now
		// A late answer is no reason to end anything: the read deadline judges silence.
		if _, err := r.mux.Ping(); err != nil && r.mux.IsClosed() {
			return
		}
	}
}

// Elapsed is the larger of the monotonic and the wall time between two readings of the clock: the monotonic clock stops
// while a machine sleeps, the wall clock can be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Status sends a line for people to the coordinator and waits until it was taken.
func (r *RunnerSession) Status(ctx context.Context, s Status) error { return r.tell(ctx, &s) }

// Drain tells the coordinator that this runner takes no more attempts. Waiting pulls are not withdrawn by it.
func (r *RunnerSession) Drain(ctx context.Context, d Drain) error { return r.tell(ctx, &d) }

// tell is a call that is answered with done.
func (r *RunnerSession) tell(ctx context.Context, m message) error {
	got, err := r.call(ctx, m, r.timing.Reply)
	if err != nil {
		return err
	}
	if _, ok := got.(*done); !ok {
		return &ProtocolError{Op: m.messageType(), Err: fmt.Errorf("unexpected message %s", got.messageType())}
	}
	return nil
}

// call opens a stream for one question and returns the answer, waiting until ctx or the session ends, and for timeout
// at most if it is not 0. A missed answer ends the session: nobody knows what the coordinator made of the question.
func (r *RunnerSession) call(ctx context.Context, q message, timeout time.Duration) (message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, err := r.open(q)
	if err != nil {
		return nil, err
	}
	defer st.close()
	defer st.interrupt(ctx)()
	return st.answer(ctx, q.messageType(), timeout)
}

// answer reads the one message that answers op.
func (st *stream) answer(ctx context.Context, op string, timeout time.Duration) (message, error) {
	var deadline time.Time
	if timeout > 0 {
		deadline = st.s.in(timeout)
	}
	m, err := st.message(deadline)
	var te *TimeoutError
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil && st.s.Err() == nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &te) && st.s.Err() == nil:
		te = &TimeoutError{Op: op, After: timeout}
		st.s.giveUp(te)
		return nil, te
	case errors.Is(err, errStreamEnd):
		return nil, fmt.Errorf("link: %s: stream ended without an answer", op)
	}
	return nil, err
}

// GiveBack returns an attempt that this runner holds, started or not, without waiting for its lease to end.
func (r *RunnerSession) GiveBack(ctx context.Context, ref AttemptRef, why GiveBack) (Standing, error) {
	m, err := r.call(ctx, &giveBack{AttemptRef: ref, GiveBack: why}, r.timing.Reply)
	if err != nil {
		return "", err
	}
	return asStanding("give_back", m)
}

func asStanding(op string, m message) (Standing, error) {
	s, ok := m.(*standing)
	if !ok {
		return "", &ProtocolError{Op: op, Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	return s.Standing, nil
}

// Ask puts a question to a person and waits, for days if need be, until ctx or the session ends. Then ask again with
// the same id: the answer is not lost.
func (r *RunnerSession) Ask(ctx context.Context, q Ask) (Answer, error) {
	m, err := r.call(ctx, &q, 0)
	if err != nil {
		return Answer{}, err
	}
	a, ok := m.(*Answer)
	if !ok {
		return Answer{}, &ProtocolError{Op: "ask", Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	return *a, nil
}
