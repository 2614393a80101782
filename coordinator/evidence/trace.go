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

// TraceOptions selects a part of a trace. The zero value is all that is stored
// now.
type TraceOptions struct {
	// Offset is where an event begins: 0 or a TraceRecord.Next.
	Offset int64
	// Follow waits for more until the attempt is sealed or superseded.
	Follow bool
}

// TraceRecord is one event of a trace.
type TraceRecord struct {
	Event protocol.TraceEvent
	// Bad says why Event could not be read; Event is empty then.
	Bad string
	// Offset is where it begins in the channel, Next where the next one does.
	Offset, Next int64
}

// maxTraceLine is the longest line that is decoded: an event of the largest size
// plus room for what an encoder escapes.
const maxTraceLine = 2 * protocol.MaxTraceEventBytes

// Trace yields the events in order. A line that is no event is yielded as Bad. A
// last line without its end is yielded only when no more can come.
func (a *Attempt) Trace(ctx context.Context, o TraceOptions) iter.Seq2[TraceRecord, error] {
	return func(yield func(TraceRecord, error) bool) {
		st := a.st.hold()
		defer st.s.release(st)
		lines := lineReader{st: st, channel: protocol.ChannelTrace, max: maxTraceLine, pos: max(0, o.Offset)}
		for {
			now := st.view(o.Follow, protocol.ChannelTrace)
			if now.err == nil {
				now.err = ctx.Err()
			}
			if now.err != nil {
				yield(TraceRecord{}, now.err)
				return
			}
			for {
				skipped := lines.skipped
				line, _, err := lines.next(now.sizes[0])
				if err != nil {
					yield(TraceRecord{}, err)
					return
				}
				if line == nil {
					break
				}
				next := lines.pos - int64(len(lines.buf)-lines.off)
				r := TraceRecord{Offset: next - int64(len(line)) - 1, Next: next}
				if n := lines.skipped - skipped; n > 0 {
					r.Offset, r.Bad = next-n, fmt.Sprintf("the event has %d bytes, limit %d", n, maxTraceLine)
				} else if len(bytes.TrimSpace(line)) == 0 {
					continue
				} else {
					r.decode(line)
				}
				if !yield(r, nil) {
					return
				}
			}
			if now.over {
				if rest := lines.buf[lines.off:]; len(bytes.TrimSpace(rest)) > 0 || lines.skip > 0 {
					n := int64(len(rest)) + lines.skip
					yield(TraceRecord{Offset: lines.pos - n, Next: lines.pos, Bad: "the event is cut short"}, nil)
				}
				return
			}
			if !o.Follow {
				return
			}
			select {
			case <-now.wait:
			case <-ctx.Done():
			}
		}
	}
}

func (r *TraceRecord) decode(line []byte) {
	var e protocol.TraceEvent
	switch err := json.Unmarshal(line, &e); {
	case err != nil:
		r.Bad = "the event is not readable: " + protocol.Clip(err.Error(), 200)
	case e.Kind == "":
		r.Bad = "the event has no kind"
	default:
		r.Event = e
	}
}

// Diff returns the diff up to limit bytes, cut behind a line, and its whole size.
// A run without one has size 0.
func (a *Attempt) Diff(limit int64) (diff []byte, size int64, err error) {
	a.st.mu.Lock()
	defer a.st.mu.Unlock()
	size = a.st.size(protocol.ChannelDiff)
	diff = make([]byte, min(max(0, limit), size))
	n, err := a.st.readSome(protocol.ChannelDiff, diff, 0)
	if err == nil && n < len(diff) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, size, a.st.wrap("read diff", err)
	}
	if int64(len(diff)) < size {
		diff = diff[:bytes.LastIndexByte(diff, '\n')+1]
	}
	return diff, size, nil
}
