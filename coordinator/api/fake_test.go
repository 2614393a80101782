package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/pairing"
	"github.com/everdict/everdict/coordinator/registry"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// fakeRuns behaves like runs without a queue: they are kept in a real store,
// what they name has to exist, and tests write their evidence.
type fakeRuns struct {
	store     *store.Store
	harnesses *registry.Registry
	runners   *pairing.Runners

	mu       sync.Mutex
	changed  chan struct{} // closed when evidence or a status changes
	evidence map[string]*fakeEvidence
	// broken is returned by Get, to see what the API makes of an error that is
	// not a problem; a panic if it is errPanic.
	broken error
}

type fakeEvidence struct {
	log    []byte
	events []protocol.TraceEvent
	sealed *protocol.Time
	diff   []byte
}

var errPanic = errors.New("panic, please")

func newFakeRuns(st *store.Store, harnesses *registry.Registry, runners *pairing.Runners) *fakeRuns {
	return &fakeRuns{store: st, harnesses: harnesses, runners: runners, changed: make(chan struct{}), evidence: make(map[string]*fakeEvidence)}
}

func (f *fakeRuns) Submit(ctx context.Context, p auth.Principal, req *protocol.RunRequest) (protocol.Run, error) {
	if err := req.Validate(); err != nil {
		return protocol.Run{}, err
	}
	h, err := f.harnesses.Resolve(ctx, p.Workspace, req.Harness)
	if err != nil {
		return protocol.Run{}, err
	}
	switch id, self := strings.CutPrefix(req.Target(), protocol.TargetSelfPrefix); {
	case req.Target() == protocol.TargetAuto:
	case self:
		if _, err := f.runners.Get(ctx, p.Workspace, id); err != nil {
			return protocol.Run{}, err
		}
	default:
		return protocol.Run{}, protocol.NotFound("no runtime %q", req.Target()).WithHint("leave runtime out")
	}
	now := protocol.At(time.Now())
	run := protocol.Run{
		ID: protocol.NewID(protocol.RunPrefix), Tenant: p.Workspace, Status: protocol.StatusQueued, CaseID: req.Case.ID, Harness: req.Harness,
		ResolvedHarness: &protocol.HarnessRef{ID: h.ID, Version: h.Version}, Kind: "eval", Class: req.Priority, Runtime: req.Target(),
		Trigger: req.Trigger, CreatedBy: p.Subject, Origin: req.Origin, CreatedAt: now, UpdatedAt: now,
	}
	spec, err := json.Marshal(req.Case)
	if err != nil {
		return protocol.Run{}, err
	}
	err = f.store.DB().Apply(ctx, func(tx *sqlite.Tx) error { return f.store.InsertRun(tx, &run, spec) })
	return run, err
}

func (f *fakeRuns) Pools(context.Context, auth.Principal) ([]protocol.Pool, error) { return nil, nil }

func (f *fakeRuns) Get(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	f.mu.Lock()
	broken := f.broken
	f.mu.Unlock()
	if errors.Is(broken, errPanic) {
		panic("ak_" + strings.Repeat("x", 32) + " fell over")
	}
	if broken != nil {
		return protocol.Run{}, broken
	}
	run, err := f.store.Run(ctx, p.Workspace, id)
	if errors.Is(err, store.ErrNotFound) {
		return protocol.Run{}, protocol.NotFound("no run %q in this workspace", protocol.Clip(id, 80)).WithHint("GET /runs lists them")
	}
	if err != nil {
		return protocol.Run{}, err
	}
	return *run, nil
}

func (f *fakeRuns) List(ctx context.Context, p auth.Principal, filter store.RunFilter) ([]protocol.Run, string, error) {
	filter.Workspace = p.Workspace
	return f.store.Runs(ctx, filter)
}

func (f *fakeRuns) Count(ctx context.Context, p auth.Principal, filter store.RunFilter) (int64, bool, error) {
	filter.Workspace = p.Workspace
	return f.store.CountRuns(ctx, filter)
}

func (f *fakeRuns) Cancel(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	return f.move(ctx, p, id, protocol.StatusFailed, func(r *protocol.Run) error {
		if r.Status.Terminal() {
			return protocol.Conflict("run %s is over: %s", id, r.Status).WithHint("GET /runs/%s says how it stands", id)
		}
		r.Error = &protocol.RunError{Code: protocol.CodeCancelled, Message: "cancelled"}
		return nil
	})
}

func (f *fakeRuns) Approve(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error) {
	return f.move(ctx, p, id, protocol.StatusQueued, suspended(d))
}

func (f *fakeRuns) Reject(ctx context.Context, p auth.Principal, id string, d protocol.Decision) (protocol.Run, error) {
	return f.move(ctx, p, id, protocol.StatusFailed, suspended(d))
}

