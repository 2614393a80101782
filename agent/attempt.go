package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/everdict/everdict/agent/evidence/log"
	"github.com/everdict/everdict/agent/evidence/redact"
	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/agent/executor"
	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// attempt is one attempt that this runner holds: from the offer until the
// coordinator has its result.
type attempt struct {
	r      *Runner
	ref    link.AttemptRef
	job    protocol.Job
	spool  *outbox.Spool
	redact *redact.Redactor
	tenure *tenure
	stop   context.CancelCauseFunc
	log    *slog.Logger
	// given says that it was not pulled: see Given.
	given bool
	// finished is guarded by Runner.mu: the result lies in the outbox.
	finished bool
	// over is guarded by Runner.mu: nobody works on it any more.
	over bool
	// number is guarded by Runner.mu: later ones have higher ones.
	number int
	// tail is the end of its log; nil where nobody observes the runner.
	tail *log.Tail
}

func attemptName(run string, epoch int64) string { return run + "." + strconv.FormatInt(epoch, 10) }

// begin takes an offer and starts to work on it; false means that it did not, and that
// the slot may ask again after rest.
func (r *Runner) begin(o arrival, slot *slot) (rest time.Duration, begun bool) {
	known, err := r.enter(o)
	if known { // the answer to a request that was asked again
		r.acknowledge(r.life, o.Offer, nil)
		return refusedPause, false
	}
	if err != nil {
		return r.turnAway(o, slot, err), false
	}
	defer r.entered()
	a, err := r.prepare(o)
	if err != nil {
		r.refuse(o.Offer, err)
		return refusedPause, false
	}
	if r.hesitate != nil {
		r.hesitate()
	}
	r.mu.Lock()
	var ctx context.Context
	if err = r.barred(o); err == nil {
		ctx = r.admit(a)
	}
	r.mu.Unlock()
	if err != nil {
		if err := a.spool.Abandon(); err != nil {
			a.log.Error("what is left of the attempt could not be removed", "err", err)
		}
		return r.turnAway(o, slot, err), false
	}
	slot.request = protocol.NewID("req_")
	r.start(ctx, a, o.Payload, o.Received, slot)
	r.aside(func(ctx context.Context) { r.acknowledge(ctx, o.Offer, a) })
	return 0, true
}

// prepare makes an attempt of an offer. Nobody works on it yet.
func (r *Runner) prepare(o arrival) (*attempt, error) {
	if err := r.directories(); err != nil {
		return nil, err
	}
	if err := r.mine(o.Offer); err != nil {
		return nil, err
	}
	f := freezing{ttl: o.TTL.Std(), margin: r.timingNow().LeaseMargin}
	if f.ttl == 0 {
		f.ttl = r.timingNow().LeaseTTL
	}
	a, err := r.attempt(o.AttemptRef, f)
	if err != nil {
		return nil, err
	}
	a.tenure.freeze = f.unconfirmed(cmp.Or(o.StartWithin.Std(), r.timingNow().StartAck))
	return a, nil
}

// attempt is a new one with its place in the outbox.
func (r *Runner) attempt(ref link.AttemptRef, f freezing) (*attempt, error) {
	spool, err := r.out.Create(outbox.Attempt{Run: ref.Run, Job: ref.Job, Epoch: ref.Epoch, Token: string(ref.Token), Coordinator: r.cfg.URL})
	if err != nil {
		return nil, err
	}
	r.setDegraded("")
	a := &attempt{r: r, ref: ref, spool: spool, log: r.log.With("run", ref.Run, "epoch", ref.Epoch)}
	a.tenure = newTenure(ref, f, nil, a.log)
	a.tenure.held = func(still bool) { r.news.put(AttemptHeld{Run: ref.Run, Epoch: ref.Epoch, Held: still}) }
	if r.cfg.Observe != nil {
		a.tail = log.NewTail(tailBytes)
	}
	return a, nil
}

// takeUp makes results that an earlier life of this runner has left in the outbox attempts
// of this one, which nobody works on: their leases are named and renewed until the
// coordinator has them, so that it does not give the runs away meanwhile (P5).
func (r *Runner) takeUp(left []*outbox.Spool) {
	for _, spool := range left {
		of := spool.Attempt()
		if of.Coordinator != r.cfg.URL || !protocol.ValidRunName(of.Job) {
			continue // nobody there knows its lease
		}
		a := &attempt{
			r: r, spool: spool, log: r.log.With("run", of.Run, "epoch", of.Epoch),
			ref:  link.AttemptRef{Run: of.Run, Job: of.Job, Epoch: of.Epoch, Token: link.Secret(of.Token)},
			stop: func(error) {}, finished: true, over: true,
		}
		a.tenure = newTenure(a.ref, never, a.stop, a.log)
		close(a.tenure.over)
		r.mu.Lock()
		r.enlist(a)
		r.mu.Unlock()
		a.log.Info("a result of an earlier start waits for the coordinator")
		r.aside(a.delivered)
	}
}

