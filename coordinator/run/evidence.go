package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// Bounds of what GET /runs/{id} carries inline; the whole is at the routes of its
// own.
const (
	inlineTraceEvents = 5000
	inlineTraceBytes  = 4 << 20
	inlineDiffBytes   = 1 << 20
)

// result is what the run's last attempt produced, with its trace and diff up to
// their bounds.
func (s *Service) result(ctx context.Context, r *protocol.Run) (*protocol.CaseResult, error) {
	a, err := s.cfg.Store.Attempt(ctx, r.ID, r.Attempt)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil || a.Result == nil || a.LateAt != nil { // a late result is the attempt's, not the run's
		return nil, err
	}
	res := a.Result
	ev, err := s.cfg.Evidence.Attempt(r.ID, r.Attempt)
	if err != nil {
		return nil, err
	}
	defer ev.Close()
	for rec, err := range ev.Trace(ctx, evidence.TraceOptions{}) {
		if err != nil {
			return nil, err
		}
		if len(res.Trace) >= inlineTraceEvents || rec.Next > inlineTraceBytes {
			res.TraceTruncated = true
			break
		}
		res.Trace = append(res.Trace, event(rec))
	}
	if res.Snapshot.Kind != protocol.EnvRepo {
		return res, nil
	}
	diff, size, err := ev.Diff(inlineDiffBytes)
	if err != nil {
		return nil, err
	}
	res.Snapshot.Diff, res.Snapshot.DiffBytes, res.Snapshot.DiffTruncated = string(diff), size, int64(len(diff)) < size
	return res, nil
}

// event is a record of a trace as it is shown: one that cannot be read says so.
func event(rec evidence.TraceRecord) protocol.TraceEvent {
	if rec.Bad == "" {
		return rec.Event
	}
	return protocol.TraceEvent{Kind: protocol.EventError, Message: "[trace] " + rec.Bad}
}

// attempt opens the evidence of the run's newest attempt; nil when there is none.
func (s *Service) attempt(r *protocol.Run) (*evidence.Attempt, error) {
	if r.Attempt == 0 {
		return nil, nil
	}
	return s.cfg.Evidence.Attempt(r.ID, r.Attempt)
}

// Logs opens the run's log as bytes, with its gaps marked.
func (s *Service) Logs(ctx context.Context, p auth.Principal, id string, q protocol.LogQuery) (io.ReadCloser, protocol.LogView, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, protocol.LogView{}, err
	}
	view := protocol.LogView{Status: r.Status}
	a, err := s.attempt(r)
	if err != nil || a == nil {
		return nil, view, err
	}
	view.Found = true
	view.Bytes = a.Summary().Channels[protocol.ChannelLog]
	offset := q.Offset
	if q.Tail > 0 {
		offset = max(offset, view.Bytes-q.Tail)
	}
	pr, pw := io.Pipe()
	go func() {
		defer a.Close()
		pw.CloseWithError(copyLog(pw, a, ctx, evidence.LogOptions{Stream: q.Stream, Offset: offset}))
	}()
	return pr, view, nil
}

func copyLog(w io.Writer, a *evidence.Attempt, ctx context.Context, o evidence.LogOptions) error {
	for c, err := range a.Log(ctx, o) {
		if err != nil {
			return err
		}
		if _, err := w.Write(c.Text()); err != nil {
			return err
		}
	}
	return nil
}

// Trace is a page of the run's trace. The cursor is where the next event begins;
// when another attempt has begun meanwhile, that is its first one.
func (s *Service) Trace(ctx context.Context, p auth.Principal, id, cursor string, limit int) (protocol.TracePage, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.TracePage{}, err
	}
	page := protocol.TracePage{Status: r.Status, Events: []protocol.TraceEvent{}}
	at := traceCursor{attempt: r.Attempt}
	if cursor != "" {
		if at, err = parseTraceCursor(cursor); err != nil {
			return page, err
		}
		if at.attempt != r.Attempt {
			at = traceCursor{attempt: r.Attempt}
		}
	}
	a, err := s.attempt(r)
	if err != nil || a == nil {
		return page, err
	}
	defer a.Close()
	page.Total = a.Lines(protocol.ChannelTrace)
	if r.FinishedAt != nil {
		page.SealedAt = r.FinishedAt
	}
	for rec, err := range a.Trace(ctx, evidence.TraceOptions{Offset: at.offset}) {
		if err != nil {
			return page, err
		}
		if len(page.Events) >= limit {
			page.Next = traceCursor{r.Attempt, rec.Offset}.String()
			break
		}
		page.Events = append(page.Events, event(rec))
		if !r.Status.Terminal() {
			page.Next = traceCursor{r.Attempt, rec.Next}.String()
		}
	}
	if page.Next == "" && !r.Status.Terminal() {
		page.Next = at.String()
	}
	return page, nil
}

// traceCursor is a place in the trace of one attempt.
type traceCursor struct{ attempt, offset int64 }

func (c traceCursor) String() string { return fmt.Sprintf("%d-%d", c.attempt, c.offset) }

func parseTraceCursor(s string) (c traceCursor, err error) {
	if _, err := fmt.Sscanf(s, "%d-%d", &c.attempt, &c.offset); err != nil || min(c.attempt, c.offset) < 0 || c.String() != s {
		return traceCursor{}, protocol.BadRequest("cursor: not one that this trace has given").WithHint("leave it out to begin at the first event")
	}
	return c, nil
}

// Diff opens what the run changed.
func (s *Service) Diff(ctx context.Context, p auth.Principal, id string) (io.ReadCloser, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	none := protocol.NotFound("run %s has no diff: it is %s", r.ID, r.Status).
		WithHint("a run has one when it is over, if it had a workspace and came that far: GET /runs/%s", r.ID)
	stored, err := s.cfg.Store.Attempt(ctx, r.ID, r.Attempt)
	if errors.Is(err, store.ErrNotFound) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	// Before the result has come, what is stored may be the beginning of a diff.
	if stored.Result == nil || !r.Status.Terminal() {
		return nil, none
	}
	a, err := s.cfg.Evidence.Attempt(r.ID, r.Attempt)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	body, err := a.Open(protocol.ChannelDiff)
	switch {
	case err == nil:
		return body, nil
	case !errors.Is(err, evidence.ErrNotFound):
		return nil, err
	case stored.Result.Snapshot.Kind != protocol.EnvRepo:
		return nil, none
	}
	return io.NopCloser(new(noBytes)), nil // the agent changed nothing
}

type noBytes struct{}

func (*noBytes) Read([]byte) (int, error) { return 0, io.EOF }