func (f *fakeRuns) Again(ctx context.Context, p auth.Principal, id string) (protocol.Run, error) {
	run, err := f.Get(ctx, p, id)
	if err == nil && !run.Status.Terminal() {
		return protocol.Run{}, protocol.Conflict("run %s is not over: it is %s", id, run.Status).WithHint("GET /runs/%s says how it stands", id)
	}
	if err == nil {
		run.ID, run.Origin = protocol.NewID(protocol.RunPrefix), &protocol.Origin{Cause: "run", CausedByRunID: id}
	}
	return run, err
}

func (f *fakeRuns) Summary(context.Context, auth.Principal) (protocol.Summary, error) {
	return protocol.Summary{At: protocol.At(time.Now()), Pools: []protocol.PoolUse{}, Waiting: []protocol.WaitGroup{}, Hours: []protocol.Outcomes{},
		Day: protocol.Outcomes{Failures: map[string]int64{}}}, nil
}

func suspended(d protocol.Decision) func(*protocol.Run) error {
	return func(r *protocol.Run) error {
		if r.Status != protocol.StatusSuspended {
			return protocol.Conflict("run %s does not wait for anybody: it is %s", r.ID, r.Status).WithHint("GET /runs/%s says how it stands", r.ID)
		}
		r.Placement = &protocol.RunPlace{Why: d.Comment}
		return nil
	}
}

func (f *fakeRuns) move(ctx context.Context, p auth.Principal, id string, to protocol.Status, check func(*protocol.Run) error) (protocol.Run, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return protocol.Run{}, err
	}
	err := f.store.DB().Write(ctx, func(tx *sqlite.Tx) error {
		return f.store.UpdateRun(tx, id, func(r *protocol.Run) error {
			if err := check(r); err != nil {
				return err
			}
			r.Status = to
			return nil
		})
	})
	if err != nil {
		return protocol.Run{}, err
	}
	f.wake()
	return f.Get(ctx, p, id)
}

