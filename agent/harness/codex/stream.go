package codex

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/everdict/everdict/agent/evidence/jsonl"
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/protocol"
)

// maxRetryNotices is how many notices of a lost connection in a row are taken as
// retrying for ever. The CLI's own bound for a broken stream is 5; when the
// server is down it has none.
const maxRetryNotices = 20

// Stream reads the JSON lines of `codex exec --json` (seen: 0.171.0). Unknown
// types, lines that are no JSON and lines that are too long are passed over; the
// latter leave a truncated log event.
//
// The stream has no model, no cost and no count of calls; usage comes once, at
// the end of the turn, cumulative. After a broken stream the CLI repeats what it
// had already printed: repeated texts are dropped.
type Stream struct {
	emit     func(protocol.TraceEvent)
	lines    jsonl.Splitter
	report   harness.Report
	finished chan struct{}
	hopeless chan struct{}
	finish   sync.Once
	giveUp   sync.Once

	thread  string
	started *harness.Recent // ids of items whose call is emitted
	said    *harness.Recent // texts since the last progress
	retried bool
	notices int
	lastErr string
	spent   usage // what the emitted llm_call events add up to
}

var _ harness.Stream = (*Stream)(nil)

// NewStream returns a stream that emits trace events.
func NewStream(emit func(protocol.TraceEvent)) *Stream {
	s := &Stream{emit: emit, finished: make(chan struct{}), hopeless: make(chan struct{}), started: harness.NewRecent(), said: harness.NewRecent()}
	s.lines.Line = s.line
	return s
}

// Write implements harness.Stream.
func (s *Stream) Write(p []byte) (int, error) { return s.lines.Write(p) }

// Finished implements harness.Stream.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// Hopeless implements harness.Stream: the CLI never gives up on a server that is
// down.
func (s *Stream) Hopeless() <-chan struct{} { return s.hopeless }

// Close implements harness.Stream.
func (s *Stream) Close() harness.Report {
	s.lines.Close()
	return s.report
}

type line struct {
	Type    string          `json:"type"`
	Thread  string          `json:"thread_id"`
	Message string          `json:"message"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Item    json.RawMessage `json:"item"`
}

type item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	ExitCode  *int            `json:"exit_code"`
	Status    string          `json:"status"`
	Changes   json.RawMessage `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
	Query     string          `json:"query"`
}

