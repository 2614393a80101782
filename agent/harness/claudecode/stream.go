package claudecode

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/everdict/everdict/agent/evidence/jsonl"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/protocol"
)

// synthetic is the model of text that the CLI wrote itself, for an API error.
const synthetic = "<synthetic>"

// Stream reads the JSON lines of `claude --output-format stream-json --verbose`
// (seen: 2.1.197). Unknown types, lines that are no JSON and lines that are too
// long are passed over; the latter leave a truncated log event.
//
// A message comes as one line per content block, all with its id and the usage
// of its beginning: the input side is right, the output side is not. So each id
// counts once, with its input side alone; the final result holds the totals.
type Stream struct {
	emit     func(protocol.TraceEvent)
	lines    jsonl.Splitter
	report   harness.Report
	finished chan struct{}
	once     sync.Once

	messages  *harness.Recent // ids that are counted
	calls     int64           // of the main agent and of sub-agents that show themselves
	subAgents bool            // sub-agents ran: their calls are not all in the stream
	spent     sum             // what the emitted llm_call events add up to
	current   string          // the message that stream_event lines are about
	output    *int64          // of current, so far; nil until it says so
	outputs   *int64          // of the messages before it
}

var _ harness.Stream = (*Stream)(nil)

// NewStream returns a stream that emits trace events.
func NewStream(emit func(protocol.TraceEvent)) *Stream {
	s := &Stream{emit: emit, finished: make(chan struct{}), messages: harness.NewRecent()}
	s.lines.Line = s.line
	return s
}

// Write implements harness.Stream.
func (s *Stream) Write(p []byte) (int, error) { return s.lines.Write(p) }

// Finished implements harness.Stream.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// Hopeless implements harness.Stream. The CLI bounds its own retries.
func (s *Stream) Hopeless() <-chan struct{} { return nil }

// Close implements harness.Stream.
func (s *Stream) Close() harness.Report {
	s.lines.Close()
	if !s.report.Complete {
		s.report.Usage = s.partial()
	}
	return s.report
}

// line is one line of output.
func (s *Stream) line(b []byte, dropped int64) {
	if dropped > 0 {
		s.report.Truncated++
		s.emit(harness.OverlongLine(b, dropped))
		return
	}
	var l line
	if !jsonl.Decode(b, &l) || l.Type == "" {
		if len(b) > 0 {
			s.report.Garbage++
		}
		return
	}
	switch l.Type {
	case "system":
		s.system(l)
	case "assistant":
		s.assistant(l)
	case "user":
		s.user(l)
	case "result":
		s.result(b)
	case "stream_event":
		s.streamEvent(l)
	}
}

type line struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	Parent    string          `json:"parent_tool_use_id"`
	SessionID string          `json:"session_id"`
	Message   json.RawMessage `json:"message"`
	Event     json.RawMessage `json:"event"`
	// system/init
	Model   string `json:"model"`
	Version string `json:"claude_code_version"`
	// system/api_retry
	Attempt     int             `json:"attempt"`
	MaxRetries  int             `json:"max_retries"`
	RetryDelay  float64         `json:"retry_delay_ms"`
	ErrorStatus int             `json:"error_status"`
	Error       json.RawMessage `json:"error"`
}

func (s *Stream) system(l line) {
	switch l.Subtype {
	case "init":
		s.report.Version, s.report.Model = l.Version, l.Model
		attributes, _ := json.Marshal(map[string]string{"sessionId": l.SessionID, "model": l.Model, "version": l.Version})
		s.emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: "session", Attributes: attributes})
	case "api_retry":
		text := fmt.Sprintf("API retry %d of %d in %.0f ms: %s", l.Attempt, l.MaxRetries, l.RetryDelay, words(l.Error))
		if l.ErrorStatus != 0 {
			text += fmt.Sprintf(" (status %d)", l.ErrorStatus)
		}
		s.emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stderr", Text: &text})
	}
}