// enlist puts an attempt among those that this runner has. The caller has the mutex.
func (r *Runner) enlist(a *attempt) {
	r.listed++
	a.number = r.listed
	r.active[attemptName(a.ref.Run, a.ref.Epoch)] = a
}

// admit makes an attempt one of those that this runner has: from here on it is begun, and
// whoever stops them stops it. The caller has the mutex, and calls start next.
func (r *Runner) admit(a *attempt) context.Context {
	// The attempt outlives the session and ctx of Run: it ends by itself or by stop.
	ctx, stop := context.WithCancelCause(context.Background())
	a.stop, a.tenure.stop = stop, stop
	r.enlist(a)
	r.taken++
	r.attempts.Add(1)
	return ctx
}

// start works on an attempt that was admitted and whose slot is taken, and gives that back
// at its end.
func (r *Runner) start(ctx context.Context, a *attempt, job json.RawMessage, received time.Time, slot *slot) {
	r.stir()
	go func() {
		defer r.attempts.Done()
		tenure := make(chan struct{})
		go func() {
			defer close(tenure)
			a.tenure.run(ctx, received)
		}()
		again := a.work(ctx, job)
		a.stop(nil)
		<-tenure
		r.worked(a)
		r.aside(a.delivered)
		if r.cfg.Once {
			r.Drain()
			return
		}
		if again {
			// What this machine has just failed at, such as writing to its disk, it
			// would fail at again at once: it would use up the run's attempts, and
			// those of all that wait, before another runner or its owner could help.
			r.aside(func(ctx context.Context) { slot.rest(ctx, r.draining) })
			return
		}
		slot.free <- struct{}{}
	}()
}

// acknowledge says that work has begun and hears whether it may go on.
func (r *Runner) acknowledge(ctx context.Context, offer *link.Offer, a *attempt) {
	ctx, cancel := context.WithTimeout(ctx, r.timingNow().StartAck)
	defer cancel()
	asked := time.Now()
	standing, err := offer.Started(ctx)
	if err != nil || a == nil {
		// An error says nothing about the attempt: the next heartbeat does.
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.tenure.judge(verdict{standing: standing, reason: "the coordinator did not confirm the start", asked: asked, freezing: a.tenure.granted})
}

func (r *Runner) refuse(offer *link.Offer, why error) {
	r.log.Error("attempt refused", "run", offer.Run, "err", why)
	r.setDegraded(why.Error())
	r.decline(offer, "refused", why.Error())
}

// decline gives an offer back unstarted.
func (r *Runner) decline(offer *link.Offer, reason, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackBound)
	defer cancel()
	if _, err := offer.Refuse(ctx, link.GiveBack{Reason: reason, Text: protocol.Clip(text, 1000)}); err != nil {
		r.log.Warn("refusal was not heard, the lease will expire", "run", offer.Run, "err", err)
	}
}

// mine checks whose run an offer is, where that matters. A job that cannot be read is let
// through: work says what is wrong with it.
func (r *Runner) mine(offer *link.Offer) error {
	if r.cfg.OnlyFor == "" {
		return nil
	}
	var job struct {
		SubmittedBy string `json:"submittedBy"`
	}
	if json.Unmarshal(offer.Payload, &job) != nil || job.SubmittedBy == r.cfg.OnlyFor {
		return nil
	}
	return &SubmitterError{Run: offer.Run, SubmittedBy: job.SubmittedBy, OnlyFor: r.cfg.OnlyFor}
}

// SubmitterError is a run that a runner was offered although it takes one person's alone.
type SubmitterError struct{ Run, SubmittedBy, OnlyFor string }

// Error implements error.
func (e *SubmitterError) Error() string {
	return fmt.Sprintf("agent: run %s was submitted by %s: this runner takes the runs of %s alone", e.Run, cmp.Or(e.SubmittedBy, "nobody that the coordinator names"), e.OnlyFor)
}

// setDegraded says why the runner takes less than it could; empty: all is well.
func (r *Runner) setDegraded(why string) {
	r.mu.Lock()
	changed := r.degraded != why
	r.degraded = why
	r.mu.Unlock()
	if changed {
		r.news.put(Degraded{Why: why})
	}
}

func (r *Runner) timingNow() link.Timing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.timing
}

// delivered forgets the attempt when the coordinator has its result. It has not when ctx
// ends first, which is after the last session.
func (a *attempt) delivered(ctx context.Context) {
	select {
	case <-a.spool.Done():
	case <-ctx.Done():
		if !closed(a.spool.Done()) {
			return
		}
	}
	if ack := a.spool.Ack(); ack.Status == outbox.Rejected {
		a.log.Error("result was rejected, it is kept aside in the outbox", "code", ack.Code, "message", ack.Message)
	} else {
		a.log.Debug("result delivered", "status", ack.Status)
	}
	a.r.mu.Lock()
	delete(a.r.active, attemptName(a.ref.Run, a.ref.Epoch))
	a.r.mu.Unlock()
	a.r.stir()
	a.r.news.put(Delivered{Run: a.ref.Run, Epoch: a.ref.Epoch})
}

