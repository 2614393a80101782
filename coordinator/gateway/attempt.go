package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/run"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

var _ link.Handler = (*Gateway)(nil)

func (g *Gateway) session(c *link.CoordinatorSession) (*session, error) {
	if s := g.connected(c.Principal().Runner); s != nil && s.link == c {
		return s, nil
	}
	return nil, &link.RemoteError{Code: link.CodeReplaced, Message: "a newer session of this runner is connected"}
}

// Pull implements link.Handler: the answer comes when the queue has an attempt
// that this runner can take.
func (g *Gateway) Pull(ctx context.Context, c *link.CoordinatorSession, req link.PullRequest, answer func(*link.Attempt, error)) {
	s, err := g.session(c)
	if err == nil {
		err = g.cfg.Queue.PullFunc(ctx, lease.PullRequest{RequestID: req.Request, Runner: s.lease()}, func(l lease.Lease, err error) {
			// The writer's goroutine, which calls this, must not wait for the job to be read and sent.
			leased := time.Now()
			go func() {
				if err != nil {
					answer(nil, pullError(err))
					return
				}
				a, err := g.attempt(ctx, l, leased)
				if errors.Is(err, errNext) {
					g.Pull(ctx, c, req, answer)
					return
				}
				answer(a, err)
			}()
		})
	}
	if err != nil {
		answer(nil, pullError(err))
	}
}

// pullError is what a runner hears of the queue's refusal.
func pullError(err error) error {
	if errors.Is(err, lease.ErrFenced) {
		return errRevoked
	}
	return err
}

// errNext says that a run is over before a runner had it: the pull goes on.
var errNext = errors.New("gateway: the run is over")

// attempt is a lease with its job, as the runner gets it. A run whose job nobody can
// be given ends here.
func (g *Gateway) attempt(ctx context.Context, l lease.Lease, leased time.Time) (*link.Attempt, error) {
	doc, err := g.cfg.Runs.Job(ctx, l)
	var impossible *protocol.Failure
	if errors.As(err, &impossible) {
		if err := g.cfg.Runs.Refuse(context.WithoutCancel(ctx), l.Ref, impossible); err != nil {
			if !errors.Is(err, run.ErrBegun) {
				g.log.Warn("run that cannot run was not ended, its lease will expire", "run", l.Job, "err", err)
			}
			return nil, err
		}
		return nil, errNext
	}
	if err != nil {
		if back := g.unread(ctx, l.Ref, err); back != nil && !errors.Is(back, run.ErrBegun) {
			g.log.Warn("attempt could not be taken back, its lease will expire", "run", l.Job, "err", back)
		}
		return nil, err
	}
	return &link.Attempt{
		AttemptRef: link.AttemptRef{Run: l.Job, Job: l.Job, Epoch: l.Attempt, Token: link.Secret(l.Token)},
		TTL:        left(l.TTL, leased), StartWithin: left(l.StartWithin, leased), Payload: doc,
	}, nil
}

// left is what is left of a time that began some while ago; 0 stays 0.
func left(d time.Duration, began time.Time) link.Duration {
	if d == 0 {
		return 0
	}
	return link.Duration(max(d-time.Since(began), time.Millisecond))
}

// unread takes back an attempt whose job the runner cannot be given.
func (g *Gateway) unread(ctx context.Context, ref lease.Ref, why error) error {
	if ctx.Err() != nil { // it was the runner that went
		return g.cfg.Runs.Ungiven(context.WithoutCancel(ctx), ref, "the runner went before it had the job", false)
	}
	return g.cfg.Runs.Ungiven(ctx, ref, "its job could not be read: "+protocol.Clip(why.Error(), 200), true)
}

// Started implements link.Handler.
func (g *Gateway) Started(ctx context.Context, c *link.CoordinatorSession, a link.AttemptRef) (link.Standing, error) {
	s, err := g.session(c)
	if err != nil {
		return "", err
	}
	if g.revoked(c) {
		return link.Stale, nil
	}
	return standing(g.cfg.Runs.Started(ctx, ref(a), s.holder))
}

// GiveBack implements link.Handler.
func (g *Gateway) GiveBack(ctx context.Context, c *link.CoordinatorSession, a link.AttemptRef, why link.GiveBack) (link.Standing, error) {
	if g.revoked(c) {
		return link.Stale, nil
	}
	reason := why.Text
	if reason == "" {
		reason = why.Reason
	}
	if why.Reason == link.GiveBackLost {
		return standing(g.cfg.Runs.Lost(ctx, ref(a), reason))
	}
	return standing(g.cfg.Runs.GiveBack(ctx, ref(a), reason))
}

// revoked says that a session is on its way out because its runner was revoked. The queue
// refuses what such a runner says of its leases; that of a payload stands, and the runner
// has no say in it all the same.
func (g *Gateway) revoked(c *link.CoordinatorSession) bool {
	return g.cfg.Runners.Revoked(c.Principal().Runner)
}

var errRevoked = &link.RemoteError{Code: string(protocol.CodeForbidden), Message: "this runner was revoked"}