// HandOut, TakeBack and Deliver keep to what a client sees: a payload is out between the
// first and one of the others.
func (f *fakeRuns) HandOut(ctx context.Context, p auth.Principal, id string, req protocol.PayloadRequest) (*protocol.Payload, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	r, err := f.move(ctx, p, id, protocol.StatusRunning, func(r *protocol.Run) error {
		if r.Status != protocol.StatusQueued {
			return protocol.Conflict("run %s is %s", r.ID, r.Status).WithHint("GET /runs/%s says how it stands", r.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &protocol.Payload{Version: protocol.PayloadVersion, Attempt: 1, RunnerToken: "rnr_x", LeaseToken: "x", Job: protocol.Job{RunID: r.ID}}, nil
}

func (f *fakeRuns) TakeBack(ctx context.Context, p auth.Principal, id string) error {
	_, err := f.move(ctx, p, id, protocol.StatusQueued, func(r *protocol.Run) error {
		if r.Status != protocol.StatusRunning {
			return protocol.Conflict("run %s is %s", r.ID, r.Status).WithHint("GET /runs/%s says how it stands", r.ID)
		}
		return nil
	})
	return err
}

func (f *fakeRuns) Deliver(ctx context.Context, p auth.Principal, id string, attempt int64, result *protocol.CaseResult) (protocol.PayloadResult, error) {
	_, err := f.move(ctx, p, id, protocol.StatusSucceeded, func(*protocol.Run) error { return nil })
	return protocol.PayloadResult{RunID: id, Attempt: attempt}, err
}

func (f *fakeRuns) Events(ctx context.Context, p auth.Principal, id string) ([]protocol.RunEvent, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	return f.store.RunEvents(ctx, id)
}

func (f *fakeRuns) Attempts(ctx context.Context, p auth.Principal, id string) ([]protocol.Attempt, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	return nil, nil // the API makes an empty list of it
}

func (f *fakeRuns) Placement(ctx context.Context, p auth.Principal, id string) (protocol.PlacementView, error) {
	run, err := f.Get(ctx, p, id)
	if err != nil {
		return protocol.PlacementView{}, err
	}
	return protocol.PlacementView{Status: run.Status, Found: true, Placement: &protocol.CasePlacement{
		Phase: "queued", BlockedReason: "no runner is online", Events: []protocol.PlacementEvent{},
	}}, nil
}

func (f *fakeRuns) Logs(ctx context.Context, p auth.Principal, id string, q protocol.LogQuery) (io.ReadCloser, protocol.LogView, error) {
	run, err := f.Get(ctx, p, id)
	if err != nil {
		return nil, protocol.LogView{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.evidence[id]
	if e == nil {
		return nil, protocol.LogView{Status: run.Status}, nil
	}
	size := int64(len(e.log))
	from := min(q.Offset, size)
	if q.Tail > 0 {
		from = max(from, size-q.Tail)
	}
	return io.NopCloser(bytes.NewReader(e.log[from:])), protocol.LogView{Status: run.Status, Found: true, Bytes: size}, nil
}

// SearchLog finds the first line with the text.
func (f *fakeRuns) SearchLog(ctx context.Context, p auth.Principal, id string, q protocol.LogSearch) (protocol.LogMatches, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return protocol.LogMatches{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found := protocol.LogMatches{Matches: []protocol.LogMatch{}, Done: true}
	if e := f.evidence[id]; e != nil {
		if i := bytes.Index(e.log, []byte(q.Text)); i >= 0 {
			found.Matches = append(found.Matches, protocol.LogMatch{Text: q.Text, Offset: int64(i)})
		}
	}
	return found, nil
}

func (f *fakeRuns) Trace(ctx context.Context, p auth.Principal, id string, q protocol.TraceQuery) (protocol.TracePage, error) {
	run, err := f.Get(ctx, p, id)
	if err != nil {
		return protocol.TracePage{}, err
	}
	from := 0
	if q.Cursor != "" {
		if from, err = strconv.Atoi(q.Cursor); err != nil {
			return protocol.TracePage{}, store.ErrBadCursor
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	page := protocol.TracePage{Status: run.Status}
	if e := f.evidence[id]; e != nil {
		to := min(from+q.Limit, len(e.events))
		page.Events, page.Total, page.SealedAt = e.events[from:to], int64(len(e.events)), e.sealed
		if to < len(e.events) {
			page.Next = strconv.Itoa(to)
		}
	}
	return page, nil
}

func (f *fakeRuns) Diff(ctx context.Context, p auth.Principal, id string, attempt int64) (io.ReadCloser, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.evidence[id]; e != nil && e.diff != nil {
		return io.NopCloser(bytes.NewReader(e.diff)), nil
	}
	return nil, protocol.NotFound("run %s has no diff yet", id).WithHint("GET /runs/%s says how it stands", id)
}

// Follow says hello, and nothing more.
func (f *fakeRuns) Follow(ctx context.Context, p auth.Principal, after string) (<-chan protocol.FeedEvent, error) {
	if after == "nonsense" {
		return nil, protocol.BadRequest("Last-Event-ID: not an id of this stream")
	}
	out := make(chan protocol.FeedEvent)
	go func() {
		defer close(out)
		select {
		case out <- protocol.FeedEvent{ID: "f-1", Kind: protocol.FeedHello, At: protocol.At(time.Now())}:
			<-ctx.Done()
		case <-ctx.Done():
		}
	}()
	return out, nil
}

// Live sends what is new in evidence until the run is over.
func (f *fakeRuns) Live(ctx context.Context, p auth.Principal, id string, q protocol.LiveQuery) (<-chan protocol.LiveEvent, error) {
	if _, err := f.Get(ctx, p, id); err != nil {
		return nil, err
	}
	var logged, traced int
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "%d-%d", &logged, &traced); err != nil {
			return nil, protocol.BadRequest("Last-Event-ID: not an id of this stream")
		}
	}
	out := make(chan protocol.LiveEvent)
	go func() {
		defer close(out)
		send := func(e protocol.LiveEvent) bool {
			e.ID = fmt.Sprintf("%d-%d", logged, traced)
			select {
			case out <- e:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for {
			f.mu.Lock()
			changed := f.changed
			var e fakeEvidence
			if known := f.evidence[id]; known != nil {
				e = *known
			}
			f.mu.Unlock()
			run, err := f.Get(ctx, p, id)
			if err != nil {
				return
			}
			for _, lane := range q.Lanes {
				switch {
				case lane == protocol.LaneLog && len(e.log) > logged:
					chunk := e.log[logged:]
					logged = len(e.log)
					if !send(protocol.LiveEvent{Kind: protocol.LiveLog, Bytes: chunk}) {
						return
					}
				case lane == protocol.LaneTrace && len(e.events) > traced:
					fresh := e.events[traced:]
					traced = len(e.events)
					if !send(protocol.LiveEvent{Kind: protocol.LiveTrace, Events: fresh, Total: int64(len(e.events))}) {
						return
					}
				}
			}
			if run.Status.Terminal() {
				send(protocol.LiveEvent{Kind: protocol.LiveEnd, Status: run.Status})
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// write changes the evidence of a run.
func (f *fakeRuns) write(id string, change func(*fakeEvidence)) {
	f.mu.Lock()
	if f.evidence[id] == nil {
		f.evidence[id] = new(fakeEvidence)
	}
	change(f.evidence[id])
	f.mu.Unlock()
	f.wake()
}

func (f *fakeRuns) breakWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
}

func (f *fakeRuns) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}
