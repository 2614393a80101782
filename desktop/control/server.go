package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/everdict/everdict/protocol"
)

// App is what is shown and steered. Its errors are *protocol.Problem where the caller can do something. Methods may be
// called concurrently.
type App interface {
	State() State
	// Changed is closed when State has a Rev above rev.
	Changed(rev int64) <-chan struct{}
	History(limit int) (History, error)
	// Machine is what was found last, or looks (again).
	Machine(ctx context.Context, again bool) (Machine, error)
	// Log is the end of the log of a job that runs.
	Log(run string, epoch int64) (LogTail, error)

	SetSettings(ctx context.Context, s Settings) (Settings, error)
	SetConnection(ctx context.Context, id string, c ConnectionSettings) (Connection, error)
	MoveKeys(ctx context.Context, m KeyMove) (Keys, error)

	Pair(ctx context.Context, r PairRequest) (Pairing, error)
	PairBrowser(ctx context.Context) (Pairing, error)
	PairCancel(ctx context.Context) error
	// Answer answers the question of a deep link; nil without an error: the answer was no.
	Answer(ctx context.Context, a Answer) (*Pairing, error)
	Retry(ctx context.Context, id string) (Connection, error)
	Unpair(ctx context.Context, id string) (Unpaired, error)

	Pause(ctx context.Context, r PauseRequest) error
	Resume(ctx context.Context, r ResumeRequest) error
	Dismiss(ctx context.Context, id string) error
	// Open shows the window and takes a deep link.
	Open(ctx context.Context, r OpenRequest) (Opened, error)
	Visit(ctx context.Context, r VisitRequest) error
	// Quit begins to end the app.
	Quit(ctx context.Context, r QuitRequest) error
}

// LogTail is a log that can be read along: see log.Tail of the agent.
type LogTail interface {
	Read(ctx context.Context, from int64) (p []byte, at int64, err error)
}

const (
	// maxBody bounds the body of a request, in bytes.
	maxBody = 64 << 10
	// stateEvery is the least time between two events "state".
	stateEvery = 200 * time.Millisecond
	// aliveEvery is how often an event stream without news says that it lives.
	aliveEvery = 20 * time.Second
	// maxHistory bounds an answer of api/history.
	maxHistory = 200
)

// api is the handler of /api/... . watched counts the event streams, as Page does.
func api(a App, watched func(int), socket bool) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (int, any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status, v, err := h(r)
			if err != nil {
				problem(w, err)
				return
			}
			answer(w, status, v)
		})
	}
	handle("GET /api/state", func(*http.Request) (int, any, error) { return 200, a.State(), nil })
	handle("GET /api/history", func(r *http.Request) (int, any, error) {
		limit := maxHistory
		if s := r.URL.Query().Get("limit"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 || n > maxHistory {
				return 0, nil, protocol.BadRequest("limit is %q: want 1 to %d", protocol.Clip(s, 20), maxHistory)
			}
			limit = n
		}
		h, err := a.History(limit)
		return 200, h, err
	})
	handle("GET /api/machine", func(r *http.Request) (int, any, error) {
		m, err := a.Machine(r.Context(), false)
		return 200, m, err
	})
	change(handle, "POST /api/machine", 200, func(r *http.Request, _ struct{}) (any, error) { return a.Machine(r.Context(), true) })
	change(handle, "PUT /api/settings", 200, func(r *http.Request, s Settings) (any, error) { return a.SetSettings(r.Context(), s) })
	change(handle, "POST /api/pair", 202, func(r *http.Request, p PairRequest) (any, error) { return a.Pair(r.Context(), p) })
	change(handle, "POST /api/pair/browser", 200, func(r *http.Request, _ struct{}) (any, error) { return a.PairBrowser(r.Context()) })
	change(handle, "POST /api/pair/cancel", 204, func(r *http.Request, _ struct{}) (any, error) { return nil, a.PairCancel(r.Context()) })
	change(handle, "POST /api/question", 202, func(r *http.Request, q Answer) (any, error) {
		p, err := a.Answer(r.Context(), q)
		if p == nil {
			return nil, err
		}
		return p, err
	})
	change(handle, "POST /api/pause", 200, func(r *http.Request, p PauseRequest) (any, error) {
		err := a.Pause(r.Context(), p)
		return a.State(), err
	})
	change(handle, "POST /api/resume", 200, func(r *http.Request, p ResumeRequest) (any, error) {
		err := a.Resume(r.Context(), p)
		return a.State(), err
	})
	change(handle, "PUT /api/connections/{id}", 200, func(r *http.Request, c ConnectionSettings) (any, error) {
		return a.SetConnection(r.Context(), r.PathValue("id"), c)
	})
	change(handle, "POST /api/connections/{id}/retry", 200, func(r *http.Request, _ struct{}) (any, error) {
		return a.Retry(r.Context(), r.PathValue("id"))
	})
	change(handle, "POST /api/connections/{id}/unpair", 200, func(r *http.Request, _ struct{}) (any, error) {
		return a.Unpair(r.Context(), r.PathValue("id"))
	})
	change(handle, "POST /api/keys", 200, func(r *http.Request, m KeyMove) (any, error) { return a.MoveKeys(r.Context(), m) })
	change(handle, "POST /api/notices/dismiss", 204, func(r *http.Request, d NoticeDismissal) (any, error) { return nil, a.Dismiss(r.Context(), d.ID) })
	change(handle, "POST /api/visit", 204, func(r *http.Request, v VisitRequest) (any, error) { return nil, a.Visit(r.Context(), v) })
	change(handle, "POST /api/quit", 204, func(r *http.Request, q QuitRequest) (any, error) { return nil, a.Quit(r.Context(), q) })
	if socket {
		change(handle, "POST /api/open", 200, func(r *http.Request, o OpenRequest) (any, error) { return a.Open(r.Context(), o) })
	}
	mux.HandleFunc("GET /api/events", func(w http.ResponseWriter, r *http.Request) {
		watched(1)
		defer watched(-1)
		events(w, r, a)
	})
	mux.HandleFunc("GET /api/jobs/{run}/{epoch}/log", func(w http.ResponseWriter, r *http.Request) {
		epoch, err := strconv.ParseInt(r.PathValue("epoch"), 10, 64)
		if err != nil {
			problem(w, protocol.BadRequest("the attempt is %q: want a number", protocol.Clip(r.PathValue("epoch"), 20)))
			return
		}
		tail, err := a.Log(r.PathValue("run"), epoch)
		if err != nil {
			problem(w, err)
			return
		}
		follow(w, r, tail)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, protocol.NotFound("there is no %s %s", r.Method, protocol.Clip(r.URL.Path, 100)))
	})
	return mux
}

