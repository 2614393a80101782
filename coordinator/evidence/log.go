package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/everdict/everdict/protocol"
)

// LogOptions selects a part of a log. The zero value is all that is stored now.
type LogOptions struct {
	// Stream is stdout or stderr; empty is both, and bytes of unknown origin.
	Stream string
	// Offset is the first byte wanted, as stored.
	Offset int64
	// Follow waits for more until the attempt is sealed or superseded.
	Follow bool
}

// LogChunk is a piece of one stream, or a gap. Data is valid until the next one.
type LogChunk struct {
	// Offset is where Data begins, or where the gap stands, as stored.
	Offset int64
	// Stream is empty when the index does not say.
	Stream string
	// TimeMs is when it arrived: epoch milliseconds of the runner, 0 when unknown.
	TimeMs int64
	Data   []byte
	// Gap is set instead of Data. Its Bytes are 0 when nobody lived to count.
	Gap *protocol.Gap
}

// Next is the LogOptions.Offset to go on from behind this chunk.
func (c LogChunk) Next() int64 { return c.Offset + int64(len(c.Data)) }

// maxIndexLine bounds a line of the index; a longer one is skipped.
const maxIndexLine = 4 << 10

// Log yields the log in order of arrival, with its gaps. An index that is
// missing, cut short or wrong costs the attribution, never bytes.
func (a *Attempt) Log(ctx context.Context, o LogOptions) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		st := a.st.hold()
		defer st.s.release(st)
		v := logView{st: st, o: o, yield: yield, buf: make([]byte, 32<<10)}
		lines := lineReader{st: st, channel: protocol.ChannelLogIndex, max: maxIndexLine}
		for {
			now := st.view(o.Follow, protocol.ChannelLog, protocol.ChannelLogIndex)
			if now.err == nil {
				now.err = ctx.Err()
			}
			if now.err != nil {
				yield(LogChunk{}, now.err)
				return
			}
			v.size = now.sizes[0]
			if !v.readIndex(&lines, now.sizes[1]) {
				return
			}
			if now.over || !o.Follow {
				v.finish(now.over)
				return
			}
			select {
			case <-now.wait:
			case <-ctx.Done():
			}
		}
	}
}

type logView struct {
	st    *state
	o     LogOptions
	yield func(LogChunk, error) bool
	buf   []byte
	pos   int64 // all before it was yielded or skipped
	size  int64
	entry *protocol.LogEntry // not yet done with
}

// readIndex yields what the index describes and the log has. It returns false
// when the consumer is done.
func (v *logView) readIndex(lines *lineReader, indexSize int64) bool {
	for {
		if v.entry == nil {
			line, _, err := lines.next(indexSize)
			if err != nil {
				v.yield(LogChunk{}, err)
				return false
			}
			if line == nil {
				return true
			}
			e, ok := decodeLogEntry(line)
			if !ok {
				continue
			}
			v.entry = &e
		}
		e := v.entry
		if e.Gap != nil && e.Gap.Bytes == 0 {
			// It counts only if nothing follows.
			line, _, err := lines.next(indexSize)
			if err != nil {
				v.yield(LogChunk{}, err)
				return false
			}
			if line == nil {
				return true
			}
			v.entry = nil
			if n, ok := decodeLogEntry(line); ok {
				v.entry = &n
			}
			continue
		}
		if !v.emit(e.Offset, "", 0) {
			return false
		}
		if v.pos < e.Offset {
			return true // the index came before the log
		}
		if e.Gap != nil {
			if !v.gap(e) {
				return false
			}
			v.entry = nil
			continue
		}
		if !v.emit(e.Offset+e.Bytes, e.Stream, e.TimeMs) {
			return false
		}
		if v.pos < e.Offset+e.Bytes {
			return true
		}
		v.entry = nil
	}
}

