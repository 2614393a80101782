package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/agent/outbox"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/link"
)

// instance tells two processes with one credential apart.
var instance = protocol.NewID("ins_")

// keep holds a session with the coordinator until ctx ends or it is turned away
// for good.
func (r *Runner) keep(ctx context.Context) error {
	dial := link.DialConfig{
		URL:        r.cfg.URL,
		Credential: r.cfg.Credential,
		Hello:      r.hello,
		Handler:    (*handler)(r),
		CAFile:     r.cfg.CAFile,
		UserAgent:  "everdict-runner/" + r.cfg.Version,
		Timing:     r.cfg.Timing,
		Logger:     r.log,
	}
	lost := func(err error, wait time.Duration) {
		if ctx.Err() == nil {
			r.news.put(SessionLost{Err: err, Retry: wait})
			r.log.Warn("no session with the coordinator, trying again", "url", r.cfg.URL, "err", err, "in", wait.Round(time.Millisecond))
		}
	}
	// Two attempts lie at most two windows apart: a coordinator that is back must
	// see its runners within the one TTL that it gives their leases (P4).
	most := cmp.Or(r.cfg.Timing.LeaseTTL, link.DefaultTiming().LeaseTTL) / 4
	return (&link.Redialer{Dial: dial, Lost: lost, Max: most, Now: r.redial}).Run(ctx, r.serve)
}

func (r *Runner) hello() link.Hello {
	host, _ := os.Hostname()
	return link.Hello{
		Version: r.cfg.Version, OS: runtime.GOOS, Arch: runtime.GOARCH, Hostname: host,
		Capabilities: r.cfg.Capabilities, CapabilityEvidence: r.cfg.CapabilityEvidence,
		Resources: link.Resources{CPUs: float64(runtime.NumCPU()), MemoryMB: machineMemoryMB()},
		Slots:     len(r.slots), Leases: r.held(true), Instance: instance, Terms: r.terms(),
	}
}

// terms are what the owner of this machine lets the runner do now.
func (r *Runner) terms() link.Terms {
	return link.Terms{Scope: r.cfg.Scope, Paused: protocol.Clip(r.gate.why(), maxPause)}
}

// serve works over one session until it ends.
func (r *Runner) serve(ctx context.Context, s *link.RunnerSession) error {
	welcome, asked := s.Welcome()
	r.setSession(s)
	defer r.setSession(nil)
	if r.cfg.Connected != nil {
		r.cfg.Connected()
	}
	r.news.put(SessionUp{Runner: welcome.Runner, Coordinator: welcome.Version})
	r.log.Info("connected", "runner", welcome.Runner, "coordinator", welcome.Version)
	r.judge(asked, welcome.Leases)

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		// Evidence that cannot be sent waits for the next session.
		if err := r.out.Ship(ctx, &sink{session: s, url: r.cfg.URL}); err != nil && ctx.Err() == nil {
			r.log.Warn("evidence is not being sent", "err", err)
		}
	})
	for _, slot := range r.slots {
		wg.Go(func() { r.pull(ctx, s, slot) })
	}
	if r.cfg.ExitWhenIdle > 0 {
		wg.Go(func() { r.untilIdle(ctx) })
	}
	wg.Go(func() {
		select {
		case <-r.draining:
			_ = s.Drain(ctx, link.Drain{Reason: "the runner is shutting down"}) // a lost session says it as well
		case <-ctx.Done():
		}
	})
	select {
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		s.Close(link.CloseReason{Code: link.CloseNormal})
		return ctx.Err()
	}
}

func (r *Runner) setSession(s *link.RunnerSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
	if s != nil {
		r.timing = s.Timing()
	}
	close(r.arrived)
	r.arrived = make(chan struct{})
}

