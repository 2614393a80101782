// Package log records what a harness writes to stdout and stderr: the bytes as
// they came, in order of arrival, and beside them an index that says which bytes
// came from which stream, when, and which are missing.
//
// The record is bounded. The beginning is written as it arrives; when it is full,
// further bytes go through a ring that keeps the end. Close then writes the gap
// with its exact size, and the end behind it. Memory does not grow with the
// output. A full disk costs bytes, each counted in a gap, and never the run.
package log

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/protocol"
)

const (
	// tailCopy is what Tail returns at most: enough for a failure's last words.
	tailCopy = 2 << 10
	// spanTime and spanBytes bound what one index line covers: they are the
	// precision of the times in a view.
	spanTime  = 100 * time.Millisecond
	spanBytes = 256 << 10
	// flushAfter is how long a line of the index may wait for company.
	flushAfter = 200 * time.Millisecond
	flushBytes = 4 << 10
	// pendingBytes bounds index lines that the disk does not take.
	pendingBytes = 64 << 10
	// maxGaps bounds the list of gaps; the last one then takes all the rest.
	maxGaps = 1000
	copyBuf = 32 << 10
)

// ErrClosed is returned by a Write after Close.
var ErrClosed = errors.New("log: recorder is closed")

// Config of a Recorder. Log and Index are required.
type Config struct {
	// Log and Index receive the channels protocol.ChannelLog and
	// protocol.ChannelLogIndex. Only one Write runs at a time.
	Log, Index io.Writer
	// HeadBytes is kept from the beginning; default 96 MiB, in which a log of 100 MB is whole.
	HeadBytes int64
	// TailBytes is kept from the end; default 16 MiB.
	TailBytes int64
	// IndexBytes ends the head early when that many bytes of index were needed
	// for it, as for output that changes its stream with every byte. Default 4 MiB.
	IndexBytes int64
	// Scratch opens the temporary file, TailBytes at most, in which the end waits
	// for Close. It is called when the head is full. nil, or an error from it,
	// keeps the end in memory.
	Scratch func(name string) (*os.File, error)
	// Live, if set, gets every byte as it comes, also those that the record will not keep.
	// It must not wait.
	Live io.Writer
}

// Recorder takes the output of one attempt. Its methods may be called from any
// goroutine.
type Recorder struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	produced int64 // bytes that were offered
	stored   int64 // bytes in Log
	indexed  int64 // bytes of index that were made
	span     protocol.LogEntry
	spanEnd  time.Time // after it a new span begins
	index    []byte    // lines that wait for the writer
	timer    *time.Timer
	armed    bool
	gaps     []protocol.Gap
	openGap  *openGap
	full     bool // the head is complete
	ring     *ring
	ringFrom int64 // produced when the head was complete
	last     time.Time
	tail     []byte
	err      error
}

// openGap is a hole that still grows; its line is written when it ends.
type openGap struct {
	at  int64
	gap protocol.Gap
}

// New returns a Recorder for one attempt. Close it after the last Write.
func New(cfg Config) *Recorder {
	cfg.HeadBytes = cmp.Or(cfg.HeadBytes, 96<<20)
	cfg.TailBytes = cmp.Or(cfg.TailBytes, 16<<20)
	cfg.IndexBytes = cmp.Or(cfg.IndexBytes, 4<<20)
	r := &Recorder{cfg: cfg}
	r.timer = time.AfterFunc(time.Hour, r.flushLate)
	r.timer.Stop()
	return r
}

// Writer returns the writer of one stream, protocol.StreamStdout or
// protocol.StreamStderr. A Write waits while the disk does, which makes the
// harness wait; it fails only after Close.
func (r *Recorder) Writer(stream string) io.Writer { return &writer{r, stream} }

type writer struct {
	r      *Recorder
	stream string
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.r.closed {
		return 0, ErrClosed
	}
	if len(p) > 0 {
		w.r.take(w.stream, p)
	}
	return len(p), nil
}

func (r *Recorder) take(stream string, p []byte) {
	r.last = time.Now()
	r.keepTail(p)
	if r.cfg.Live != nil {
		_, _ = r.cfg.Live.Write(p) // a view, not the record
	}
	for !r.full && len(p) > 0 {
		head := p[:min(int64(len(p)), r.cfg.HeadBytes-r.stored)]
		r.store(stream, r.last, head)
		p = p[len(head):]
		r.full = r.stored >= r.cfg.HeadBytes || r.indexed >= r.cfg.IndexBytes
	}
	if len(p) == 0 {
		return
	}
	if r.ring == nil {
		r.startRing()
	}
	r.toRing(stream, p)
}

// store appends p to the log; what does not fit is a gap.
func (r *Recorder) store(stream string, at time.Time, p []byte) {
	n, err := 0, error(nil)
	if len(r.gaps) < maxGaps || r.openGap == nil {
		n, err = r.cfg.Log.Write(p)
	}
	if n > 0 {
		r.closeGap()
		r.addSpan(stream, at, int64(n))
		r.stored += int64(n)
		r.produced += int64(n)
	}
	if n < len(p) {
		r.err = cmp.Or(r.err, err)
		r.miss(int64(len(p)-n), reason(err))
	}
}

// reason names why a write failed. A writer that says it in its own way still
// wraps the system's error.
func reason(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return protocol.GapDiskFull
	}
	return protocol.GapWriteError
}

