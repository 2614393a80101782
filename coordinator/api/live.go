package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/protocol"
)

type streamQuery struct {
	Stream string `query:"stream" enum:"stdout,stderr"`
}

type lanesQuery struct {
	Lanes       string `query:"lanes" description:"what to send, separated by commas: trace (default), log, life (the record, and the steps of its life)"`
	Attempt     int64  `query:"attempt" description:"the attempt that logOffset and traceCursor are of"`
	LogOffset   int64  `query:"logOffset" description:"begin the log at this byte"`
	TraceCursor string `query:"traceCursor" description:"begin the trace at this cursor of GET /runs/{id}/trace"`
	Colors      bool   `query:"colors" description:"keep colour sequences (ESC [ ... m) in the log"`
}

// resume is the header by which an event stream goes on where it was cut.
type resume struct {
	After string `header:"Last-Event-ID" description:"id of the last event seen"`
}

func (s *Server) liveRoutes() []route {
	return []route{
		stream("/runs/{id}/logs/stream", "streamRunLogs", "A run's log as it is written", mediaEvents, (*Server).streamLogs).
			action(auth.RunsRead).with(runID{}, streamQuery{}, resume{}),
		stream("/runs/{id}/live/stream", "streamRun", "What happens in a run, as it happens", mediaEvents, (*Server).streamLive).
			action(auth.RunsRead).with(runID{}, lanesQuery{}, resume{}),
	}
}

// lanes that existing clients ask for and that no sandbox of this version has.
var silentLanes = []string{"screen", "fs"}

func (s *Server) streamLive(c *call) error {
	q := c.query()
	lanes := []string{protocol.LaneTrace}
	if given := q.get("lanes"); given != "" {
		lanes = nil
		for lane := range strings.SplitSeq(given, ",") {
			switch lane = strings.TrimSpace(lane); {
			case lane == protocol.LaneTrace || lane == protocol.LaneLog || lane == protocol.LaneLife:
				lanes = append(lanes, lane)
			case !slices.Contains(silentLanes, lane):
				q.fault("lanes", "some of trace, log, life")
			}
		}
	}
	lq := protocol.LiveQuery{Lanes: lanes, Attempt: q.number("attempt", 1, 1<<31), LogOffset: q.number("logOffset", 0, 1<<62), TraceCursor: q.get("traceCursor")}
	colors := q.bool("colors")
	if err := q.err(); err != nil {
		return err
	}
	// What an agent does is its submitter's to watch, and an admin's.
	if slices.Contains(lanes, protocol.LaneTrace) || slices.Contains(lanes, protocol.LaneLog) {
		run, err := s.cfg.Runs.Get(c.r.Context(), c.principal, c.path("id"))
		if err != nil {
			return err
		}
		if run.CreatedBy != "" && run.CreatedBy != c.principal.Subject && !c.principal.Admin() {
			return protocol.Forbidden("only who submitted a run, or an admin, may watch it live").
				WithHint("lanes=life is for every reader")
		}
	}
	clean := evidence.Sanitizer{Colors: colors != nil && *colors}
	return s.events(c, lq, func(e protocol.LiveEvent) (event, error) {
		if e.Kind == protocol.LiveLog {
			e.Bytes = clean.Append(nil, e.Bytes)
		}
		data, err := json.Marshal(e)
		out := event{id: e.ID, name: e.Kind, data: data}
		if clean.Held() {
			out.id = ""
		}
		return out, err
	})
}

func (s *Server) streamLogs(c *call) error {
	q := c.query()
	lq := protocol.LiveQuery{
		Lanes:  []string{protocol.LaneLog},
		Stream: q.oneOf("stream", protocol.StreamStdout, protocol.StreamStderr),
	}
	if err := q.err(); err != nil {
		return err
	}
	var clean evidence.Sanitizer
	return s.events(c, lq, func(e protocol.LiveEvent) (event, error) {
		switch e.Kind {
		case protocol.LiveLog:
			text := clean.Append(nil, e.Bytes)
			if len(text) == 0 {
				return event{}, nil
			}
			data, err := json.Marshal(string(text))
			out := event{id: e.ID, data: data}
			if clean.Held() {
				// To resume here would lose the beginning of a character or
				// show the end of an escape sequence.
				out.id = ""
			}
			return out, err
		case protocol.LiveEnd:
			data, err := json.Marshal(e)
			return event{name: protocol.LiveEnd, data: data}, err
		default:
			return event{}, nil
		}
	})
}

// event is one event of a stream. Without data it is not sent.
type event struct {
	id, name string
	data     []byte
}

// writeWithin bounds one write to a client that does not read.
const writeWithin = 30 * time.Second

// events sends what Live says until the run or the client ends. A client that
// was cut off resumes with Last-Event-ID.
func (s *Server) events(c *call, q protocol.LiveQuery, render func(protocol.LiveEvent) (event, error)) error {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel() // ends what feeds live
	q.After = c.r.Header.Get("Last-Event-ID")
	live, err := s.cfg.Runs.Live(ctx, c.principal, c.path("id"), q)
	if err != nil {
		return err
	}
	return sendEvents(s, c, ctx, live, event{}, func(e protocol.LiveEvent) (event, bool, error) {
		out, err := render(e)
		return out, e.Kind == protocol.LiveEnd, err
	})
}

// sendEvents sends what comes until that ends, the client is gone, or its credential
// is not good any more, of which goodbye tells. render says what an event looks like
// and whether it is the last one.
func sendEvents[E any](s *Server, c *call, ctx context.Context, source <-chan E, goodbye event, render func(E) (out event, last bool, err error)) error {
	control := http.NewResponseController(&c.w)
	// The server's limit for reading a request must not end a stream.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", mediaEvents)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}

	send := func(b []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := c.w.Write(b); err != nil {
			return err
		}
		return control.Flush()
	}
	if err := send([]byte(": hb\n\n")); err != nil {
		return nil // the client is gone
	}
	beat := time.NewTicker(s.cfg.BeatEvery)
	defer beat.Stop()
	// Beside the beats, which a busy stream puts off.
	credential := time.NewTicker(s.cfg.BeatEvery)
	defer credential.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-credential.C:
			if s.cfg.Auth.Stands(c.r) == nil {
				continue
			}
			if goodbye.data != nil {
				_ = send(goodbye.append(nil)) // an error means that the client is gone
			}
			return nil
		case <-beat.C:
			if err := send([]byte(": hb\n\n")); err != nil {
				return nil
			}
		case e, more := <-source:
			if !more {
				return nil
			}
			out, last, err := render(e)
			if err != nil {
				return err
			}
			if out.data == nil {
				continue
			}
			if err := send(out.append(nil)); err != nil {
				return nil
			}
			if last {
				return nil
			}
			beat.Reset(s.cfg.BeatEvery)
		}
	}
}

// append adds the wire form. Data is JSON on one line; an id is opaque, and one
// with a line end would be another field.
func (e event) append(b []byte) []byte {
	if e.id != "" && !strings.ContainsAny(e.id, "\r\n\x00") {
		b = append(append(append(b, "id: "...), e.id...), '\n')
	}
	if e.name != "" {
		b = append(append(append(b, "event: "...), e.name...), '\n')
	}
	b = append(append(append(b, "data: "...), e.data...), "\n\n"...)
	return b
}