// usage is OpenAI's: input includes what was cached, output includes reasoning.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	Cached     *int64 `json:"cached_input_tokens"`
	CacheWrite *int64 `json:"cache_write_input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Reasoning  *int64 `json:"reasoning_output_tokens"`
}

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
	case "thread.started":
		s.thread = l.Thread
		attributes, _ := json.Marshal(map[string]string{"sessionId": l.Thread})
		s.emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: "session", Attributes: attributes})
	case "item.started", "item.completed":
		var it item
		if jsonl.Decode(l.Item, &it) {
			s.item(it, l.Item, l.Type == "item.completed")
		}
	case "error":
		s.notice(l.Message)
	case "turn.completed":
		s.completed(l.Usage)
	case "turn.failed":
		s.failed(l.Error)
	}
}

// notice is an `error` line: nearly always a retry, after which all can be well.
func (s *Stream) notice(message string) {
	s.lastErr = message
	s.retried = true
	s.notices++
	s.emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stderr", Text: &message})
	if s.notices >= maxRetryNotices && s.report.APIError == "" {
		s.report.APIError = message
		s.report.APIStatus = status(message)
		s.giveUp.Do(func() { close(s.hopeless) })
	}
}

// progress is an item that is no repetition: the connection works again.
func (s *Stream) progress() {
	s.notices, s.retried = 0, false
	s.said.Clear()
}

// repeated reports whether a text was already said in this try of the turn.
func (s *Stream) repeated(kind, text string) bool {
	key := kind + "\x00" + text
	if s.retried && s.said.Has(key) {
		return true
	}
	if s.retried {
		s.notices = 0
	}
	s.said.Add(key)
	return false
}

func (s *Stream) item(it item, raw json.RawMessage, completed bool) {
	switch it.Type {
	case "":
		return
	case "agent_message", "reasoning", "error", "todo_list", "plan":
		if completed {
			s.text(it, raw)
		}
		return
	}
	name, args := call(it, raw)
	if !s.started.Has(it.ID) {
		s.started.Add(it.ID)
		s.progress()
		s.emit(protocol.TraceEvent{Kind: protocol.EventToolCall, ID: it.ID, Name: name, Args: args, SpanID: it.ID})
	}
	if completed {
		s.started.Delete(it.ID)
		ok, output := outcome(it)
		s.emit(protocol.TraceEvent{Kind: protocol.EventToolResult, ID: it.ID, OK: &ok, Output: &output, ParentID: it.ID})
	}
}

func (s *Stream) text(it item, raw json.RawMessage) {
	switch it.Type {
	case "agent_message":
		if !s.repeated(it.Type, it.Text) {
			s.report.FinalMessage = &it.Text
			s.emit(protocol.TraceEvent{Kind: protocol.EventMessage, Role: "assistant", Text: &it.Text})
		}
	case "reasoning":
		if !s.repeated(it.Type, it.Text) {
			attributes, _ := json.Marshal(map[string]string{"text": it.Text})
			s.emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: "reasoning", Attributes: attributes})
		}
	case "error":
		// A warning, such as a model without metadata: the run goes on.
		s.emit(protocol.TraceEvent{Kind: protocol.EventLog, Stream: "stderr", Text: &it.Message})
	default:
		s.emit(protocol.TraceEvent{Kind: protocol.EventSpan, Name: it.Type, Attributes: raw})
	}
}

// call names the tool of an item and its arguments; an item of an unknown type
// is a tool of that name.
func call(it item, raw json.RawMessage) (string, json.RawMessage) {
	switch it.Type {
	case "command_execution":
		args, _ := json.Marshal(map[string]string{"command": it.Command})
		return it.Type, args
	case "file_change":
		args, _ := json.Marshal(map[string]json.RawMessage{"changes": orNull(it.Changes)})
		return it.Type, args
	case "mcp_tool_call":
		return it.Server + "." + it.Tool, it.Arguments
	case "web_search":
		args, _ := json.Marshal(map[string]string{"query": it.Query})
		return it.Type, args
	}
	return it.Type, raw
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// outcome is how a tool ended.
func outcome(it item) (ok bool, output string) {
	ok = it.Status != "failed" && it.Status != "declined" && (it.ExitCode == nil || *it.ExitCode == 0)
	output = it.Output
	if output == "" && len(it.Result) > 0 && string(it.Result) != "null" {
		output = string(it.Result)
	}
	if len(it.Error) > 0 && string(it.Error) != "null" {
		output += string(it.Error)
		ok = false
	}
	if it.ExitCode != nil && *it.ExitCode != 0 {
		output = strings.TrimRight(output, "\n") + fmt.Sprintf("\n[exit code %d]", *it.ExitCode)
	}
	return ok, output
}

var statusWords = regexp.MustCompile(`\bstatus (\d{3})\b`)

func status(message string) int {
	if m := statusWords.FindStringSubmatch(message); m != nil {
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return 0
}

func (s *Stream) failed(raw json.RawMessage) {
	var e struct {
		Message string `json:"message"`
	}
	jsonl.Decode(raw, &e)
	if e.Message == "" {
		e.Message = s.lastErr
	}
	if e.Message == "" {
		e.Message = "the turn failed"
	}
	s.report.Complete = true
	s.report.APIError, s.report.APIStatus = e.Message, status(e.Message)
	s.finish.Do(func() { close(s.finished) })
}

// completed takes the totals of the thread, which later turns include.
func (s *Stream) completed(u *usage) {
	s.report.Complete = true
	s.report.APIError, s.report.APIStatus = "", 0
	defer s.finish.Do(func() { close(s.finished) })
	if u == nil || u.Input == nil && u.Output == nil {
		return
	}
	s.report.Usage = u.total("codex:turn.completed.usage")
	s.emit(u.aggregate(&s.spent))
	s.spent = *u
}

// uncached is the input that was neither read from a cache nor written to one.
func uncached(u *usage) *int64 {
	if u.Input == nil {
		return nil
	}
	n := *u.Input
	for _, part := range []*int64{u.Cached, u.CacheWrite} {
		if part != nil {
			n -= *part
		}
	}
	n = max(n, 0)
	return &n
}

// grown is by how much a cumulative number grew.
func grown(now, before *int64) *int64 {
	if now == nil {
		return nil
	}
	n := *now
	if before != nil {
		n -= *before
	}
	n = max(n, 0)
	return &n
}
