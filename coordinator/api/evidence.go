package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/protocol"
)

const (
	// logTail is how much of a log the JSON view shows: its end.
	logTail = 4 << 20
	// logMarks is room beside it for lines that mark gaps.
	logMarks = 64 << 10
	// logPage is the size of a page of a log when none is asked for.
	logPage = 256 << 10
	// tracePage is the size of a page of a trace when none is asked for, and of
	// the steps in which a whole trace is read.
	tracePage = 1000
)

// attemptQuery picks the attempt whose evidence is meant.
type attemptQuery struct {
	Attempt int64 `query:"attempt" minimum:"1" description:"the attempt whose evidence is meant, also one that was superseded; without it, the newest"`
}

func (q *query) attempt() int64 { return q.number("attempt", 1, 1<<53) }

type logsQuery struct {
	Stream string `query:"stream" enum:"stdout,stderr" description:"one stream; without it, both as they came"`
	Raw    bool   `query:"raw" description:"the bytes as they were written, as text/plain"`
	Offset int64  `query:"offset" description:"first byte wanted"`
	Tail   int64  `query:"tail" description:"only so many bytes from the end"`
	Limit  int64  `query:"limit" minimum:"1" maximum:"4194304" description:"only so many bytes, from offset on; a page of whole lines"`
	Before int64  `query:"before" description:"with limit: the bytes before this one"`
	Colors bool   `query:"colors" description:"keep colour sequences (ESC [ ... m) in the view"`
}

type logSearchQuery struct {
	Query  string `query:"q" required:"true" minLength:"1" maxLength:"200" description:"the text to look for"`
	Case   bool   `query:"case" description:"a and A differ"`
	Stream string `query:"stream" enum:"stdout,stderr"`
	Offset int64  `query:"offset" description:"first byte to look at: next of the answer before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" description:"how many matches; default 100"`
}

type traceQuery struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000"`
	Format string `query:"format" enum:"json,jsonl" description:"jsonl, or Accept: application/x-ndjson, streams all of it line by line"`
}

func (s *Server) evidenceRoutes() []route {
	return []route{
		stream("/runs/{id}/logs", "getRunLogs", "A run's log, as a view or with raw=1 as bytes", mediaJSON, (*Server).runLogs).
			action(auth.RunsRead).with(runID{}, attemptQuery{}, logsQuery{}).shows(protocol.LogView{}),
		get("/runs/{id}/logs/search", "searchRunLogs", "Find a text in a run's log", (*Server).searchLogs).
			action(auth.RunsRead).with(runID{}, attemptQuery{}, logSearchQuery{}),
		stream("/runs/{id}/trace", "getRunTrace", "What happened in a run, step by step", mediaJSON, (*Server).runTrace).
			action(auth.RunsRead).with(runID{}, attemptQuery{}, traceQuery{}).shows([]protocol.TraceEvent{}),
		stream("/runs/{id}/trajectory", "getRunTrajectory", "A whole, sealed trace", mediaJSON, (*Server).runTrajectory).
			action(auth.RunsRead).with(runID{}).shows(protocol.Trajectory{}),
		stream("/runs/{id}/trajectory/live", "getRunLiveTrajectory", "All of a trace that is there so far", mediaJSON, (*Server).runLiveTrajectory).
			action(auth.RunsRead).with(runID{}).shows(protocol.LiveTrajectory{}),
		stream("/runs/{id}/diff", "getRunDiff", "What a run changed, as git apply takes it", mediaDiff, (*Server).runDiff).
			action(auth.RunsRead).with(runID{}, attemptQuery{}),
	}
}

// shows describes the answer of a route that writes it itself.
func (rt route) shows(answer any) route {
	rt.answer = answer
	return rt
}

