package trace

import (
	"io"
	"sync"
	"time"

	"github.com/everdict/everdict/protocol"
)

// DefaultMaxBytes is how much of a trace is kept when Config names no limit:
// 64 MiB, some 100,000 steps of an ordinary agent.
const DefaultMaxBytes = 64 << 20

// Config configures a Recorder. The zero value records nothing but the summary.
type Config struct {
	// Writer receives one JSON document and a newline per event, one Write each.
	// Nil discards. An event that it fails to write is missing, which a gap event says
	// when the writer takes the next one; of a Write that fails it keeps nothing.
	Writer io.Writer
	// Now stamps events that carry no time. Nil is time.Now.
	Now func() time.Time
	// MaxBytes bounds what is written; zero is DefaultMaxBytes. What comes later
	// is counted in the summary and reported by a gap event.
	MaxBytes int64
}

// Recorder writes events as JSON lines and keeps the aggregates that graders and
// the record need, without holding the trace. Its methods may be called from any
// goroutine; a nil Recorder records nothing.
type Recorder struct {
	cfg    Config
	mu     sync.Mutex
	sum    Summary
	totals totals
	err    error // the writer's first
	hole   gap   // what the writer did not take, until a gap event says so
	full   bool  // MaxBytes is reached
	closed bool
	buf    []byte
}

// New returns a recorder.
func New(cfg Config) *Recorder {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	return &Recorder{cfg: cfg}
}

// Emit records one event: it stamps what carries no time, cuts what is longer
// than protocol.MaxTraceEventBytes and drops (and counts) what is no event.
func (r *Recorder) Emit(ev protocol.TraceEvent) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.emit(ev)
}

// Summary returns the aggregates so far.
func (r *Recorder) Summary() Summary {
	if r == nil {
		return Summary{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sum
	s.Usage = r.totals.usage()
	return s
}

// Close writes the gap events that are due, past the limit if need be, and
// returns the writer's first error. Events that come later are ignored.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.fillHole()
		if r.sum.Dropped > 0 {
			r.writeGap(gap{Reason: overLimit, Offset: r.sum.GapAt, Limit: r.cfg.MaxBytes, Events: r.sum.Dropped, Bytes: r.sum.DroppedBytes})
		}
	}
	return r.err
}