// work carries the attempt out and puts its result into the outbox. failedHere says
// that the attempt failed for a reason that lies with this machine.
func (a *attempt) work(ctx context.Context, doc json.RawMessage) (failedHere bool) {
	if err := json.Unmarshal(doc, &a.job); err != nil {
		a.finish(malformed(a.ref.Run, err))
		return false
	}
	// No job is ever told these. Should one find them, nobody else does.
	hide := append(executor.Secrets(&a.job, a.r.cfg.Environ), redact.Secret{Name: "LEASE_TOKEN", Value: string(a.ref.Token)})
	if token, ok := a.r.cfg.Credential.(link.Secret); ok {
		hide = append(hide, redact.Secret{Name: "RUNNER_CREDENTIAL", Value: string(token)})
	}
	a.redact = redact.New(hide)
	a.log = slog.New(a.redact.Handler(a.log.Handler()))
	if err := a.job.Validate(); err != nil {
		a.finish(malformed(a.job.Case.ID, err))
		return false
	}
	a.log.Info("attempt begins", "harness", a.job.Harness.ID, "case", a.job.Case.ID)
	a.tellBegun()
	result := a.run(ctx)
	var stopped *executor.Stopped
	if errors.As(context.Cause(ctx), &stopped) && (stopped.Reason == executor.StopDrained || stopped.Reason == executor.StopPaused) {
		a.giveBack(stopped)
	}
	defer func() { a.tellEnded(result, stopped) }()
	f := result.Failure
	failedHere = f != nil && f.Class == protocol.ClassInfra && f.Retryable && stopped == nil
	return !a.finish(result) || failedHere
}

// run has the executor carry the attempt out, with its evidence going to the spool.
func (a *attempt) run(ctx context.Context) *protocol.CaseResult {
	name := attemptName(a.ref.Run, a.ref.Epoch)
	recorder := log.New(log.Config{
		Log: a.spool.Channel(protocol.ChannelLog), Index: a.spool.Channel(protocol.ChannelLogIndex), Scratch: a.spool.Scratch,
		Live: a.live(),
	})
	events := trace.New(trace.Config{Writer: a.spool.Channel(protocol.ChannelTrace)})
	diff := &counter{w: a.spool.Channel(protocol.ChannelDiff)}

	result := a.r.exec.Run(ctx, executor.Attempt{
		Name: name, Job: &a.job,
		Log: recorder, Trace: events, Diff: diff, Redact: a.redact,
		OpenTrace: func() (io.ReadCloser, error) { return a.spool.Open(protocol.ChannelTrace) },
		Asks:      &asks{dir: a.r.askRoot(), put: a.ask},
		Compute:   a.tenure.started,
		Phase:     func(p executor.Phase) { a.r.news.put(AttemptPhase{Run: a.ref.Run, Epoch: a.ref.Epoch, Phase: p}) },
	})
	logged, err := recorder.Close()
	if err != nil {
		a.log.Error("log is incomplete", "err", err)
	}
	if err := events.Close(); err != nil {
		a.log.Error("trace is incomplete", "err", err)
	}
	sum := events.Summary()
	result.Evidence = &protocol.Evidence{
		LogBytes: logged.Bytes, TraceEvents: sum.Events, DiffBytes: diff.n, Redactions: a.redact.Count(),
		Gaps: append(append(logged.Gaps, sum.Gaps()...), a.spool.Gaps()...),
	}
	result.Snapshot.DiffBytes = diff.n
	return result
}

// ask puts a question of the job to a person. The sandbox is held still until the
// answer is there, so that the wait does not count as run time.
func (a *attempt) ask(ctx context.Context, question string) (answer link.Answer, err error) {
	a.tenure.ask(true)
	defer a.tenure.ask(false)
	q := link.Ask{AttemptRef: a.ref, ID: protocol.NewID("ask_"), Question: a.redact.String(question)}
	err = a.r.onSession(ctx, func(s *link.RunnerSession) error {
		var err error
		answer, err = s.Ask(ctx, q)
		return err
	})
	return answer, err
}