// miss counts n bytes that were offered next as lost.
func (r *Recorder) miss(n int64, reason string) {
	if r.openGap == nil {
		r.closeSpan()
		r.openGap = &openGap{at: r.stored, gap: protocol.Gap{Channel: protocol.ChannelLog, Offset: r.produced, Reason: reason}}
		r.gaps = append(r.gaps, r.openGap.gap)
	}
	r.openGap.gap.Bytes += n
	r.gaps[len(r.gaps)-1] = r.openGap.gap
	r.produced += n
}

func (r *Recorder) closeGap() {
	if r.openGap != nil {
		r.addLine(protocol.LogEntry{Offset: r.openGap.at, Gap: &r.openGap.gap})
		r.openGap = nil
	}
}

func (r *Recorder) addSpan(stream string, at time.Time, n int64) {
	s := &r.span
	if s.Bytes > 0 && (s.Stream != stream || s.Bytes+n > spanBytes || at.After(r.spanEnd)) {
		r.closeSpan()
	}
	if s.Bytes == 0 {
		*s = protocol.LogEntry{Offset: r.stored, Stream: stream, TimeMs: at.UnixMilli()}
		r.spanEnd = at.Add(spanTime)
	}
	s.Bytes += n
	r.arm()
}

func (r *Recorder) closeSpan() {
	if r.span.Bytes > 0 {
		r.addLine(r.span)
		r.span = protocol.LogEntry{}
	}
}

func (r *Recorder) addLine(e protocol.LogEntry) {
	b, err := json.Marshal(e)
	if err != nil {
		r.err = cmp.Or(r.err, err)
		return
	}
	r.indexed += int64(len(b)) + 1
	if len(r.index) > pendingBytes && e.Gap == nil {
		return // the bytes stay; only where they came from is not known
	}
	r.index = append(append(r.index, b...), '\n')
	if len(r.index) >= flushBytes {
		r.flush()
	}
	r.arm()
}

// arm sees to it that what waits is written soon, also when nothing follows.
func (r *Recorder) arm() {
	if !r.armed && !r.closed {
		r.armed = true
		r.timer.Reset(flushAfter)
	}
}

func (r *Recorder) flushLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	if !r.closed {
		r.closeSpan()
		r.flush()
	}
}

func (r *Recorder) flush() {
	if len(r.index) == 0 {
		return
	}
	n, err := r.cfg.Index.Write(r.index)
	r.index = slices.Delete(r.index, 0, n)
	r.err = cmp.Or(r.err, err)
}

func (r *Recorder) startRing() {
	r.ringFrom = r.produced
	r.closeSpan()
	r.closeGap()
	// Should the runner be killed, this line is what says that the log goes on.
	r.addLine(protocol.LogEntry{Offset: r.stored, Gap: &protocol.Gap{
		Channel: protocol.ChannelLog, Offset: r.produced, Reason: protocol.GapCap}})
	r.flush()
	if r.cfg.Scratch != nil {
		if f, err := r.cfg.Scratch("log.tail"); err == nil {
			r.ring = newRing(f, r.cfg.TailBytes)
			return
		}
	}
	r.ring = newRing(&memory{}, r.cfg.TailBytes)
}

func (r *Recorder) toRing(stream string, p []byte) {
	r.produced += int64(len(p))
	if err := r.ring.write(stream, r.last, p); err != nil {
		// The ring's disk is full: a short end is kept in memory instead. What
		// the ring held is part of the gap.
		r.err = cmp.Or(r.err, err, r.ring.close())
		r.ring = newRing(&memory{}, min(r.cfg.TailBytes, pendingBytes))
		r.ring.write(stream, r.last, p)
	}
}

// Summary is what became of the output.
type Summary struct {
	// Produced is how many bytes the harness wrote, Bytes how many of them the
	// log holds. The difference is in Gaps.
	Produced, Bytes int64
	Gaps            []protocol.Gap
}

// Close writes the gap, the end and what is left of the index. The error is the
// first one that a writer gave, and Summary.Gaps says what it cost: the log holds
// the rest. Closing again returns the same.
func (r *Recorder) Close() (Summary, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.timer.Stop()
		r.finish()
	}
	return Summary{Produced: r.produced, Bytes: r.stored, Gaps: slices.Clone(r.gaps)}, r.err
}

func (r *Recorder) finish() {
	if r.ring != nil {
		r.finishRing()
	}
	r.closeSpan()
	r.closeGap()
	r.flush()
}

func (r *Recorder) finishRing() {
	total := r.produced
	r.produced = r.ringFrom
	if lost := total - r.ringFrom - r.ring.size; lost > 0 {
		r.miss(lost, protocol.GapCap)
		r.closeGap()
	}
	read, err := r.ring.drain(func(stream string, at time.Time, p []byte) { r.store(stream, at, p) })
	if err != nil {
		r.miss(r.ring.size-read, protocol.GapWriteError)
	}
	r.err = cmp.Or(r.err, err, r.ring.close())
}

// Tail returns the last 2 KiB of output, both streams, for a failure's record.
func (r *Recorder) Tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.tail[max(0, len(r.tail)-tailCopy):])
}

// keepTail remembers the end of p. The buffer is twice as long as what is wanted,
// so that short writes rarely move it.
func (r *Recorder) keepTail(p []byte) {
	p = p[max(0, len(p)-tailCopy):]
	if len(r.tail)+len(p) > 2*tailCopy {
		keep := r.tail[len(r.tail)-(tailCopy-len(p)):]
		r.tail = append(r.tail[:0], keep...)
	}
	r.tail = append(r.tail, p...)
}
