package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/protocol"
)

// call is one request on its way through a route.
type call struct {
	s         *Server
	w         response
	r         *http.Request
	principal auth.Principal
	// requestID names the request in its answer and in the log.
	requestID string
	// override replaces the route's status by its other one, if not 0.
	override int
}

// response remembers what was sent. It passes Flush and deadlines through to
// http.ResponseController by Unwrap.
type response struct {
	http.ResponseWriter
	status int
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (c *call) path(name string) string { return c.r.PathValue(name) }

func (c *call) status(usual int) int {
	if c.override != 0 {
		return c.override
	}
	return usual
}

// buffer is a pooled buffer with an encoder on it.
type buffer struct {
	bytes.Buffer
	encoder *json.Encoder
}

var buffers = sync.Pool{New: func() any {
	b := new(buffer)
	b.encoder = json.NewEncoder(&b.Buffer)
	b.encoder.SetEscapeHTML(false)
	return b
}}

// maxPooled keeps a rare large body from staying in memory for ever.
const maxPooled = 256 << 10

func (b *buffer) release() {
	if b.Cap() <= maxPooled {
		b.Reset()
		buffers.Put(b)
	}
}

// Header values that every answer shares; the header map takes slices, and these
// are never changed.
var (
	jsonType = []string{mediaJSON}
	noSniff  = []string{"nosniff"}
)

// json answers v. It encodes first, so that a failure is still a clean 500.
func (c *call) json(status int, v any, list bool) error {
	b := buffers.Get().(*buffer)
	defer b.release()
	if err := b.encoder.Encode(v); err != nil {
		return fmt.Errorf("api: encode the answer: %w", err)
	}
	answer := b.Bytes()
	if list && bytes.Equal(answer, []byte("null\n")) {
		answer = []byte("[]\n")
	}
	header := c.w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(answer))}
	c.w.WriteHeader(status)
	// An error means that the client is gone.
	_, _ = c.w.Write(answer)
	return nil
}

// statusClientGone is logged for a request whose client did not wait; nobody
// reads it.
const statusClientGone = 499

// fail answers an error in the one shape that problems have. What is not a
// *protocol.Problem is ours: its text goes to the log and not to the client.
func (c *call) fail(err error) (logged error) {
	var problem *protocol.Problem
	switch {
	case errors.As(err, &problem):
	case errors.Is(err, store.ErrNotFound):
		problem = protocol.NotFound("there is no such thing in this workspace").WithHint("look at the id, and at the workspace that the key is of")
	case c.r.Context().Err() != nil && errors.Is(err, context.Canceled):
		problem = &protocol.Problem{Status: statusClientGone, Code: protocol.CodeCancelled, Message: "the client is gone"}
	case errors.Is(err, context.DeadlineExceeded):
		problem, logged = protocol.Unavailable("this took too long").WithHint("try again"), err
	default:
		if problem, logged = store.Unavailable(err), err; problem == nil {
			problem = protocol.Internal("an error inside the coordinator").
				WithHint("its log has the reason under the request id %s", c.requestID)
		}
	}
	if problem.Status == 0 {
		problem.Status = http.StatusInternalServerError
	}
	if problem.Status >= http.StatusInternalServerError && logged == nil {
		logged = err
	}
	if c.w.status != 0 {
		return logged // too late: the caller cuts the connection
	}
	switch problem.Status {
	case http.StatusUnauthorized:
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="everdict"`)
	case http.StatusTooManyRequests:
		if wait, ok := problem.Data["retryAfterSec"].(int); ok {
			c.w.Header().Set("Retry-After", strconv.Itoa(wait))
		}
	case http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", "2")
	}
	if encodeErr := c.json(problem.Status, problem, false); encodeErr != nil {
		// Data holds something that JSON cannot: answer without it.
		plain := protocol.Problem{Code: problem.Code, Message: problem.Message, Hint: problem.Hint}
		return errors.Join(logged, encodeErr, c.json(problem.Status, &plain, false))
	}
	return logged
}
