package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/protocol"
)

// position is how far a live stream has come: the attempt, and the offsets in
// its trace and log.
type position struct{ attempt, trace, log int64 }

func (p position) String() string { return fmt.Sprintf("%d-%d-%d", p.attempt, p.trace, p.log) }

func parsePosition(s string) (p position, err error) {
	if s == "" {
		return p, nil
	}
	if _, err := fmt.Sscanf(s, "%d-%d-%d", &p.attempt, &p.trace, &p.log); err != nil || min(p.attempt, p.trace, p.log) < 0 || p.String() != s {
		return position{}, protocol.BadRequest("%q is not the id of an event of this stream", protocol.Clip(s, 80)).
			WithHint("leave Last-Event-ID out to begin at the start")
	}
	return p, nil
}

// startingAt is where a stream begins: behind the last event that was seen, or behind
// what was read before.
func startingAt(q protocol.LiveQuery) (position, error) {
	if q.After != "" {
		return parsePosition(q.After)
	}
	at := position{attempt: q.Attempt, log: q.LogOffset}
	if q.TraceCursor == "" {
		return at, nil
	}
	c, err := parseTraceCursor(q.TraceCursor)
	if err == nil && (c.attempt == at.attempt || at.attempt == 0) {
		at.attempt, at.trace = c.attempt, c.offset
	}
	return at, err
}

// Live follows a run until it is over: its status, and as it grows its trace and
// log. Every event's id resumes the stream behind it, also on another
// coordinator process.
func (s *Service) Live(ctx context.Context, p auth.Principal, id string, q protocol.LiveQuery) (<-chan protocol.LiveEvent, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	at, err := startingAt(q)
	if err != nil {
		return nil, err
	}
	l := &live{s: s, workspace: p.Workspace, id: r.ID, q: q, out: make(chan protocol.LiveEvent), at: at}
	go func() {
		defer close(l.out)
		l.run(ctx)
	}()
	return l.out, nil
}

type live struct {
	s         *Service
	workspace string
	id        string
	q         protocol.LiveQuery
	out       chan protocol.LiveEvent

	mu sync.Mutex // held while an event is given to the reader: ids are in order
	at position
}

// emit moves the position and sends one event with it; false when ctx has ended.
func (l *live) emit(ctx context.Context, move func(*position), e protocol.LiveEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at
	if move != nil {
		move(&at)
	}
	e.ID = at.String()
	select {
	case l.out <- e:
		l.at = at
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *live) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var lanes lanes
	defer lanes.Wait()
	defer cancel()
	var status protocol.Status
	var following int64
	life := lifeLane{l: l, wanted: slices.Contains(l.q.Lanes, protocol.LaneLife)}
	leave := func() {}
	defer func() { leave() }()
	for {
		leave()
		var changed <-chan struct{}
		changed, leave = l.s.watch.changed(l.id)
		r, err := l.s.cfg.Store.Run(ctx, l.workspace, l.id)
		if err != nil {
			l.s.log.WarnContext(ctx, "live stream ended", "run", l.id, "err", err)
			return
		}
		if r.Status != status {
			status = r.Status
			if !status.Terminal() && !l.emit(ctx, nil, protocol.LiveEvent{Kind: protocol.LiveStatus, Status: status}) {
				return
			}
		}
		if r.Attempt > following {
			lanes.end() // of the attempt that was superseded
			following = r.Attempt
			if !l.follow(ctx, &lanes, following) {
				return
			}
		}
		if status.Terminal() {
			lanes.end() // no byte will come that counts; all of them come before the end is told
		}
		if err := life.look(ctx, r); err != nil {
			l.s.log.WarnContext(ctx, "live stream ended", "run", l.id, "err", err)
			return
		}
		if status.Terminal() {
			l.emit(ctx, nil, protocol.LiveEvent{Kind: protocol.LiveStatus, Status: status})
			l.emit(ctx, nil, protocol.LiveEvent{Kind: protocol.LiveEnd, Status: status})
			return
		}
		select {
		case <-changed:
		case <-life.again(status):
		case <-ctx.Done():
			return
		}
	}
}

