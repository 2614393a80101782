package agent

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/protocol/link"
)

// Given is an attempt that a runner has without a session: the coordinator handed it out
// as a payload. The coordinator keeps its lease whether this runner is heard of or not,
// so it is never frozen for want of a renewal. A session, if there is one, brings the
// coordinator's word that it does not stand any more, or that it was cancelled, and takes
// its evidence. A coordinator that turns the runner away takes no evidence; the attempt goes
// on, unless it is another process that has this runner's place and attempt.
type Given struct {
	link.AttemptRef
	// Job is a protocol.Job, as an offer has it.
	Job json.RawMessage
}

// connect is keep, as far as there is a coordinator. A runner that was given its attempt
// goes on without.
func (r *Runner) connect(ctx context.Context) (err error) {
	if r.cfg.URL != "" {
		err = r.keep(ctx)
	}
	close(r.nobody)
	var taken *link.TakenOverError
	if r.cfg.Given == nil || errors.As(err, &taken) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		r.log.Warn("the coordinator has turned this runner away: the attempt that it was given goes on without", "err", err)
	}
	<-ctx.Done()
	return ctx.Err()
}

// beginGiven starts to work on the attempt that the runner was given. One that is in the
// outbox was begun by an earlier life of this runner: it is not run again, and what that
// life has left of it is the result.
func (r *Runner) beginGiven() error {
	g := r.cfg.Given
	if g == nil {
		return nil
	}
	slot := r.slots[0]
	<-slot.free // nobody pulls yet
	a, err := r.attempt(g.AttemptRef, never)
	if errors.Is(err, outbox.ErrExists) {
		r.log.Warn("the attempt was begun here before and is not run again", "run", g.Run, "epoch", g.Epoch)
		r.Drain()
		return nil
	}
	if err != nil {
		return err
	}
	a.given = true
	r.mu.Lock()
	ctx := r.admit(a) // whatever bars an offer: it was handed out, and is stopped like any other
	r.mu.Unlock()
	r.start(ctx, a, g.Job, time.Now(), slot)
	return nil
}

// Undelivered gives each result that a runner with this state directory has finished and
// not delivered. No such runner runs meanwhile.
func Undelivered(stateDir string, give func(run string, epoch int64, result []byte)) error {
	out, err := outbox.Open(outbox.Config{Dir: filepath.Join(stateDir, outboxDir)})
	if err != nil {
		return err
	}
	err = out.Undelivered(func(a outbox.Attempt, result json.RawMessage) { give(a.Run, a.Epoch, result) })
	return errors.Join(err, out.Close())
}
