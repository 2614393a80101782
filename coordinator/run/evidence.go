package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

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

// attempt opens the evidence of one of the run's attempts, 0 being the newest, and
// says which it is; nil when there is none yet.
func (s *Service) attempt(r *protocol.Run, wanted int64) (*evidence.Attempt, int64, error) {
	n, err := attemptOf(r, wanted)
	if err != nil || n == 0 {
		return nil, n, err
	}
	a, err := s.cfg.Evidence.Attempt(r.ID, n)
	return a, n, err
}

// attemptOf is the attempt that is wanted, 0 being the newest; 0 when there is none yet.
func attemptOf(r *protocol.Run, wanted int64) (int64, error) {
	if wanted > r.Attempt {
		return 0, protocol.NotFound("run %s has no attempt %d: the newest is %d", r.ID, wanted, r.Attempt).
			WithHint("GET /runs/%s/attempts lists them", r.ID)
	}
	return cmp.Or(wanted, r.Attempt), nil
}

// Logs opens the run's log, or the part of it that is asked for, as bytes, with its
// gaps marked.
func (s *Service) Logs(ctx context.Context, p auth.Principal, id string, q protocol.LogQuery) (io.ReadCloser, protocol.LogView, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, protocol.LogView{}, err
	}
	view := protocol.LogView{Status: r.Status}
	a, n, err := s.attempt(r, q.Attempt)
	if err != nil || a == nil {
		return nil, view, err
	}
	view.Found, view.Attempt = true, n
	view.Bytes = a.Summary().Channels[protocol.ChannelLog]
	if view.Offset, view.Next, err = logPart(a, q, view.Bytes); err != nil {
		return nil, view, errors.Join(err, a.Close())
	}
	pr, pw := io.Pipe()
	go func() {
		defer a.Close()
		pw.CloseWithError(copyLog(pw, a, ctx, evidence.LogOptions{Stream: q.Stream, Offset: view.Offset}, view.Next))
	}()
	return pr, view, nil
}

// copyLog writes a log up to the byte end.
func copyLog(w io.Writer, a *evidence.Attempt, ctx context.Context, o evidence.LogOptions, end int64) error {
	for c, err := range a.Log(ctx, o) {
		if err != nil {
			return err
		}
		if c.Offset > end || c.Offset == end && c.Gap == nil {
			return nil
		}
		if over := c.Next() - end; over > 0 {
			c.Data = c.Data[:int64(len(c.Data))-over]
		}
		if _, err := w.Write(c.Text()); err != nil {
			return err
		}
	}
	return nil
}

// lineWithin is how far from where a page would begin or end a line's end is looked
// for.
const lineWithin = 64 << 10

// logPart is which bytes of a log of size a query means.
func logPart(a *evidence.Attempt, q protocol.LogQuery, size int64) (from, to int64, err error) {
	from, to = min(q.Offset, size), size
	if q.Tail > 0 {
		from = max(from, size-q.Tail)
	}
	if q.Limit == 0 || size == 0 {
		return from, to, nil
	}
	log, err := a.Open(protocol.ChannelLog)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	if q.Before > 0 {
		to = min(q.Before, size)
		from = max(0, to-q.Limit)
	}
	if q.Before > 0 || q.Tail > 0 {
		if from > 0 {
			if from, err = lineStart(log, from, to); err != nil {
				return 0, 0, err
			}
		}
		return from, to, nil
	}
	if to = min(from+q.Limit, size); to < size {
		to, err = lineEnd(log, from, to)
	}
	return from, to, err
}

// lineStart is the first beginning of a line from on, or, where lines are too long for
// that, of a character.
func lineStart(log io.ReaderAt, from, to int64) (int64, error) {
	b := make([]byte, min(lineWithin, to-from)+1)
	n, err := log.ReadAt(b, from-1)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if i := bytes.IndexByte(b[:n], '\n'); i >= 0 && from+int64(i) < to {
		return from + int64(i), nil
	}
	for i := 1; i < min(n, utf8.UTFMax); i++ {
		if utf8.RuneStart(b[i]) {
			return from + int64(i) - 1, nil
		}
	}
	return from, nil
}

// lineEnd is the last end of a line before to, or of a character.
func lineEnd(log io.ReaderAt, from, to int64) (int64, error) {
	at := max(from, to-lineWithin)
	b := make([]byte, to-at)
	n, err := log.ReadAt(b, at)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
		return at + int64(i) + 1, nil
	}
	for i := n - 1; i > max(0, n-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:n]) {
				return at + int64(i), nil
			}
			break
		}
	}
	return to, nil
}

// Trace is a page of the run's trace. The cursor is where the next event begins;
// when another attempt has begun meanwhile, that is its first one.
func (s *Service) Trace(ctx context.Context, p auth.Principal, id string, q protocol.TraceQuery) (protocol.TracePage, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return protocol.TracePage{}, err
	}
	page := protocol.TracePage{Status: r.Status, Events: []protocol.TraceEvent{}}
	var at traceCursor
	if q.Cursor != "" {
		if at, err = parseTraceCursor(q.Cursor); err != nil {
			return page, err
		}
	}
	a, n, err := s.attempt(r, q.Attempt)
	if err != nil || a == nil {
		return page, err
	}
	defer a.Close()
	if at.attempt != n {
		at = traceCursor{attempt: n}
	}
	grows := n == r.Attempt && !r.Status.Terminal()
	page.Total = a.Lines(protocol.ChannelTrace)
	page.SealedAt = r.FinishedAt
	for rec, err := range a.Trace(ctx, evidence.TraceOptions{Offset: at.offset}) {
		if err != nil {
			return page, err
		}
		if len(page.Events) >= q.Limit {
			page.Next = traceCursor{n, rec.Offset}.String()
			break
		}
		page.Events = append(page.Events, event(rec))
		if grows {
			page.Next = traceCursor{n, rec.Next}.String()
		}
	}
	if page.Next == "" && grows {
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

// Diff opens what the run changed, or what one of its attempts did that does not count.
func (s *Service) Diff(ctx context.Context, p auth.Principal, id string, attempt int64) (io.ReadCloser, error) {
	r, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	n, err := attemptOf(r, attempt)
	if err != nil {
		return nil, err
	}
	none := protocol.NotFound("run %s has no diff: it is %s", r.ID, r.Status).
		WithHint("a run has one when it is over, if it had a workspace and came that far: GET /runs/%s", r.ID)
	if n < r.Attempt {
		none = protocol.NotFound("attempt %d of run %s has no diff", n, r.ID).
			WithHint("an attempt has one when it left a result, if it had a workspace and came that far: GET /runs/%s/attempts", r.ID)
	}
	stored, err := s.cfg.Store.Attempt(ctx, r.ID, n)
	if errors.Is(err, store.ErrNotFound) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	// Before the result has come, what is stored may be the beginning of a diff.
	if stored.Result == nil || n == r.Attempt && !r.Status.Terminal() {
		return nil, none
	}
	a, err := s.cfg.Evidence.Attempt(r.ID, n)
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
