package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// GapName is the name of the span event that says which events are missing.
const GapName = "everdict.trace_gap"

// emit records one event. The caller holds the lock.
func (r *Recorder) emit(ev protocol.TraceEvent) {
	if !Known(ev.Kind) {
		r.sum.Invalid++
		return
	}
	r.stamp(&ev)
	r.count(ev)
	line := r.encode(&ev)
	if r.full || r.sum.Bytes+int64(len(line)) > r.cfg.MaxBytes {
		if !r.full {
			// What is kept is a prefix: once an event is over the limit, all later ones are.
			r.full = true
			r.sum.GapAt = r.sum.Bytes + r.sum.FailedBytes
		}
		r.sum.Dropped++
		r.sum.DroppedBytes += int64(len(line))
		return
	}
	at := r.sum.Bytes + r.sum.FailedBytes
	if !r.write(line) {
		r.sum.Failed++
		r.sum.FailedBytes += int64(len(line))
		if r.hole.Events == 0 {
			r.hole.Offset = at
		}
		r.hole.Events++
		r.hole.Bytes += int64(len(line))
		return
	}
	if ev.Truncated {
		r.sum.Truncated++
	}
	r.fillHole()
}

// write reports whether the writer took the line.
func (r *Recorder) write(line []byte) bool {
	if r.cfg.Writer != nil {
		if _, err := r.cfg.Writer.Write(line); err != nil {
			r.err = cmp.Or(r.err, fmt.Errorf("trace: write: %w", err))
			return false
		}
	}
	r.sum.Events++
	r.sum.Bytes += int64(len(line))
	return true
}

// gap is what a gap event says, so that a reader of the trace alone knows that it
// is not whole.
type gap struct {
	// Reason is over_limit or protocol.GapWriteError.
	Reason string `json:"reason"`
	// Offset is where the hole begins, as in protocol.Gap.
	Offset int64 `json:"offset"`
	Limit  int64 `json:"limitBytes,omitempty"`
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// fillHole says which events the writer did not take, once it takes some again: behind
// the first of these, so that nothing but events is tried on a full disk.
func (r *Recorder) fillHole() {
	if r.hole.Events > 0 && r.writeGap(r.hole) {
		r.hole = gap{}
	}
}

func (r *Recorder) writeGap(g gap) bool {
	g.Reason = cmp.Or(g.Reason, protocol.GapWriteError)
	attributes, _ := json.Marshal(g)
	ev := protocol.TraceEvent{Kind: protocol.EventSpan, Name: GapName, Attributes: attributes, Truncated: true}
	r.stamp(&ev)
	return r.write(r.encode(&ev))
}

// stamp gives an event a time on this project's clock. Numbers that JSON cannot
// carry are taken out: an unknown number is absent.
func (r *Recorder) stamp(ev *protocol.TraceEvent) {
	if ev.T == 0 || !finite(ev.T) {
		ev.T = Millis(r.cfg.Now())
	}
	if ev.At == "" && ev.T > 0 && ev.T < maxTime {
		ev.At = protocol.At(time.UnixMicro(int64(ev.T * 1000))).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if !finite(ev.DurationMs) {
		ev.DurationMs = 0
	}
	if ev.LatencyMs != nil && !finite(*ev.LatencyMs) {
		ev.LatencyMs = nil
	}
	if c := ev.Cost; c != nil && c.USD != nil && (!finite(*c.USD) || *c.USD < 0) {
		copied := *c
		copied.USD = nil
		ev.Cost = &copied
	}
}

// maxTime is the end of the year 9999, beyond which At has no form.
const maxTime = 253402300800000

// Millis is an instant as an event's T: epoch milliseconds with microseconds
// behind the point.
func Millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func (r *Recorder) count(ev protocol.TraceEvent) {
	if r.sum.FirstT == 0 || ev.T < r.sum.FirstT {
		r.sum.FirstT = ev.T
	}
	r.sum.LastT = max(r.sum.LastT, ev.T)
	switch ev.Kind {
	case protocol.EventToolCall:
		r.sum.ToolCalls++
	case protocol.EventLLMCall:
		if ev.Model != AggregateModel {
			r.sum.LLMCalls++
		}
		r.totals.add(ev.Model, ev.Cost)
	case protocol.EventMessage:
		if ev.Role == "assistant" && ev.Text != nil && ev.ParentID == "" {
			text := *ev.Text
			if len(text) > MaxFinalMessage {
				text = strings.ToValidUTF8(text[len(text)-MaxFinalMessage:], "")
			}
			text = strings.Clone(text)
			r.sum.FinalMessage = &text
		}
	}
}

// encode returns the event as one line of at most MaxTraceEventBytes, newline
// included; the slice is valid until the next call.
func (r *Recorder) encode(ev *protocol.TraceEvent) []byte {
	for _, raw := range []*json.RawMessage{&ev.Args, &ev.Detail, &ev.Attributes} {
		if len(*raw) > 0 && !json.Valid(*raw) {
			*raw, _ = json.Marshal(string(*raw))
		}
	}
	line, err := appendJSON(r.buf[:0], ev)
	if err == nil && len(line) > protocol.MaxTraceEventBytes {
		clip(ev, len(line))
		line, err = appendJSON(r.buf[:0], ev)
	}
	if err != nil {
		// Every field was made encodable above; an event that is not is a bug that
		// must not cost the run its trace.
		line = fmt.Appendf(nil, `{"kind":"error","t":%s,"message":%q,"truncated":true}`+"\n",
			strconv.FormatFloat(ev.T, 'f', -1, 64), "an event of kind "+ev.Kind+" could not be encoded")
	}
	if cap(line) <= protocol.MaxTraceEventBytes {
		r.buf = line
	}
	return line
}

func appendJSON(buf []byte, ev *protocol.TraceEvent) ([]byte, error) {
	b := bytes.NewBuffer(buf)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(ev)
	return b.Bytes(), err
}

// Known reports whether kind is one of the closed list.
func Known(kind string) bool {
	switch kind {
	case protocol.EventMessage, protocol.EventLLMCall, protocol.EventToolCall, protocol.EventToolResult,
		protocol.EventEnvAction, protocol.EventError, protocol.EventLog, protocol.EventArtifact,
		protocol.EventSpan, protocol.EventInfra:
		return true
	}
	return false
}