type message struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   *usage          `json:"usage"`
}

type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	ToolUse  string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsError  bool            `json:"is_error"`
}

// blocks reads content, which is a list of blocks or a plain string.
func blocks(raw json.RawMessage) []block {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	var items []json.RawMessage
	json.Unmarshal(raw, &items)
	var out []block
	for _, item := range items {
		var b block
		if jsonl.Decode(item, &b) {
			out = append(out, b)
		}
	}
	return out
}

func (s *Stream) assistant(l line) {
	var m message
	if !jsonl.Decode(l.Message, &m) {
		return
	}
	s.subAgents = s.subAgents || l.Parent != ""
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
			if m.Model == synthetic {
				// The CLI speaking for a failed API, not the model.
				// What it says comes again in the result.
				s.emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stdout", Text: &b.Text})
				continue
			}
			text := b.Text
			s.emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: &text, ParentID: l.Parent})
			if l.Parent == "" {
				s.report.FinalMessage = &text
			}
		case "thinking":
			attributes, _ := json.Marshal(map[string]string{"text": b.Thinking})
			s.emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: "reasoning", ParentID: l.Parent, Attributes: attributes})
		case "tool_use", "server_tool_use":
			s.subAgents = s.subAgents || b.Name == "Agent" || b.Name == "Task"
			s.emit(protocol.TraceEvent{Kind: protocol.EventToolCall, ID: b.ID, Name: b.Name, Args: b.Input, SpanID: b.ID, ParentID: l.Parent})
		}
	}
	s.call(m)
}

// call counts a model call once, whatever number of lines it comes in.
func (s *Stream) call(m message) {
	if m.ID == "" || m.Model == synthetic || m.Usage == nil || s.messages.Has(m.ID) {
		return
	}
	s.messages.Add(m.ID)
	s.calls++
	s.spent.addInput(m.Usage)
	s.emit(protocol.TraceEvent{Kind: protocol.EventLLMCall, Model: m.Model, Cost: &protocol.Cost{
		InputTokens: m.Usage.Input, CacheReadTokens: m.Usage.CacheRead, CacheWriteTokens: m.Usage.CacheWrite,
	}})
}

func (s *Stream) user(l line) {
	var m message
	if !jsonl.Decode(l.Message, &m) {
		return
	}
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
			text := b.Text
			s.emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "user", Text: &text, ParentID: l.Parent})
		case "tool_result":
			ok, output := !b.IsError, plainText(b.Content)
			s.emit(protocol.TraceEvent{Kind: protocol.EventToolResult, ID: b.ToolUse, OK: &ok, Output: &output, ParentID: b.ToolUse})
		}
	}
}

// streamEvent takes the true output of a message from --include-partial-messages,
// which only a command harness can have asked for.
func (s *Stream) streamEvent(l line) {
	var e struct {
		Type    string  `json:"type"`
		Message message `json:"message"`
		Usage   *usage  `json:"usage"`
	}
	if !jsonl.Decode(l.Event, &e) {
		return
	}
	switch e.Type {
	case "message_start":
		if e.Message.ID != s.current {
			add(&s.outputs, s.output)
			s.current, s.output = e.Message.ID, nil
		}
	case "message_delta":
		// Cumulative within the message.
		if e.Usage != nil && e.Usage.Output != nil && s.current != "" && (s.output == nil || *s.output < *e.Usage.Output) {
			s.output = e.Usage.Output
		}
	}
}

// plainText is a tool's output: a string, a list of blocks, or else its JSON.
func plainText(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(raw, &parts) == nil {
		for i, p := range parts {
			if i > 0 {
				text += "\n"
			}
			if p.Type == "text" {
				text += p.Text
			} else {
				text += "[" + p.Type + "]"
			}
		}
		return text
	}
	return string(raw)
}

// words is an error that is a string, or else its JSON.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