func (s *Server) runLogs(c *call) error {
	q := c.query()
	raw := q.bool("raw")
	lq := protocol.LogQuery{
		Attempt: q.attempt(),
		Stream:  q.oneOf("stream", protocol.StreamStdout, protocol.StreamStderr),
		Offset:  q.number("offset", 0, 1<<62),
		Tail:    q.number("tail", 1, 1<<62),
		Limit:   q.number("limit", 1, logTail),
		Before:  q.number("before", 1, 1<<62),
	}
	colors := q.bool("colors")
	if lq.Before > 0 && lq.Limit == 0 {
		lq.Limit = logPage
	}
	if err := q.err(); err != nil {
		return err
	}
	if raw != nil && *raw || raw == nil && wants(c.r, mediaText) {
		return s.rawLogs(c, lq)
	}
	if lq.Limit == 0 && (lq.Tail == 0 || lq.Tail > logTail) {
		lq.Tail = logTail
	}
	body, view, err := s.cfg.Runs.Logs(c.r.Context(), c.principal, c.path("id"), lq)
	if err != nil {
		return err
	}
	if body == nil {
		return c.json(http.StatusOK, &view, false)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, logTail+logMarks))
	if err != nil {
		return fmt.Errorf("api: read the log: %w", err)
	}
	clean := evidence.Sanitizer{Colors: colors != nil && *colors}
	view.Text = string(clean.Flush(clean.Append(make([]byte, 0, len(b)), b)))
	view.Truncated = view.Bytes-lq.Offset > lq.Tail
	if lq.Limit > 0 {
		view.Truncated = view.Offset > 0 || view.Next < view.Bytes
	}
	return c.json(http.StatusOK, &view, false)
}

func (s *Server) searchLogs(c *call) (protocol.LogMatches, error) {
	q := c.query()
	search := protocol.LogSearch{
		Attempt: q.attempt(), Text: q.get("q"), Stream: q.oneOf("stream", protocol.StreamStdout, protocol.StreamStderr),
		Offset: q.number("offset", 0, 1<<62), Limit: int(q.number("limit", 1, protocol.MaxListed)),
	}
	if exact := q.bool("case"); exact != nil {
		search.Case = *exact
	}
	if n := len(search.Text); n < 1 || n > 200 {
		q.fault("q", "1 to 200 bytes of text")
	}
	if err := q.err(); err != nil {
		return protocol.LogMatches{}, err
	}
	search.Limit = cmp.Or(search.Limit, 100)
	return s.cfg.Runs.SearchLog(c.r.Context(), c.principal, c.path("id"), search)
}

func (s *Server) rawLogs(c *call, lq protocol.LogQuery) error {
	body, view, err := s.cfg.Runs.Logs(c.r.Context(), c.principal, c.path("id"), lq)
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", mediaText+"; charset=utf-8")
	header.Set("X-Everdict-Run-Status", string(view.Status))
	header.Set("X-Everdict-Log-Bytes", strconv.FormatInt(view.Bytes, 10))
	return c.copy(body)
}

// copy sends a body that is open and closes it; nil is an empty one.
func (c *call) copy(body io.ReadCloser) error {
	c.w.WriteHeader(http.StatusOK)
	if body == nil {
		return nil
	}
	_, err := io.Copy(&c.w, body)
	if c.r.Context().Err() != nil {
		err = nil // the client is gone
	}
	return errors.Join(err, body.Close())
}

func (s *Server) runDiff(c *call) error {
	q := c.query()
	attempt := q.attempt()
	if err := q.err(); err != nil {
		return err
	}
	body, err := s.cfg.Runs.Diff(c.r.Context(), c.principal, c.path("id"), attempt)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", mediaDiff+"; charset=utf-8")
	return c.copy(body)
}

func (s *Server) runTrace(c *call) error {
	q := c.query()
	format := q.oneOf("format", "json", "jsonl")
	tq := protocol.TraceQuery{Attempt: q.attempt(), Cursor: q.get("cursor"), Limit: int(q.number("limit", 1, protocol.MaxListed))}
	if err := q.err(); err != nil {
		return err
	}
	lines := format == "jsonl" || format == "" && wants(c.r, mediaLines)
	if lines && tq.Limit == 0 {
		return s.traceLines(c, tq)
	}
	tq.Limit = cmp.Or(tq.Limit, tracePage)
	page, err := s.cfg.Runs.Trace(c.r.Context(), c.principal, c.path("id"), tq)
	if err != nil {
		return badCursor(err)
	}
	c.next(page.Next)
	c.w.Header().Set(totalHeader, strconv.FormatInt(page.Total, 10))
	if !lines {
		return c.json(http.StatusOK, &page.Events, true)
	}
	c.w.Header().Set("Content-Type", mediaLines)
	return c.lines(page.Events)
}

