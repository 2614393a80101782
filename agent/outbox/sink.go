package outbox

import (
	"context"
	"encoding/json"
)

// Sink is one session with a coordinator, as far as the outbox needs it. Its
// methods may be called from several goroutines. Every call here returns soon
// after its context has ended; a context bounds its call only, not the stream.
type Sink interface {
	// Open opens the evidence stream of an attempt. An error is tried again with
	// backoff while the session lasts, except ErrNotHere and a *RejectedError.
	// Evidence of a stale attempt is opened like any other.
	Open(ctx context.Context, a Attempt) (Stream, error)
}

// Stream carries the evidence of one attempt. One goroutine uses it.
type Stream interface {
	// Resume is how many bytes of a channel the coordinator held when the stream
	// was opened: sending goes on from there.
	Resume(channel string) int64
	// Send sends bytes of a channel, contiguous with what was sent before. It
	// may return before they are acknowledged and blocks while too many are in
	// flight. p is not used after it returns. After an error the stream is
	// closed and another one is opened, so a refused offset heals itself. A
	// channel that the coordinator has closed, because it is at a cap over there,
	// takes everything without an error.
	Send(ctx context.Context, channel string, offset int64, p []byte) error
	// Acked is how many bytes of a channel the coordinator has acknowledged.
	Acked(channel string) int64
	// Flush returns nil when all that was sent is acknowledged, but for channels
	// that the coordinator has closed.
	Flush(ctx context.Context) error
	// Result sends the result and waits for the final answer. It is called once,
	// after Flush, when every channel is complete.
	Result(ctx context.Context, result json.RawMessage) (Ack, error)
	// Close ends the stream.
	Close() error
}

// RejectedError is what Open, Send or Flush return when the coordinator can
// never take this attempt's evidence (an unknown run, a lease of somebody else).
// It counts as a rejected result.
type RejectedError struct {
	Code    string
	Message string
}

// Error implements error.
func (e *RejectedError) Error() string { return "outbox: rejected: " + e.Code + ": " + e.Message }
