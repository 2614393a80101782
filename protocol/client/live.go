package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// Live streams a run's life from its beginning until it is over: its status, and
// in the lanes (protocol.LaneTrace, which is the default, and protocol.LaneLog)
// its trace events, each exactly once and in order, and its log, also over a
// connection that breaks. An error ends it.
func (c *Client) Live(ctx context.Context, id string, lanes ...string) iter.Seq2[protocol.LiveEvent, error] {
	return func(yield func(protocol.LiveEvent, error) bool) {
		var seen int64
		r := get("runs", id, "live", "stream")
		if len(lanes) > 0 {
			r.query = url.Values{"lanes": {strings.Join(lanes, ",")}}
		}
		for e, err := range c.stream(ctx, r) {
			if err != nil {
				yield(protocol.LiveEvent{}, err)
				return
			}
			event, err := decodeLive(e)
			if err != nil {
				yield(protocol.LiveEvent{}, err)
				return
			}
			if event.Kind == protocol.LiveTrace && event.ID == "" {
				// A server without ids starts again after a reconnect; its total
				// counts the events up to the last of these, and so tells which
				// ones are repeated.
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

// decodeLive reads the data of an event. One of a kind that this client does not
// know keeps its id and kind only.
func decodeLive(e sseEvent) (protocol.LiveEvent, error) {
	var body struct {
		Status protocol.Status       `json:"status"`
		Events []protocol.TraceEvent `json:"events"`
		Total  *int64                `json:"total"`
		Stream string                `json:"stream"`
		Text   string                `json:"text"`
	}
	out := protocol.LiveEvent{ID: e.id, Kind: e.name}
	switch e.name {
	case protocol.LiveStatus, protocol.LiveEnd, protocol.LiveTrace, protocol.LiveLog:
		if err := json.Unmarshal(e.data, &body); err != nil {
			return out, badEvent(e, err)
		}
	}
	switch e.name {
	case protocol.LiveStatus, protocol.LiveEnd:
		if out.Status = body.Status; out.Status == "" {
			return out, badEvent(e, errors.New("status is missing"))
		}
	case protocol.LiveTrace:
		if body.Total == nil {
			return out, badEvent(e, errors.New("total is missing"))
		}
		out.Events, out.Total = body.Events, *body.Total
	case protocol.LiveLog:
		out.Stream, out.Bytes = body.Stream, []byte(body.Text)
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
func (c *Client) Watch(ctx context.Context, id string, observe func(protocol.LiveEvent)) (*protocol.Run, error) {
	if observe == nil {
		observe = func(protocol.LiveEvent) {}
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
func (c *Client) poll(ctx context.Context, id string, observe func(protocol.LiveEvent), patience time.Duration) (*protocol.Run, error) {
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
		default:
			c.away(err)
		}
		if err == nil && run.Status != last {
			last = run.Status
			observe(protocol.LiveEvent{Kind: protocol.LiveStatus, Status: last})
		}
		if err == nil && run.Status.Terminal() {
			observe(protocol.LiveEvent{Kind: protocol.LiveEnd, Status: run.Status})
			return run, nil
		}
		// A tenth of jitter keeps many that wait for one batch apart.
		if err := pause(ctx, wait+rand.N(wait/10)); err != nil {
			return nil, err
		}
		wait = min(wait*3/2, pollLimit)
	}
}

// logQuery is a part of a log as the API takes it.
func logQuery(part protocol.LogQuery) url.Values {
	q := url.Values{}
	if part.Stream != "" {
		q.Set("stream", part.Stream)
	}
	for name, n := range map[string]int64{"attempt": part.Attempt, "offset": part.Offset, "tail": part.Tail, "limit": part.Limit, "before": part.Before} {
		setNumber(q, name, n)
	}
	return q
}

// setNumber adds a parameter that is left out at 0.
func setNumber(q url.Values, name string, n int64) {
	if n > 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}

// Log reads what a run has written so far, or a part of it, as text with what is no
// UTF-8 made so. The server shows at most the last 4 MiB of what is asked for.
func (c *Client) Log(ctx context.Context, id string, part protocol.LogQuery) (*protocol.LogView, error) {
	return one[protocol.LogView](ctx, c, get("runs", id, "logs").with(logQuery(part)))
}

// RawLog opens a part of a run's log, byte for byte as it was written. The caller
// closes it.
func (c *Client) RawLog(ctx context.Context, id string, part protocol.LogQuery) (io.ReadCloser, error) {
	q := logQuery(part)
	q.Set("raw", "1")
	r := get("runs", id, "logs").with(q)
	r.header = http.Header{"Accept": {"application/octet-stream, text/plain;q=0.9, application/json;q=0.1"}}
	return c.openRetrying(ctx, r)
}

// FollowLog streams a run's log from its beginning until the run is over, in
// pieces of any length. A connection that breaks is taken up where it was cut.
func (c *Client) FollowLog(ctx context.Context, id, stream string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range c.stream(ctx, get("runs", id, "logs", "stream").with(logQuery(protocol.LogQuery{Stream: stream}))) {
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

// Trace yields the trace events that there are of the run, or of one of its attempts
// if attempt is not 0, page by page. An error ends it.
func (c *Client) Trace(ctx context.Context, id string, attempt int64) iter.Seq2[protocol.TraceEvent, error] {
	return pages[protocol.TraceEvent](ctx, c, get("runs", id, "trace").with(attemptQuery(attempt)))
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