// traceLines sends a whole trace, page by page.
func (s *Server) traceLines(c *call, from protocol.TraceQuery) error {
	return s.eachPage(c, from, func(page protocol.TracePage, first bool) error {
		if first {
			c.w.Header().Set("Content-Type", mediaLines)
		}
		return c.lines(page.Events)
	})
}

// lines sends one event per line.
func (c *call) lines(events []protocol.TraceEvent) error {
	if c.w.status == 0 {
		c.w.WriteHeader(http.StatusOK)
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	for i := range events {
		if err := b.encoder.Encode(&events[i]); err != nil {
			return fmt.Errorf("api: encode a trace event: %w", err)
		}
	}
	_, err := c.w.Write(b.Bytes())
	return c.unlessGone(err)
}

// unlessGone leaves out errors of writing to a client that has left.
func (c *call) unlessGone(err error) error {
	if c.r.Context().Err() != nil {
		return nil
	}
	return err
}

// eachPage reads a trace from a place on to its end so far.
func (s *Server) eachPage(c *call, q protocol.TraceQuery, fn func(page protocol.TracePage, first bool) error) error {
	q.Limit = tracePage
	for first := true; ; first = false {
		page, err := s.cfg.Runs.Trace(c.r.Context(), c.principal, c.path("id"), q)
		if err != nil {
			return badCursor(err)
		}
		if err := fn(page, first); err != nil {
			return err
		}
		if page.Next == "" || page.Next == q.Cursor || len(page.Events) == 0 || c.r.Context().Err() != nil {
			return nil
		}
		q.Cursor = page.Next
	}
}

func (s *Server) runTrajectory(c *call) error {
	return s.wholeTrace(c, func(first protocol.TracePage) (string, error) {
		if first.SealedAt == nil {
			return "", protocol.NotFound("the run has no sealed trajectory yet: it is %s", first.Status).
				WithHint("GET /runs/{id}/trajectory/live has what is there so far")
		}
		head, err := json.Marshal(struct {
			Meta     protocol.TrajectoryMeta      `json:"meta"`
			Segments []protocol.TrajectorySegment `json:"segments"`
		}{
			protocol.TrajectoryMeta{Source: "run", EventCount: first.Total, SealedAt: *first.SealedAt},
			[]protocol.TrajectorySegment{{Emitter: "harness", Source: "run", EventCount: first.Total, SealedAt: *first.SealedAt, Format: "everdict"}},
		})
		return string(head), err
	})
}

func (s *Server) runLiveTrajectory(c *call) error {
	return s.wholeTrace(c, func(first protocol.TracePage) (string, error) {
		head, err := json.Marshal(struct {
			Status protocol.Status `json:"status"`
			Found  bool            `json:"found"`
		}{first.Status, first.Total > 0})
		return string(head), err
	})
}

// wholeTrace sends an object that head begins and that ends with all events. It
// streams them: a trace may be larger than what should be in memory at once.
func (s *Server) wholeTrace(c *call, head func(first protocol.TracePage) (string, error)) error {
	started := false
	err := s.eachPage(c, protocol.TraceQuery{}, func(page protocol.TracePage, first bool) error {
		b := buffers.Get().(*buffer)
		defer b.release()
		if first {
			object, err := head(page)
			if err != nil {
				return err
			}
			b.WriteString(object[:len(object)-1] + `,"events":[`)
			c.w.Header()["Content-Type"] = jsonType
			c.w.WriteHeader(http.StatusOK)
		}
		for i := range page.Events {
			if started {
				b.WriteByte(',')
			}
			started = true
			if err := b.encoder.Encode(&page.Events[i]); err != nil {
				return fmt.Errorf("api: encode a trace event: %w", err)
			}
		}
		_, err := c.w.Write(b.Bytes())
		return c.unlessGone(err)
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(&c.w, "]}\n")
	return c.unlessGone(err)
}
