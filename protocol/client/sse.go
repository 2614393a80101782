package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// maxSSEEvent bounds one event of a stream. The server batches trace events of
// up to protocol.MaxTraceEventBytes; what is larger than this is no event of ours.
const maxSSEEvent = 32 << 20

// sseEvent is one event of a text/event-stream.
type sseEvent struct {
	id   string
	name string
	data []byte
}

// errSSETooLong says that an event passed maxSSEEvent.
var errSSETooLong = fmt.Errorf("an event of the stream is longer than %d MiB", maxSSEEvent>>20)

// sseReader decodes the event stream format of the HTML standard.
type sseReader struct {
	r *bufio.Reader
	// retry is the pause that the server asked for, 0 if it did not.
	retry time.Duration
	// beat is called for every line, comments included: the server is alive.
	beat func()
}

// next returns the next event that has data. io.EOF ends the stream; an event
// that was cut by the end is dropped, as the standard says.
func (s *sseReader) next() (sseEvent, error) {
	var e sseEvent
	hasData := false
	for {
		line, err := s.line(maxSSEEvent - len(e.data))
		if err != nil {
			return sseEvent{}, err
		}
		if s.beat != nil {
			s.beat()
		}
		if len(line) == 0 {
			if hasData {
				return e, nil
			}
			e = sseEvent{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
			hasData = true
		case "event":
			e.name = string(value)
		case "id":
			if !bytes.ContainsRune(value, 0) {
				e.id = string(value)
			}
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				s.retry = min(time.Duration(ms)*time.Millisecond, afterLimit)
			}
		}
	}
}

// line reads up to \n, without it and without a \r before it.
func (s *sseReader) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errSSETooLong
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil, io.EOF
			}
			return nil, err
		}
	}
}

// errNoStream says that the server, or something before it, does not stream.
var errNoStream = errors.New("the server does not stream this")

// stream yields the events of r until the event "end" has been yielded. When the
// connection breaks it is made again with Last-Event-ID, after a pause with
// jitter; Config.Patience without any event or beat from the server ends it with
// the last error. A refusal (4xx) ends it at once.
func (c *Client) stream(ctx context.Context, r request) iter.Seq2[sseEvent, error] {
	return func(yield func(sseEvent, error) bool) {
		var lastID string
		var try int
		alive := time.Now()
		for {
			stopped, heard, pauseFor, err := c.streamOnce(ctx, r, &lastID, yield)
			if stopped {
				return
			}
			if ctx.Err() != nil {
				yield(sseEvent{}, context.Cause(ctx))
				return
			}
			if heard {
				try, alive = 0, time.Now()
			}
			if !streamRetryable(err) || time.Since(alive) > c.cfg.Patience {
				yield(sseEvent{}, err)
				return
			}
			c.away(err)
			if err := pause(ctx, max(pauseFor, backoff(try, retryAfter(err)))); err != nil {
				yield(sseEvent{}, err)
				return
			}
			try++
		}
	}
}

// streamRetryable reports whether a broken stream can be taken up again.
func streamRetryable(err error) bool {
	if errors.Is(err, errNoStream) || errors.Is(err, errSSETooLong) {
		return false
	}
	switch status := StatusOf(err); {
	case status == 0, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return true
	default:
		return status >= 500 && status != http.StatusNotImplemented && status != http.StatusInternalServerError
	}
}

// streamOnce carries one connection. stopped: the caller is done or the stream
// ended; heard: the server said something.
func (c *Client) streamOnce(ctx context.Context, r request, lastID *string, yield func(sseEvent, error) bool) (stopped, heard bool, retry time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.header = http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-store"}}
	if *lastID != "" {
		r.header.Set("Last-Event-ID", *lastID)
	}
	res, err := c.open(ctx, r)
	if err != nil {
		return false, false, 0, err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		return false, false, 0, fmt.Errorf("%w: it answered with %q", errNoStream, kind)
	}
	silent := time.AfterFunc(c.cfg.Silence, func() {
		cancel(fmt.Errorf("nothing came from the server for %s", c.cfg.Silence))
	})
	defer silent.Stop()
	events := &sseReader{r: bufio.NewReaderSize(res.Body, 32<<10), beat: func() {
		heard = true
		silent.Reset(c.cfg.Silence)
	}}
	for {
		e, err := events.next()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if errors.Is(err, errSSETooLong) {
				return false, heard, 0, err
			}
			return false, heard, events.retry, &UnreachableError{URL: c.BaseURL(), Err: fmt.Errorf("the stream broke off: %w", err)}
		}
		if e.id != "" {
			*lastID = e.id
		}
		// Not while the caller holds the event: a slow reader is no dead server.
		silent.Stop()
		if !yield(e, nil) || e.name == "end" {
			return true, true, 0, nil
		}
		silent.Reset(c.cfg.Silence)
	}
}

// badEvent is a stream event that does not decode.
func badEvent(e sseEvent, err error) error {
	return &protocol.Problem{
		Status:  http.StatusOK,
		Code:    protocol.CodeUpstreamError,
		Message: fmt.Sprintf("the stream holds an event %q that does not decode (%v): %q", e.name, err, protocol.Clip(strings.ToValidUTF8(string(e.data), ""), 120)),
		Hint:    "is the coordinator of another version than this client? see everdict version",
	}
}