// explainEvery is how often a stream looks again at why its run waits: that changes
// with what happens to others.
const explainEvery = 5 * time.Second

// lifeLane sends the record of a run and the steps of its life.
type lifeLane struct {
	l       *live
	wanted  bool
	begun   bool
	seen    int64 // the last step that was sent
	status  protocol.Status
	at      protocol.Time
	blocked string
}

// again is due when the reason why a run waits may be another one.
func (f *lifeLane) again(status protocol.Status) <-chan time.Time {
	if !f.wanted || status.Terminal() {
		return nil
	}
	return time.After(explainEvery)
}

func (f *lifeLane) look(ctx context.Context, r *protocol.Run) error {
	if !f.wanted {
		return nil
	}
	steps, err := f.l.s.cfg.Store.RunEvents(ctx, r.ID)
	if err != nil {
		return err
	}
	steps = slices.DeleteFunc(steps, func(e protocol.RunEvent) bool { return e.Seq <= f.seen })
	if !r.Status.Terminal() {
		if err := f.l.s.explain(ctx, r); err != nil {
			return err
		}
	}
	blocked := ""
	if r.Placement != nil {
		blocked = r.Placement.BlockedReason
	}
	if f.begun && len(steps) == 0 && r.Status == f.status && blocked == f.blocked && r.UpdatedAt.Equal(f.at.Time) {
		return nil
	}
	f.begun, f.status, f.at, f.blocked = true, r.Status, r.UpdatedAt, blocked
	if len(steps) > 0 {
		f.seen = steps[len(steps)-1].Seq
	}
	if !f.l.emit(ctx, nil, protocol.LiveEvent{Kind: protocol.LiveLife, Run: r, Steps: steps}) {
		return ctx.Err()
	}
	return nil
}

// lanes are the followers of one attempt.
type lanes struct {
	sync.WaitGroup
	attempts []*evidence.Attempt
}

// end lets all who follow the attempt, which is over, come to the end of what is
// stored, and waits for those of this stream.
func (l *lanes) end() {
	for _, a := range l.attempts {
		a.Supersede()
	}
	l.Wait()
	l.attempts = nil
}

// follow starts the lanes of an attempt.
func (l *live) follow(ctx context.Context, lanes *lanes, attempt int64) bool {
	l.mu.Lock()
	if l.at.attempt != attempt {
		l.at = position{attempt: attempt}
	}
	from := l.at
	l.mu.Unlock()
	for lane, run := range map[string]func(context.Context, *evidence.Attempt, position){
		protocol.LaneTrace: l.trace, protocol.LaneLog: l.logs,
	} {
		if !slices.Contains(l.q.Lanes, lane) {
			continue
		}
		a, err := l.s.cfg.Evidence.Attempt(l.id, attempt)
		if err != nil {
			l.s.log.WarnContext(ctx, "live stream ended", "run", l.id, "err", err)
			return false
		}
		lanes.attempts = append(lanes.attempts, a)
		lanes.Go(func() {
			defer a.Close()
			run(ctx, a, from)
		})
	}
	return true
}

func (l *live) trace(ctx context.Context, a *evidence.Attempt, from position) {
	for rec, err := range a.Trace(ctx, evidence.TraceOptions{Offset: from.trace, Follow: true}) {
		if err != nil || !l.emit(ctx, func(p *position) { p.trace = rec.Next }, protocol.LiveEvent{
			Kind: protocol.LiveTrace, Events: []protocol.TraceEvent{event(rec)}, Total: a.Lines(protocol.ChannelTrace), Attempt: from.attempt,
		}) {
			return
		}
	}
}

func (l *live) logs(ctx context.Context, a *evidence.Attempt, from position) {
	for c, err := range a.Log(ctx, evidence.LogOptions{Stream: l.q.Stream, Offset: from.log, Follow: true}) {
		if err != nil || !l.emit(ctx, func(p *position) { p.log = c.Next() }, protocol.LiveEvent{
			Kind: protocol.LiveLog, Stream: c.Stream, Bytes: slices.Clone(c.Text()), Attempt: from.attempt, Offset: c.Offset, Next: c.Next(),
		}) {
			return
		}
	}
}
