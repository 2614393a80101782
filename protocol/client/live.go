package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Kinds of LiveEvent.
const (
	// LiveStatus: Status has changed, or is told for the first time.
	LiveStatus = "status"
	// LiveTrace: Events are new, Total counts all that there are so far.
	LiveTrace = "trace"
	// LiveEnd: the run is over in Status; nothing follows.
	LiveEnd = "end"
)

// LiveEvent is one thing that happened to a run that is watched. Kinds that this
// client does not know are passed on with Kind and Data only.
type LiveEvent struct {
	Kind   string
	Status protocol.Status
	// Suspended is set with status suspended, when the server says what for.
	Suspended *protocol.Suspension
	Events    []protocol.TraceEvent
	Total     int64
	Data      json.RawMessage
}

// Live streams a run's life until it is over: its status, and its trace events
// each exactly once and in order, also over a connection that breaks. An error
// ends it.
func (c *Client) Live(ctx context.Context, id string) iter.Seq2[LiveEvent, error] {
	return func(yield func(LiveEvent, error) bool) {
		var seen int64
		for e, err := range c.stream(ctx, get("runs", id, "live", "stream")) {
			if err != nil {
				yield(LiveEvent{}, err)
				return
			}
			event, err := decodeLive(e)
			if err != nil {
				yield(LiveEvent{}, err)
				return
			}
			if event.Kind == LiveTrace {
				// Where a server repeats events after a reconnect, Total tells
				// which ones they are.
				first := event.Total - int64(len(event.Events))
				if repeated := seen - first; repeated > 0 {
					event.Events = event.Events[min(repeated, int64(len(event.Events))):]
				}
				seen = max(seen, event.Total)
				if len(event.Events) == 0 {
					continue
				}
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

func decodeLive(e sseEvent) (LiveEvent, error) {
	out := LiveEvent{Kind: e.name, Data: e.data}
	switch e.name {
	case LiveStatus, LiveEnd:
		var body struct {
			Status    protocol.Status      `json:"status"`
			Suspended *protocol.Suspension `json:"suspended"`
		}
		if err := json.Unmarshal(e.data, &body); err != nil {
			return out, badEvent(e, err)
		}
		out.Status, out.Suspended = body.Status, body.Suspended
	case LiveTrace:
		var body struct {
			Events []protocol.TraceEvent `json:"events"`
			Total  *int64                `json:"total"`
		}
		if err := json.Unmarshal(e.data, &body); err != nil {
			return out, badEvent(e, err)
		}
		out.Events = body.Events
		if body.Total == nil {
			return out, badEvent(e, errors.New("total is missing"))
		}
		out.Total = *body.Total
	}
	return out, nil
}

// Wait returns the run when it is over. It follows the live stream, and polls
// where streaming does not work.
func (c *Client) Wait(ctx context.Context, id string) (*protocol.Run, error) {
	return c.Watch(ctx, id, nil)
}

// Watch is Wait that tells observe (nil: nobody) what happens meanwhile, from
// this goroutine. When it has to poll, observe is told of status changes only.
func (c *Client) Watch(ctx context.Context, id string, observe func(LiveEvent)) (*protocol.Run, error) {
	if observe == nil {
		observe = func(LiveEvent) {}
	}
	for e, err := range c.Live(ctx, id) {
		if err != nil {
			if ctx.Err() != nil || !mayPollInstead(err) {
				return nil, err
			}
			// A server that is simply away has had its time already.
			patience := c.cfg.Patience
			if StatusOf(err) == 0 && !errors.Is(err, errNoStream) {
				patience = 0
			}
			return c.poll(ctx, id, observe, patience)
		}
		observe(e)
	}
	run, err := c.Run(ctx, id)
	if err != nil || run.Status.Terminal() {
		return run, err
	}
	// The stream ended early; what the record says stands.
	return c.poll(ctx, id, observe, c.cfg.Patience)
}

// mayPollInstead reports whether the record may be readable although its stream
// was not: the stream is unknown there, forbidden, or is eaten on the way.
func mayPollInstead(err error) bool {
	switch StatusOf(err) {
	case http.StatusUnauthorized:
		return false
	default:
		return true
	}
}

// Pauses of a poll: quick at first, since a small run is over in a second.
const (
	pollFirst = 250 * time.Millisecond
	pollLimit = 3 * time.Second
)

// poll reads the record until it is over; patience is how long it may go on
// without an answer.
func (c *Client) poll(ctx context.Context, id string, observe func(LiveEvent), patience time.Duration) (*protocol.Run, error) {
	var last protocol.Status
	wait, alive := pollFirst, time.Now()
	for {
		run, err := c.Run(ctx, id)
		switch {
		case err == nil:
			alive, patience = time.Now(), c.cfg.Patience
		case ctx.Err() != nil:
			return nil, err
		case !streamRetryable(err) || time.Since(alive) >= patience:
			return nil, err
		}
		if err == nil && run.Status != last {
			last = run.Status
			observe(LiveEvent{Kind: LiveStatus, Status: last, Suspended: run.Suspended})
		}
		if err == nil && run.Status.Terminal() {
			observe(LiveEvent{Kind: LiveEnd, Status: run.Status})
			return run, nil
		}
		// A tenth of jitter keeps many that wait for one batch apart.
		if err := pause(ctx, wait+rand.N(wait/10)); err != nil {
			return nil, err
		}
		wait = min(wait*3/2, pollLimit)
	}
}

// Streams of a log.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

func streamQuery(stream string) url.Values {
	if stream == "" {
		return nil
	}
	return url.Values{"stream": {stream}}
}

// Log is a run's log as text, with what cannot be shown made safe by the server.
type Log struct {
	Status protocol.Status `json:"status"`
	// Found is false when nothing was written yet.
	Found bool   `json:"found"`
	Text  string `json:"text"`
}

// Log reads what a run has written so far. stream is Stdout, Stderr or empty for
// both.
func (c *Client) Log(ctx context.Context, id, stream string) (*Log, error) {
	return one[Log](ctx, c, get("runs", id, "logs").with(streamQuery(stream)))
}

// FollowLog streams a run's log from its beginning until the run is over, in
// pieces of any length. A connection that breaks is taken up where it was cut.
func (c *Client) FollowLog(ctx context.Context, id, stream string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range c.stream(ctx, get("runs", id, "logs", "stream").with(streamQuery(stream))) {
			if err != nil {
				yield("", err)
				return
			}
			if e.name != "" && e.name != "message" {
				continue // "end", and what newer servers may add
			}
			var text string
			if err := json.Unmarshal(e.data, &text); err != nil {
				yield("", badEvent(e, err))
				return
			}
			if !yield(text, nil) {
				return
			}
		}
	}
}

// TracePage is a part of a run's trace.
type TracePage struct {
	Status protocol.Status       `json:"status"`
	Events []protocol.TraceEvent `json:"events"`
	// Cursor continues after Events; empty when there is nothing more for now.
	Cursor string `json:"cursor,omitempty"`
	// Total counts the events that there are so far.
	Total int64 `json:"total"`
}

// TracePage reads trace events after cursor (empty: from the first), at most
// limit of them (0: as many as the server gives).
func (c *Client) TracePage(ctx context.Context, id, cursor string, limit int) (*TracePage, error) {
	q := url.Values{}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return one[TracePage](ctx, c, get("runs", id, "trace").with(q))
}

// Trace yields the trace events that there are, page by page. An error ends it.
func (c *Client) Trace(ctx context.Context, id string) iter.Seq2[protocol.TraceEvent, error] {
	return func(yield func(protocol.TraceEvent, error) bool) {
		for cursor := ""; ; {
			page, err := c.TracePage(ctx, id, cursor, 0)
			if err != nil {
				yield(protocol.TraceEvent{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			if page.Cursor == "" || page.Cursor == cursor || len(page.Events) == 0 {
				return
			}
			cursor = page.Cursor
		}
	}
}

// FollowTrace streams a run's trace from its first event until the run is over,
// each event once. An error ends it.
func (c *Client) FollowTrace(ctx context.Context, id string) iter.Seq2[protocol.TraceEvent, error] {
	return func(yield func(protocol.TraceEvent, error) bool) {
		for e, err := range c.Live(ctx, id) {
			if err != nil {
				yield(protocol.TraceEvent{}, err)
				return
			}
			for _, event := range e.Events {
				if !yield(event, nil) {
					return
				}
			}
		}
	}
}