// giveBack returns the lease of an attempt that was stopped because the runner
// leaves or rests, so that nobody waits for its end. Its evidence follows as late evidence.
func (a *attempt) giveBack(why *executor.Stopped) {
	reason := "draining"
	if why.Reason == executor.StopPaused {
		reason = "paused"
	} else {
		a.r.mu.Lock()
		a.r.gaveBack++
		a.r.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.r.giveBackTime())
	defer cancel()
	err := a.r.onSession(ctx, func(s *link.RunnerSession) error {
		_, err := s.GiveBack(ctx, a.ref, link.GiveBack{Reason: reason, Text: why.Error(), Started: true})
		return err
	})
	if err != nil {
		a.log.Warn("attempt could not be given back, its result says so", "err", err)
	}
}

// finish puts the result into the outbox; from here on it is not lost. False: it
// could not be kept.
func (a *attempt) finish(result *protocol.CaseResult) bool {
	a.redact.Result(result)
	if f := result.Failure; f != nil {
		a.log.Info("attempt ended", "stage", f.Stage, "class", f.Class, "reason", f.Reason, "message", f.Message)
	} else {
		a.log.Info("attempt ended", "scores", len(result.Scores))
	}
	if err := finish(a.spool, result); err != nil {
		a.lose(err)
		return false
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.finished = true
	return true
}

// lose lets go of an attempt whose result the outbox cannot keep: to hold its
// lease any longer would leave the run without an end. Another attempt may have
// better luck; it counts as one that failed. Without a session the lease expires,
// since heartbeats do not name the attempt any more.
func (a *attempt) lose(why error) {
	a.log.Error("result could not be kept", "err", why)
	a.r.setDegraded("results cannot be kept: " + why.Error())
	ctx, cancel := context.WithTimeout(context.Background(), giveBackBound)
	defer cancel()
	text := protocol.Clip(a.redact.String("the runner could not keep the result: "+why.Error()), 1000)
	err := a.r.onSession(ctx, func(s *link.RunnerSession) error {
		_, err := s.GiveBack(ctx, a.ref, link.GiveBack{Reason: link.GiveBackLost, Text: text, Started: true})
		return err
	})
	if err != nil {
		a.log.Warn("attempt could not be given back, its lease will expire", "err", err)
	}
	if err := a.spool.Abandon(); err != nil {
		a.log.Error("what is left of the attempt could not be removed", "err", err)
	}
}

// finish writes a result to the outbox. On a full disk, and of one that is too large to be
// sent, it is a smaller one that says so: whoever waits for it must hear of it.
func finish(spool *outbox.Spool, result *protocol.CaseResult) error {
	doc, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("agent: encode the result: %w", err)
	}
	if len(doc) > link.MaxResult {
		if doc, err = json.Marshal(tooLarge(result, int64(len(doc)))); err != nil {
			return fmt.Errorf("agent: encode the result: %w", err)
		}
	}
	err = spool.Finish(doc)
	var full *outbox.DiskFullError
	if !errors.As(err, &full) {
		return err
	}
	small := bare(result, &protocol.Failure{Stage: protocol.StageCollect, Class: protocol.ClassInfra, Reason: protocol.ReasonDiskFull,
		Code: protocol.CodeUpstreamError, Message: "the runner's disk is full: " + err.Error(), Retryable: true})
	if doc, err = json.Marshal(small); err != nil {
		return fmt.Errorf("agent: encode the result: %w", err)
	}
	return spool.Finish(doc)
}

// tooLarge stands for a result of so many bytes that no coordinator takes it. Another
// attempt would bring the same.
func tooLarge(result *protocol.CaseResult, size int64) *protocol.CaseResult {
	return bare(result, &protocol.Failure{Stage: protocol.StageCollect, Class: protocol.ClassAgent, Reason: protocol.ReasonOverLimit, Code: protocol.CodeHarnessRunFailed,
		Message: fmt.Sprintf("the result document of %d bytes is larger than the %d that are kept", size, link.MaxResult),
		Hint:    "the log, the trace and the diff are there: see which list or text of the agent or its graders is so long",
		Limit:   &protocol.Limit{Name: "result", Unit: "bytes", Configured: link.MaxResult, Measured: float64(size)}})
}

// bare is a result without what can be long, and why it is that.
func bare(result *protocol.CaseResult, why *protocol.Failure) *protocol.CaseResult {
	return &protocol.CaseResult{
		CaseID: result.CaseID, Harness: result.Harness, EvidenceVersion: protocol.EvidenceVersion,
		Snapshot: protocol.Snapshot{Kind: result.Snapshot.Kind}, Scores: []protocol.Score{}, Failure: why,
	}
}

func malformed(caseID string, err error) *protocol.CaseResult {
	return &protocol.CaseResult{
		CaseID: caseID, EvidenceVersion: protocol.EvidenceVersion,
		Snapshot: protocol.Snapshot{Kind: protocol.EnvPrompt}, Scores: []protocol.Score{},
		Failure: &protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassConfig, Reason: protocol.ReasonMalformed,
			Code: protocol.CodeBadRequest, Message: "this runner does not understand the job: " + err.Error()},
	}
}

// counter counts what a writer took.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