// finish yields what no index describes. While the attempt goes on, a reader of
// one stream stops before it: the index may still come.
func (v *logView) finish(over bool) {
	if !over && v.o.Stream != "" && v.entry == nil {
		return
	}
	if !v.emit(v.size, "", 0) {
		return
	}
	if v.entry != nil && v.entry.Gap != nil {
		v.gap(v.entry)
	}
}

func (v *logView) gap(e *protocol.LogEntry) bool {
	if e.Offset < v.o.Offset {
		return true
	}
	return v.yield(LogChunk{Offset: v.pos, Gap: e.Gap}, nil)
}

// emit yields the bytes from pos to end, as far as they are there.
func (v *logView) emit(end int64, stream string, ms int64) bool {
	end = min(end, v.size)
	if v.o.Stream != "" && stream != v.o.Stream {
		v.pos = max(v.pos, end)
		return true
	}
	v.pos = max(v.pos, min(end, v.o.Offset))
	for v.pos < end {
		n, err := v.st.read(protocol.ChannelLog, v.buf[:min(int64(len(v.buf)), end-v.pos)], v.pos)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			v.yield(LogChunk{}, err)
			return false
		}
		c := LogChunk{Offset: v.pos, Stream: stream, TimeMs: ms, Data: v.buf[:n]}
		v.pos += int64(n)
		if !v.yield(c, nil) {
			return false
		}
	}
	return true
}

// decodeLogEntry reads a line of the index. A line that makes no sense is not ok.
func decodeLogEntry(line []byte) (protocol.LogEntry, bool) {
	var e protocol.LogEntry
	if json.Unmarshal(line, &e) != nil || e.Offset < 0 {
		return e, false
	}
	if e.Gap != nil {
		return e, e.Gap.Bytes >= 0 && e.Gap.Offset >= 0
	}
	const far = 1 << 60 // so that a sum of two does not overflow
	return e, e.Bytes > 0 && e.Bytes < far && e.Offset < far
}

// Text is the chunk as it stands in a log's text: the bytes as they are, a gap as
// a line of its own that says what is missing.
func (c LogChunk) Text() []byte {
	if c.Gap != nil {
		return []byte("\n" + gapMarker(*c.Gap) + "\n")
	}
	return c.Data
}

// gapMarker is how a gap shows in a text: [n bytes lost: reason].
func gapMarker(g protocol.Gap) string {
	reason := string(new(Sanitizer).Append(nil, []byte(protocol.Clip(g.Reason, 100))))
	if g.Bytes == 0 {
		return fmt.Sprintf("[an unknown number of bytes lost: %s]", reason)
	}
	return fmt.Sprintf("[%d bytes lost: %s]", g.Bytes, reason)
}

// lineReader cuts a channel into lines. Only complete ones come out.
type lineReader struct {
	st      *state
	channel string
	max     int
	pos     int64 // read up to here
	buf     []byte
	off     int // of the first unused byte in buf
	skip    int64
	skipped int64 // size of lines that were too long, for whoever asks
}

// next returns the next line and where it begins, or nil when there is no
// complete one before size. It is valid until the next call.
func (l *lineReader) next(size int64) (line []byte, at int64, err error) {
	for {
		rest := l.buf[l.off:]
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			at = l.pos - int64(len(rest))
			l.off += i + 1
			if l.skip > 0 || i > l.max {
				l.skipped += l.skip + int64(i) + 1
				l.skip = 0
				return []byte{}, at, nil
			}
			return rest[:i:i], at, nil
		}
		if len(rest) > l.max {
			l.skip += int64(len(rest))
			rest = nil
		}
		if l.pos >= size {
			return nil, l.pos, nil
		}
		l.buf = append(l.buf[:0], rest...)
		l.off = 0
		n := len(l.buf)
		l.buf = append(l.buf, make([]byte, min(16<<10, size-l.pos))...)
		m, err := l.st.read(l.channel, l.buf[n:], l.pos)
		l.buf = l.buf[:n+m]
		l.pos += int64(m)
		if err == nil && m == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, l.pos, err
		}
	}
}