// change registers a request that changes something, with its body.
func change[T any](handle func(string, func(*http.Request) (int, any, error)), pattern string, status int, do func(*http.Request, T) (any, error)) {
	handle(pattern, func(r *http.Request) (int, any, error) {
		var body T
		if err := decode(r, &body); err != nil {
			return 0, nil, err
		}
		v, err := do(r, body)
		if v == nil {
			return http.StatusNoContent, nil, err
		}
		return status, v, err
	})
}

// decode reads a body, which is JSON and says so: a form of another site cannot.
func decode(r *http.Request, into any) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return &protocol.Problem{Status: http.StatusUnsupportedMediaType, Code: protocol.CodeBadRequest, Message: "a change has Content-Type application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after the document")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return protocol.TooLarge("the body has more than %d bytes", maxBody)
	case err != nil:
		return protocol.BadRequest("the body cannot be read: %s", protocol.Clip(err.Error(), 200))
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if v == nil {
		w.WriteHeader(status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}

func problem(w http.ResponseWriter, err error) {
	var p *protocol.Problem
	if !errors.As(err, &p) {
		p = protocol.Internal("%s", err)
	}
	answer(w, p.Status, p)
}

// stream begins an event stream. send is false when the client is gone.
func stream(w http.ResponseWriter) (send func(event string, v any) bool, alive func() bool) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c := http.NewResponseController(w)
	write := func(text string) bool {
		_, err := io.WriteString(w, text)
		return err == nil && c.Flush() == nil
	}
	send = func(event string, v any) bool {
		b, err := json.Marshal(v)
		return err == nil && write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, b))
	}
	return send, func() bool { return write(":\n\n") }
}

// events sends the state whenever it changes.
func events(w http.ResponseWriter, r *http.Request, a App) {
	send, alive := stream(w)
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		s := a.State()
		if !send("state", s) {
			return
		}
		changed := a.Changed(s.Rev)
		pause := time.NewTimer(stateEvery)
		select {
		case <-pause.C:
		case <-r.Context().Done():
			pause.Stop()
			return
		}
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-tick.C:
				if !alive() {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}
}

// follow sends a log.
func follow(w http.ResponseWriter, r *http.Request, tail LogTail) {
	send, _ := stream(w)
	var from int64
	var rest []byte // the beginning of a character
	for {
		p, at, err := tail.Read(r.Context(), from)
		if err != nil {
			if errors.Is(err, io.EOF) {
				send("end", struct{}{})
			}
			return
		}
		chunk := LogChunk{Skipped: at > from}
		if chunk.Skipped {
			rest = nil
		}
		from = at + int64(len(p))
		p = append(rest, p...)
		whole := wholeRunes(p)
		rest = append([]byte(nil), p[whole:]...)
		chunk.Text = strings.ToValidUTF8(string(p[:whole]), "�")
		if chunk.Text != "" && !send("log", chunk) {
			return
		}
	}
}

// wholeRunes is how much of p can be shown without what may be the beginning of a character.
func wholeRunes(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-n:]) {
				return len(p) - n
			}
			break
		}
	}
	return len(p)
}

// Socket returns the server of the socket. Serve it with the Listener of instance.
func Socket(a App) *http.Server {
	return &http.Server{Handler: api(a, func(int) {}, true), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
}
