package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/everdict/everdict/agent/evidence/jsonl"
	"github.com/everdict/everdict/protocol"
)

// MaxReadItem is the longest item that Read decodes; longer ones are counted as
// invalid. In an array, one that is much longer ends the reading.
const MaxReadItem = 4 << 20

// Read decodes a trace from elsewhere, JSON lines or one JSON array, and calls
// yield for each event in order. Items that are no trace event are dropped and
// counted. It stops at the first error of yield or of src; an array that breaks
// off ends the trace there, with its rest counted as one invalid item.
func Read(src io.Reader, yield func(protocol.TraceEvent) error) (invalid int64, err error) {
	in := bufio.NewReader(src)
	array, err := startsWithBracket(in)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, err
	}
	if array {
		return readArray(in, yield)
	}
	split := jsonl.Splitter{Max: MaxReadItem}
	var stop error
	split.Line = func(line []byte, dropped int64) {
		if stop != nil || dropped == 0 && len(bytes.TrimSpace(line)) == 0 {
			return
		}
		ev, ok := Decode(line)
		if !ok || dropped > 0 {
			invalid++
			return
		}
		stop = yield(ev)
	}
	// A loop instead of io.Copy, so that an error of yield ends the reading.
	chunk := make([]byte, 64<<10)
	for stop == nil {
		n, err := in.Read(chunk)
		split.Write(chunk[:n])
		if errors.Is(err, io.EOF) {
			split.Close()
			break
		}
		if err != nil {
			return invalid, fmt.Errorf("trace: read: %w", err)
		}
	}
	return invalid, stop
}

// startsWithBracket skips white space (and a byte order mark) before the first byte.
func startsWithBracket(in *bufio.Reader) (bool, error) {
	for {
		r, _, err := in.ReadRune()
		if err != nil {
			return false, err
		}
		switch r {
		case ' ', '\t', '\r', '\n', '\ufeff':
		default:
			return r == '[', in.UnreadRune()
		}
	}
}

func readArray(in io.Reader, yield func(protocol.TraceEvent) error) (invalid int64, err error) {
	meter := &itemMeter{src: in, left: MaxReadItem}
	d := json.NewDecoder(meter)
	if _, err := d.Token(); err != nil {
		return 1, nil
	}
	for d.More() {
		// What the decoder read beyond the last item counts towards the next one's
		// limit, which is why the limit has slack.
		meter.left = MaxReadItem
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return invalid + 1, meter.err()
		}
		ev, ok := Decode(raw)
		if !ok || len(raw) > MaxReadItem {
			invalid++
			continue
		}
		if err := yield(ev); err != nil {
			return invalid, err
		}
	}
	meter.left = MaxReadItem
	if _, err := d.Token(); err != nil {
		invalid++
	}
	return invalid, meter.err()
}

// itemMeter bounds how much a decoder reads for one item, since a decoder
// buffers an item whole.
type itemMeter struct {
	src    io.Reader
	left   int
	failed error
}

var errItemTooLong = errors.New("item too long")

func (m *itemMeter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errItemTooLong
	}
	n, err := m.src.Read(p)
	m.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		m.failed = err
	}
	return n, err
}

func (m *itemMeter) err() error {
	if m.failed != nil {
		return fmt.Errorf("trace: read: %w", m.failed)
	}
	return nil
}

// Decode reads one event and reports whether it is one: a JSON object of a known
// kind with what that kind cannot be without.
func Decode(b []byte) (protocol.TraceEvent, bool) {
	var ev protocol.TraceEvent
	if err := json.Unmarshal(b, &ev); err != nil || !Known(ev.Kind) {
		return ev, false
	}
	ok := true
	switch ev.Kind {
	case protocol.EventMessage:
		ok = ev.Text != nil && (ev.Role == "user" || ev.Role == "assistant")
	case protocol.EventLLMCall:
		ok = ev.Model != ""
	case protocol.EventToolCall:
		ok = ev.Name != ""
	case protocol.EventToolResult:
		ok = ev.OK != nil
	case protocol.EventEnvAction:
		ok = ev.Action != ""
	case protocol.EventLog:
		ok = ev.Text != nil && (ev.Stream == "stdout" || ev.Stream == "stderr")
	case protocol.EventArtifact, protocol.EventSpan:
		ok = ev.Name != ""
	}
	return ev, ok
}
