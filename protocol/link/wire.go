package link

import (
	"encoding/json"
	"errors"
	"fmt"
)

// message is one JSON message of the wire. Its type name is the field "type" of the JSON object, beside the message's
// own fields. check holds the limits, for the sender before it sends and for the receiver after it decoded.
type message interface {
	messageType() string
	check() error
}

// The messages that carry nothing but what the exported types hold, and the few that only this package needs.
type (
	offer struct {
		Attempt
		JobBytes int64 `json:"job_bytes"`
	}
	started  struct{}
	done     struct{}
	standing struct {
		Standing Standing `json:"standing"`
		Reason   string   `json:"reason,omitempty"`
	}
	withdraw struct {
		Request string `json:"request"`
	}
	giveBack struct {
		AttemptRef
		GiveBack
	}
	ack struct {
		Channel string `json:"channel"`
		Offset  int64  `json:"offset"`
		// Closed is a code: no more bytes of this channel are taken.
		Closed  string `json:"closed,omitempty"`
		Message string `json:"message,omitempty"`
	}
	result struct {
		Bytes int64 `json:"bytes"`
	}
	opened struct {
		Params json.RawMessage `json:"params,omitempty"`
	}
	eof struct {
		Channel byte `json:"channel"`
	}
	consumed struct {
		Bytes int64 `json:"bytes"`
	}
	// unknown is a message of a type that this build does not know.
	unknown struct{ name string }
)

func (*Hello) messageType() string          { return "hello" }
func (*Welcome) messageType() string        { return "welcome" }
func (*UpdateRequired) messageType() string { return "update_required" }
func (*Heartbeat) messageType() string      { return "heartbeat" }
func (*HeartbeatAck) messageType() string   { return "heartbeat_ack" }
func (*Cancel) messageType() string         { return "cancel" }
func (*Drain) messageType() string          { return "drain" }
func (*Status) messageType() string         { return "status" }
func (*withdraw) messageType() string       { return "withdraw" }
func (*PullRequest) messageType() string    { return "pull" }
func (*offer) messageType() string          { return "offer" }
func (*started) messageType() string        { return "started" }
func (*done) messageType() string           { return "done" }
func (*GiveBack) messageType() string       { return "refuse" }
func (*giveBack) messageType() string       { return "give_back" }
func (*standing) messageType() string       { return "standing" }
func (*EvidenceOpen) messageType() string   { return "evidence" }
func (*EvidenceReady) messageType() string  { return "ready" }
func (*ack) messageType() string            { return "ack" }
func (*result) messageType() string         { return "result" }
func (*ResultAck) messageType() string      { return "result_ack" }
func (*Ask) messageType() string            { return "ask" }
func (*Answer) messageType() string         { return "answer" }
func (*StreamOpen) messageType() string     { return "open" }
func (*opened) messageType() string         { return "opened" }
func (*eof) messageType() string            { return "eof" }
func (*consumed) messageType() string       { return "consumed" }
func (*Resize) messageType() string         { return "resize" }
func (*Exit) messageType() string           { return "exit" }
func (*RemoteError) messageType() string    { return "error" }
func (u *unknown) messageType() string      { return u.name }

// newMessage returns an empty message of a type, or nil for a type that this build does not know.
func newMessage(name string) message {
	switch name {
	case "hello":
		return new(Hello)
	case "welcome":
		return new(Welcome)
	case "update_required":
		return new(UpdateRequired)
	case "heartbeat":
		return new(Heartbeat)
	case "heartbeat_ack":
		return new(HeartbeatAck)
	case "cancel":
		return new(Cancel)
	case "drain":
		return new(Drain)
	case "status":
		return new(Status)
	case "withdraw":
		return new(withdraw)
	case "pull":
		return new(PullRequest)
	case "offer":
		return new(offer)
	case "started":
		return new(started)
	case "done":
		return new(done)
	case "refuse":
		return new(GiveBack)
	case "give_back":
		return new(giveBack)
	case "standing":
		return new(standing)
	case "evidence":
		return new(EvidenceOpen)
	case "ready":
		return new(EvidenceReady)
	case "ack":
		return new(ack)
	case "result":
		return new(result)
	case "result_ack":
		return new(ResultAck)
	case "ask":
		return new(Ask)
	case "answer":
		return new(Answer)
	case "open":
		return new(StreamOpen)
	case "opened":
		return new(opened)
	case "eof":
		return new(eof)
	case "consumed":
		return new(consumed)
	case "resize":
		return new(Resize)
	case "exit":
		return new(Exit)
	case "error":
		return new(RemoteError)
	}
	return nil
}

// limits collects the first violation.
type limits struct{ err error }

func (l *limits) max(name string, got, limit int) {
	if l.err == nil && got > limit {
		l.err = &LimitError{Limit: name, Configured: int64(limit), Measured: int64(got)}
	}
}

func (l *limits) id(name, v string) {
	l.max(name, len(v), MaxID)
}

func (l *limits) need(name, v string) {
	if l.err == nil && v == "" {
		l.err = fmt.Errorf("%s is empty", name)
	}
	l.id(name, v)
}

func (l *limits) text(name, v string) { l.max(name, len(v), MaxText) }

func (l *limits) size(name string, v, limit int64) {
	if l.err == nil && v < 0 {
		l.err = fmt.Errorf("%s of %d is negative", name, v)
	}
	if l.err == nil && v > limit {
		l.err = &LimitError{Limit: name, Configured: limit, Measured: v}
	}
}

func (l *limits) ref(r *AttemptRef) {
	l.need("run", r.Run)
	l.need("job", r.Job)
	l.id("token", string(r.Token))
	l.size("epoch", r.Epoch, 1<<62)
}

