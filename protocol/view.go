package protocol

import "encoding/json"

// LogQuery selects a part of a run's log.
type LogQuery struct {
	// Attempt is whose log it is; 0: that of the newest.
	Attempt int64
	// Stream is stdout, stderr or empty for both.
	Stream string
	// Offset is the first byte wanted, of the stream as stored.
	Offset int64
	// Tail, if above 0, wants only that many bytes from the end.
	Tail int64
	// Limit, if above 0, wants only that many bytes from Offset on, or before Before if
	// that is above 0. Such a page begins and ends with a line where it can.
	Limit, Before int64
}

// LogSearch looks for a text in a run's log, from Offset on.
type LogSearch struct {
	// Attempt is whose log is searched; 0: that of the newest.
	Attempt      int64
	Stream, Text string
	// Case says that a and A differ.
	Case   bool
	Offset int64
	// Limit is how many matches are wanted.
	Limit int
}

// LogMatches is the answer of GET /runs/{id}/logs/search.
type LogMatches struct {
	Matches []LogMatch `json:"matches"`
	// Next is the offset to search on from; Done says that there is nothing behind it.
	Next int64 `json:"next"`
	Done bool  `json:"done"`
	// Bytes is the length of the log.
	Bytes int64 `json:"bytes"`
}

// LogMatch is a line with the text in it. Offset is where the line begins in the log,
// Text a part of it that can be shown, Column how many characters of Text come before
// the match.
type LogMatch struct {
	Offset int64  `json:"offset"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

// Streams of a log.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// LogView is the answer of GET /runs/{id}/logs: a readable text. The bytes
// themselves are at ?raw=1.
type LogView struct {
	Status Status `json:"status"`
	// Found says that the run has a log, be it empty.
	Found bool   `json:"found"`
	Text  string `json:"text"`
	// Truncated says that Text is only a part of the log; Bytes is its length.
	Truncated bool  `json:"truncated,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"`
	// Offset is where Text begins in the log, Next where it ends.
	Offset int64 `json:"offset"`
	Next   int64 `json:"next"`
	// Attempt is the attempt whose log this is.
	Attempt int64 `json:"attempt,omitempty"`
}

// TracePage is a part of a run's trace, in order.
type TracePage struct {
	Status Status       `json:"status"`
	Events []TraceEvent `json:"events"`
	// Next reads on after the last event; empty: this was the end so far.
	Next string `json:"next,omitempty"`
	// Total counts the events that are stored.
	Total int64 `json:"total"`
	// SealedAt is when the trace was complete; nil while the run goes on.
	SealedAt *Time `json:"sealedAt,omitempty"`
}

// TraceQuery says which part of a run's trace is wanted.
type TraceQuery struct {
	// Attempt is whose trace it is; 0: that of the newest.
	Attempt int64
	// Cursor is where the part begins: Next of the page before, or empty.
	Cursor string
	// Limit is how many events are wanted, at least 1.
	Limit int
}

// Trajectory is the answer of GET /runs/{id}/trajectory.
type Trajectory struct {
	Meta     TrajectoryMeta      `json:"meta"`
	Events   []TraceEvent        `json:"events"`
	Segments []TrajectorySegment `json:"segments"`
}

// TrajectoryMeta says what a trajectory was made from.
type TrajectoryMeta struct {
	Source     string `json:"source"`
	EventCount int64  `json:"eventCount"`
	SealedAt   Time   `json:"sealedAt"`
}

// TrajectorySegment is the part of a trajectory that one emitter wrote.
type TrajectorySegment struct {
	Emitter    string `json:"emitter"`
	Source     string `json:"source"`
	EventCount int64  `json:"eventCount"`
	SealedAt   Time   `json:"sealedAt"`
	Format     string `json:"format"`
}

// LiveTrajectory is the answer of GET /runs/{id}/trajectory/live: all that is
// there so far.
type LiveTrajectory struct {
	Status Status       `json:"status"`
	Found  bool         `json:"found"`
	Events []TraceEvent `json:"events"`
}

// PlacementView is the answer of GET /runs/{id}/placement.
type PlacementView struct {
	Status    Status         `json:"status"`
	Found     bool           `json:"found"`
	Placement *CasePlacement `json:"placement"`
}

// Outcomes of an attempt.
const (
	// AttemptActive holds the run's lease.
	AttemptActive = "active"
	// AttemptSettled gave the run its result.
	AttemptSettled = "settled"
	// AttemptExpired lost its lease because its runner could not renew it.
	AttemptExpired = "expired"
	// AttemptReleased was given back by its runner, which was draining.
	AttemptReleased = "released"
	// AttemptCancelled was ended on request.
	AttemptCancelled = "cancelled"
)

// Attempt is one try of a run by one runner. An attempt that no longer holds the
// lease can still send what it found: Result is then evidence, with LateAt set,
// and the run's record stays as it is.
type Attempt struct {
	Attempt     int64  `json:"attempt"`
	Runner      string `json:"runner,omitempty"`
	RunnerLabel string `json:"runnerLabel,omitempty"`
	Outcome     string `json:"outcome"`
	Message     string `json:"message,omitempty"`
	LeasedAt    *Time  `json:"leasedAt,omitempty"`
	StartedAt   *Time  `json:"startedAt,omitempty"`
	EndedAt     *Time  `json:"endedAt,omitempty"`
	// LateAt is when a result arrived after the attempt had lost its lease.
	LateAt *Time `json:"lateAt,omitempty"`
	// HandedOut is set if the attempt was handed out as a payload.
	HandedOut *HandedOut `json:"handedOut,omitempty"`
	// Answers are the questions that the job asked a person.
	Answers []Answered  `json:"answers,omitempty"`
	Result  *CaseResult `json:"result,omitempty"`
}

// Lanes of a live stream.
const (
	LaneTrace = "trace"
	LaneLog   = "log"
	// LaneLife is the run's record and the steps of its life.
	LaneLife = "life"
)

// LiveQuery selects what a live stream carries. After is the id of the last
// event that was seen; empty: from the beginning.
type LiveQuery struct {
	Lanes []string
	// Stream narrows LaneLog to stdout or stderr.
	Stream string
	After  string
	// Without After: begin behind LogOffset and TraceCursor, which are of Attempt. Of
	// another attempt all is sent.
	Attempt     int64
	LogOffset   int64
	TraceCursor string
}

// Kinds of LiveEvent.
const (
	LiveStatus = "status"
	LiveTrace  = "trace"
	LiveLog    = "log"
	LiveLife   = "life"
	LiveEnd    = "end"
)

// LiveEvent is one event of a live stream. Status and end: Status. Trace: Events
// that are new and Total. Log: Bytes of Stream, from Offset to Next of the log. Life:
// Run as it is, and the Steps of its life that are new to this stream.
type LiveEvent struct {
	// ID resumes the stream after this event; it is opaque.
	ID     string
	Kind   string
	Status Status
	Events []TraceEvent
	Total  int64
	Stream string
	Bytes  []byte
	// Attempt of a trace or a log.
	Attempt      int64
	Offset, Next int64
	Run          *Run
	Steps        []RunEvent
}

// MarshalJSON writes the data of the event; its kind and id travel beside it.
func (e LiveEvent) MarshalJSON() ([]byte, error) {
	switch e.Kind {
	case LiveTrace:
		return json.Marshal(struct {
			Events  []TraceEvent `json:"events"`
			Total   int64        `json:"total"`
			Attempt int64        `json:"attempt,omitempty"`
		}{e.Events, e.Total, e.Attempt})
	case LiveLog:
		return json.Marshal(struct {
			Stream  string `json:"stream,omitempty"`
			Text    string `json:"text"`
			Attempt int64  `json:"attempt,omitempty"`
			Offset  int64  `json:"offset"`
			Next    int64  `json:"next"`
		}{e.Stream, string(e.Bytes), e.Attempt, e.Offset, e.Next})
	case LiveLife:
		return json.Marshal(struct {
			Run    *Run       `json:"run"`
			Events []RunEvent `json:"events"`
		}{e.Run, e.Steps})
	default:
		return json.Marshal(struct {
			Status Status `json:"status"`
		}{e.Status})
	}
}