// standing turns the queue's answer about an attempt into the wire's.
func standing(err error) (link.Standing, error) {
	if err == nil {
		return link.Stands, nil
	}
	if _, stale := lease.IsStale(err); stale || errors.Is(err, lease.ErrAlreadySettled) || errors.Is(err, lease.ErrUnknownJob) {
		return link.Stale, nil
	}
	return "", err
}

// Evidence implements link.Handler: it opens the store for an attempt that this
// runner was given. Whether the attempt still stands decides only whether the
// evidence is late.
func (g *Gateway) Evidence(ctx context.Context, c *link.CoordinatorSession, a link.AttemptRef) (link.EvidenceSink, link.EvidenceReady, error) {
	s, err := g.session(c)
	if err == nil {
		err = g.own(ctx, c, a)
	}
	if err != nil {
		return nil, link.EvidenceReady{}, err
	}
	stored, err := g.cfg.Evidence.Attempt(a.Job, a.Epoch)
	if err != nil {
		return nil, link.EvidenceReady{}, err
	}
	offsets, err := stored.Offsets()
	if err != nil {
		return nil, link.EvidenceReady{}, errors.Join(err, stored.Close())
	}
	ready := link.EvidenceReady{Standing: link.Stale, Offsets: offsets}
	if st, err := g.cfg.Queue.Get(ctx, a.Job); err == nil && st.State == lease.Leased && st.Attempt == a.Epoch {
		ready.Standing = link.Stands
	}
	return &sink{g: g, s: s, ref: ref(a), stored: stored}, ready, nil
}

// own refuses an attempt that this runner was never given.
func (g *Gateway) own(ctx context.Context, c *link.CoordinatorSession, a link.AttemptRef) error {
	runner, err := g.cfg.Runs.AttemptRunner(ctx, a.Job, a.Epoch)
	if errors.Is(err, store.ErrNotFound) || err == nil && (runner != c.Principal().Runner || a.Run != a.Job) {
		// A run's job has the run's name: who says otherwise speaks of one attempt
		// and means another.
		return &link.RemoteError{Code: string(protocol.CodeNotFound), Message: "this attempt is not known, or not this runner's"}
	}
	return err
}

// sink stores the evidence of one attempt.
type sink struct {
	g      *Gateway
	s      *session
	ref    lease.Ref
	stored *evidence.Attempt
}

// Write implements link.EvidenceSink.
func (k *sink) Write(_ context.Context, channel string, offset int64, p []byte) error {
	_, err := k.stored.Append(channel, offset, p)
	var limit *evidence.LimitError
	var name *evidence.NameError
	switch {
	case errors.Is(err, evidence.ErrSealed):
		return &link.ChannelClosedError{Channel: channel, Code: "sealed", Message: "the attempt has its result"}
	case errors.As(err, &limit):
		return &link.ChannelClosedError{Channel: channel, Code: "over_limit", Message: err.Error()}
	case errors.As(err, &name):
		return &link.ChannelClosedError{Channel: channel, Code: "bad_name", Message: err.Error()}
	}
	return err
}

// Result implements link.EvidenceSink.
func (k *sink) Result(ctx context.Context, doc []byte) (link.ResultAck, error) {
	if k.g.revoked(k.s.link) {
		return link.ResultAck{}, errRevoked
	}
	done, err := k.g.cfg.Runs.Finish(ctx, k.ref, k.s.holder, doc)
	var problem *protocol.Problem
	switch {
	case errors.As(err, &problem) && problem.Status < http.StatusInternalServerError:
		return link.ResultAck{Status: link.ResultRejected, Code: string(problem.Code), Message: problem.Message}, nil
	case err != nil:
		return link.ResultAck{}, err
	case done == run.Late:
		return link.ResultAck{Status: link.ResultStale}, nil
	}
	return link.ResultAck{Status: link.ResultAccepted}, nil
}

// Close implements link.EvidenceSink.
func (k *sink) Close() {
	if err := k.stored.Close(); err != nil {
		k.g.log.Error("evidence could not be closed", "run", k.ref.Job, "err", err)
	}
}

// Ask implements link.Handler.
func (g *Gateway) Ask(ctx context.Context, c *link.CoordinatorSession, q link.Ask) (link.Answer, error) {
	// Nobody else may hear an answer. A session that is being replaced may: its
	// runner would take the refusal for the answer.
	if err := g.own(ctx, c, q.AttemptRef); err != nil {
		return link.Answer{}, err
	}
	a, err := g.cfg.Runs.Ask(ctx, ref(q.AttemptRef), g.holder(c), q.ID, q.Question)
	if err != nil && errors.Is(context.Cause(ctx), link.ErrWithdrawn) {
		if err := g.cfg.Runs.Withdraw(context.WithoutCancel(ctx), ref(q.AttemptRef), q.ID); err != nil {
			g.log.Error("a question that nobody waits for could not be withdrawn", "run", q.Run, "err", err)
		}
	}
	if st, other := standing(err); other != nil {
		return link.Answer{}, other
	} else if st == link.Stale {
		return link.Answer{}, &link.RemoteError{Code: string(link.Stale), Message: "this attempt does not stand any more"}
	}
	return link.Answer{ID: a.ID, Approved: a.Approved, Comment: a.Comment}, nil
}