func (l *limits) offsets(m map[string]int64) {
	l.max("channels", len(m), MaxChannels)
	for ch, off := range m {
		l.max("channel name", len(ch), MaxChannelName)
		l.size("offset", off, 1<<62)
	}
}

func (l *limits) held(hs []HeldLease) {
	l.max("leases", len(hs), MaxLeases)
	for i := range hs {
		l.ref(&hs[i].AttemptRef)
		l.offsets(hs[i].Offsets)
	}
}

func (l *limits) verdicts(vs []LeaseVerdict) {
	l.max("leases", len(vs), MaxLeases)
	for i := range vs {
		l.need("job", vs[i].Job)
		l.text("reason", vs[i].Reason)
	}
}

func (l *limits) terms(t *Terms) {
	l.text("scope", t.Scope)
	l.text("paused", t.Paused)
}

// Messages that have nothing to check but their size as a whole.
func (*started) check() error  { return nil }
func (*done) check() error     { return nil }
func (*opened) check() error   { return nil }
func (*unknown) check() error  { return nil }
func (*Resize) check() error   { return nil }
func (*Exit) check() error     { return nil }
func (*eof) check() error      { return nil }
func (*standing) check() error { return nil }

func (m *consumed) check() error {
	var l limits
	l.size("consumed", m.Bytes, 1<<62)
	return l.err
}

func (m *Hello) check() error {
	var l limits
	l.held(m.Leases)
	l.max("capabilities", len(m.Capabilities), MaxLeases)
	l.max("capability_evidence", len(m.CapabilityEvidence), MaxLeases)
	for _, text := range m.CapabilityEvidence {
		l.text("capability_evidence", text)
	}
	l.max("labels", len(m.Labels), MaxLeases)
	l.size("slots", int64(m.Slots), 1<<16)
	l.terms(&m.Terms)
	return l.err
}

func (m *Welcome) check() error {
	var l limits
	l.verdicts(m.Leases)
	return l.err
}

func (m *UpdateRequired) check() error {
	var l limits
	l.text("message", m.Message)
	return l.err
}

func (m *Heartbeat) check() error {
	var l limits
	l.held(m.Leases)
	l.max("pulls", len(m.Pulls), MaxLeases)
	l.text("degraded", m.Degraded)
	l.terms(&m.Terms)
	return l.err
}

func (m *HeartbeatAck) check() error {
	var l limits
	l.verdicts(m.Leases)
	l.max("lost pulls", len(m.LostPulls), MaxLeases)
	return l.err
}

func (m *Cancel) check() error {
	var l limits
	l.need("job", m.Job)
	l.text("reason", m.Reason)
	return l.err
}

func (m *Drain) check() error {
	var l limits
	l.text("reason", m.Reason)
	return l.err
}

func (m *Status) check() error {
	var l limits
	l.text("status", m.Text)
	return l.err
}

func (m *withdraw) check() error {
	var l limits
	l.need("request", m.Request)
	return l.err
}

func (m *PullRequest) check() error {
	var l limits
	l.need("request", m.Request)
	return l.err
}

func (m *offer) check() error {
	var l limits
	l.ref(&m.AttemptRef)
	l.size("job", m.JobBytes, MaxJob)
	return l.err
}

func (m *GiveBack) check() error {
	var l limits
	l.id("reason", m.Reason)
	l.text("text", m.Text)
	return l.err
}

func (m *giveBack) check() error {
	var l limits
	l.ref(&m.AttemptRef)
	if l.err != nil {
		return l.err
	}
	return m.GiveBack.check()
}

func (m *EvidenceOpen) check() error {
	var l limits
	l.ref(&m.AttemptRef)
	return l.err
}

func (m *EvidenceReady) check() error {
	var l limits
	l.offsets(m.Offsets)
	return l.err
}

func (m *ack) check() error {
	if err := checkChannel(m.Channel); err != nil {
		return err
	}
	var l limits
	l.size("offset", m.Offset, 1<<62)
	return l.err
}

func (m *result) check() error {
	var l limits
	l.size("result", m.Bytes, MaxResult)
	return l.err
}

func (m *ResultAck) check() error {
	switch m.Status {
	case ResultAccepted, ResultStale, ResultRejected:
	default:
		return fmt.Errorf("result status %q is unknown", m.Status)
	}
	var l limits
	l.id("code", m.Code)
	l.text("message", m.Message)
	return l.err
}

func (m *Ask) check() error {
	var l limits
	l.ref(&m.AttemptRef)
	l.need("id", m.ID)
	l.text("question", m.Question)
	return l.err
}

func (m *Answer) check() error {
	var l limits
	l.id("id", m.ID)
	l.text("comment", m.Comment)
	return l.err
}

func (m *StreamOpen) check() error {
	var l limits
	l.need("kind", m.Kind)
	l.ref(&m.Attempt)
	return l.err
}

func (m *RemoteError) check() error {
	var l limits
	l.need("code", m.Code)
	l.text("message", m.Message)
	return l.err
}

// checkChannel accepts log, trace, artifact:<name> and channels of later versions: a name that is not empty, not too
// long, and printable. What a name means, paths included, is the business of whoever stores it.
func checkChannel(name string) error {
	if name == "" {
		return errors.New("channel name is empty")
	}
	if len(name) > MaxChannelName {
		return &LimitError{Limit: "channel name", Configured: MaxChannelName, Measured: int64(len(name))}
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return errors.New("channel name has unprintable characters")
		}
	}
	return nil
}
