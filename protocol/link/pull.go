package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Offer is an attempt that the coordinator leased to this runner. Answer it with Started or Refuse within
// Timing.StartAck; an offer that is dropped returns to the queue by itself when that time is over.
type Offer struct {
	Attempt
	// Asked is the moment before the pull was sent, Received when the offer began to arrive. The lease's TTL may be
	// counted from Received minus nothing but the time the offer took to travel, so count it from the heartbeat instead.
	Asked, Received time.Time

	st       *stream
	answered atomic.Bool
}

// Pull asks for one attempt and waits until there is one, ctx ends or the session ends. It does not poll and has no
// deadline.
//
// Ending ctx withdraws the wish: the id of the request is spent, and an attempt that was already on its way goes back
// at once. When Pull fails for another reason, ask again with the same id, on a new session if this one is over.
func (r *RunnerSession) Pull(ctx context.Context, req PullRequest) (*Offer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pullCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	asked := time.Now()
	st, err := r.open(&req)
	if err != nil {
		return nil, err
	}
	w := &waitingPull{cancel: cancel}
	r.mu.Lock()
	r.pulls[req.Request] = w
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		if r.pulls[req.Request] == w {
			delete(r.pulls, req.Request)
		}
		r.mu.Unlock()
	}()

	stop := st.interrupt(pullCtx)
	o, err := st.offer()
	if stopped := stop(); err == nil && (stopped || pullCtx.Err() == nil) {
		o.Asked, o.st = asked, st
		return o, nil
	}
	if ctx.Err() != nil && r.Err() == nil {
		// The stream ends after the coordinator has heard of it, so that the end is not taken for a loss. The caller
		// need not wait for that.
		if r.spawn(func() {
			defer st.close()
			_ = r.tell(r.ctx, &withdraw{Request: req.Request})
		}) {
			return nil, ctx.Err()
		}
	}
	st.close()
	if errors.Is(context.Cause(pullCtx), ErrPullLost) {
		err = ErrPullLost
	}
	if err == nil {
		err = context.Canceled
	}
	return nil, err
}

// offer reads the coordinator's answer to a pull.
func (st *stream) offer() (*Offer, error) {
	m, err := st.message(time.Time{})
	if errors.Is(err, errStreamEnd) {
		return nil, ErrPullLost
	}
	if err != nil {
		return nil, err
	}
	of, ok := m.(*offer)
	if !ok {
		return nil, &ProtocolError{Op: "pull", Err: fmt.Errorf("unexpected message %s", m.messageType())}
	}
	received := time.Now()
	if of.Payload, err = st.document(of.JobBytes); err != nil {
		return nil, err
	}
	return &Offer{Attempt: of.Attempt, Received: received}, nil
}

// Started says that work on the attempt begins, and waits for the coordinator's word. Stands: go on. Stale or
// Cancelled: stop, the attempt is not this runner's any more. An error says nothing about the attempt: ask with a
// heartbeat. A runner may begin to work before Started returns, but must not show effects to others before.
func (o *Offer) Started(ctx context.Context) (Standing, error) {
	return o.answer(ctx, &started{})
}

// Refuse gives the attempt back unstarted; the coordinator may offer it to another runner at once.
func (o *Offer) Refuse(ctx context.Context, why GiveBack) (Standing, error) {
	return o.answer(ctx, &why)
}

func (o *Offer) answer(ctx context.Context, m message) (Standing, error) {
	if !o.answered.CompareAndSwap(false, true) {
		return "", ErrAnswered
	}
	defer o.st.close()
	if err := o.st.send(m); err != nil {
		return "", err
	}
	defer o.st.interrupt(ctx)()
	got, err := o.st.answer(ctx, m.messageType(), o.st.s.timing.Reply)
	if err != nil {
		return "", err
	}
	return asStanding(m.messageType(), got)
}