// onSession calls f with a live session, waiting for one and trying again on the
// next while f fails because its session has ended.
func (r *Runner) onSession(ctx context.Context, f func(*link.RunnerSession) error) error {
	for {
		r.mu.Lock()
		s, arrived := r.session, r.arrived
		r.mu.Unlock()
		if s != nil {
			err := f(s)
			if err == nil || ctx.Err() != nil || s.Err() == nil {
				return err
			}
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// slot is room for one attempt. Its request id names the wish for the next one,
// across sessions, so that an answer that was lost is given again.
type slot struct {
	free    chan struct{} // holds a token when the slot is free
	request string        // owned by whoever holds the token
}

func newSlot() *slot {
	s := &slot{free: make(chan struct{}, 1), request: protocol.NewID("req_")}
	s.free <- struct{}{}
	return s
}

// refusedPause is how long a slot rests after it had to refuse an attempt, or has
// failed at one for a reason that lies with this machine.
const refusedPause = 5 * time.Second

// rest gives the slot's token back after the pause, or when nobody wants it any
// more.
func (s *slot) rest(ctx context.Context, draining <-chan struct{}) {
	select {
	case <-time.After(refusedPause):
	case <-draining:
	case <-ctx.Done():
	}
	s.free <- struct{}{}
}

// pull fills one slot again and again until the session ends or the runner
// drains. The slot is taken before an attempt is asked for (F53).
func (r *Runner) pull(ctx context.Context, s *link.RunnerSession, slot *slot) {
	ctx, cancel := context.WithCancel(ctx)
	var heed sync.WaitGroup
	defer heed.Wait()
	defer cancel()
	heed.Go(func() {
		select {
		case <-r.draining:
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		if !r.gate.pass(ctx) {
			return
		}
		select {
		case <-slot.free:
		case <-ctx.Done():
			return
		}
		// A pause withdraws the wish.
		wish, turned, withdraw := r.gate.open(ctx)
		offer, err := s.Pull(wish, link.PullRequest{Request: slot.request})
		withdrawn := wish.Err() != nil
		withdraw()
		if err != nil {
			if withdrawn && s.Err() == nil {
				slot.request = protocol.NewID("req_") // a withdrawn wish is spent
			}
			slot.free <- struct{}{}
			if ctx.Err() != nil || s.Err() != nil {
				return
			}
			if withdrawn || errors.Is(err, link.ErrPullLost) {
				continue
			}
			// The coordinator could not answer this time. As long as there is a session the slot asks again, unless
			// the coordinator is going away.
			var remote *link.RemoteError
			again := time.After(refusedPause)
			switch {
			case errors.As(err, &remote) && remote.Code == link.CodeDraining:
				again = nil
			case remote != nil && remote.RetryAfter > 0:
				again = time.After(remote.RetryAfter.Std())
			}
			if again != nil {
				r.log.Warn("pull failed, asking again", "err", err)
			}
			select {
			case <-again:
			case <-s.Done():
				return
			case <-ctx.Done():
				return
			}
			continue
		}
		// A pause, a drain or the session's end may have come faster than the offer, and
		// may still come: begin knows.
		if rest, begun := r.begin(arrival{Offer: offer, session: s.Done(), turned: turned}, slot); !begun {
			slot.free <- struct{}{}
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return
			}
		}
	}
}

// handler is the Runner as the session's control stream sees it.
type handler Runner

// Beat implements link.RunnerHandler.
func (h *handler) Beat() link.Heartbeat {
	r := (*Runner)(h)
	free := 0
	if !r.gate.shut() {
		for _, s := range r.slots {
			free += len(s.free)
		}
	}
	r.mu.Lock()
	degraded := r.degraded
	r.mu.Unlock()
	return link.Heartbeat{Leases: r.held(false), Free: free, Degraded: degraded, Terms: r.terms()}
}

// Renewed implements link.RunnerHandler.
func (h *handler) Renewed(asked time.Time, ack link.HeartbeatAck) {
	h.news.put(Beat{})
	(*Runner)(h).judge(asked, ack.Leases)
}

// Cancel implements link.RunnerHandler.
func (h *handler) Cancel(c link.Cancel) {
	(*Runner)(h).judge(time.Now(), []link.LeaseVerdict{{Run: c.Run, Job: c.Job, Epoch: c.Epoch, Standing: link.Cancelled, Reason: c.Reason}})
}

// Drain implements link.RunnerHandler.
func (h *handler) Drain(d link.Drain) { h.log.Info("coordinator drains", "reason", d.Reason) }

// Status implements link.RunnerHandler.
func (h *handler) Status(s link.Status) {
	level := s.Level
	if !slices.Contains([]string{"info", "warn", "error"}, level) {
		level = "info"
	}
	h.news.put(Said{Text: s.Text, Level: level})
	h.log.Info("message from the coordinator", "text", s.Text, "level", s.Level)
}

// judge hands each verdict to its attempt.
func (r *Runner) judge(asked time.Time, verdicts []link.LeaseVerdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range verdicts {
		a := r.active[attemptName(v.Run, v.Epoch)]
		if a == nil {
			continue
		}
		f := freezing{ttl: v.TTL.Std(), margin: r.timing.LeaseMargin}
		if f.ttl == 0 {
			f.ttl = r.timing.LeaseTTL
		}
		if a.given {
			f = never
		}
		a.tenure.judge(verdict{standing: v.Standing, reason: v.Reason, asked: asked, freezing: f})
	}
}

// held lists the attempts that this runner holds: those that are worked on, then those
// whose results wait, the newest first. No message takes more than link.MaxLeases.
func (r *Runner) held(offsets bool) []link.HeldLease {
	acked := map[string]map[string]int64{}
	if offsets {
		for _, e := range r.out.List() {
			acked[e.Attempt.String()] = e.Acked
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Values(r.active), func(a, b *attempt) int {
		if a.finished != b.finished {
			if a.finished {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.number, a.number)
	})
	all = all[:min(len(all), link.MaxLeases)]
	held := make([]link.HeldLease, 0, len(all))
	for _, a := range all {
		l := link.HeldLease{AttemptRef: a.ref, Started: true, Finished: a.finished}
		if !a.finished {
			l.Offsets = acked[attemptName(a.ref.Run, a.ref.Epoch)]
		}
		held = append(held, l)
	}
	return held
}

// sink is one session as the outbox sees it.
type sink struct {
	session *link.RunnerSession
	url     string
}

// Open implements outbox.Sink.
func (k *sink) Open(ctx context.Context, a outbox.Attempt) (outbox.Stream, error) {
	if a.Coordinator != k.url {
		return nil, outbox.ErrNotHere
	}
	w, err := k.session.OpenEvidence(ctx, link.AttemptRef{Run: a.Run, Job: a.Job, Epoch: a.Epoch, Token: link.Secret(a.Token)})
	if err != nil {
		return nil, rejected(err)
	}
	return &stream{w}, nil
}

// rejected recognises what no repetition can mend.
func rejected(err error) error {
	var remote *link.RemoteError
	if errors.As(err, &remote) && (remote.Code == string(protocol.CodeNotFound) || remote.Code == string(protocol.CodeForbidden)) {
		return &outbox.RejectedError{Code: remote.Code, Message: remote.Message}
	}
	return err
}

// stream is an evidence stream as the outbox sees it.
type stream struct{ *link.EvidenceWriter }

// Send implements outbox.Stream. A channel that the coordinator has closed takes
// no more, and the rest goes on.
func (s *stream) Send(ctx context.Context, channel string, offset int64, p []byte) error {
	err := s.EvidenceWriter.Send(ctx, channel, offset, p)
	var closed *link.ChannelClosedError
	if errors.As(err, &closed) {
		return nil
	}
	return rejected(err)
}

// Result implements outbox.Stream.
func (s *stream) Result(ctx context.Context, doc json.RawMessage) (outbox.Ack, error) {
	ack, err := s.EvidenceWriter.Result(ctx, doc)
	if err != nil {
		var limit *link.LimitError
		if errors.As(err, &limit) { // an older runner has left it
			var result protocol.CaseResult
			_ = json.Unmarshal(doc, &result) // what cannot be read of it stays empty
			small, err := json.Marshal(tooLarge(&result, limit.Measured))
			if err != nil {
				return outbox.Ack{}, err
			}
			return s.Result(ctx, small)
		}
		return outbox.Ack{}, rejected(err)
	}
	return outbox.Ack{Status: outbox.Status(ack.Status), Code: ack.Code, Message: ack.Message}, nil
}

// Close implements outbox.Stream.
func (s *stream) Close() error {
	s.EvidenceWriter.Close()
	return nil
}
