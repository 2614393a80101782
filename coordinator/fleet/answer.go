package fleet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
)

// Answers is a transport that lets errors of a cluster's API through, and of whatever
// else answers at its address nothing but the HTTP status: the address is chosen by
// somebody of a workspace, and what errors say is shown to them.
type Answers struct {
	Base http.RoundTripper
	// Engine says whether an answer is the engine's own word. from is the address that the
	// connection has: one name can lead to several. For an answer that is no error body is
	// nil, and what Engine says counts for nothing.
	Engine func(r *http.Response, body []byte, from string) bool
}

// maxErrorBody is far above what an engine says of an error.
const maxErrorBody = 64 << 10

// errNotHTTP stands for an error that would quote what answers.
var errNotHTTP = errors.New("what answers does not speak HTTP")

// RoundTrip implements http.RoundTripper.
func (a Answers) RoundTrip(req *http.Request) (*http.Response, error) {
	from := ""
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { from = c.Conn.RemoteAddr().String() }}
	r, err := a.Base.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	var network *net.OpError
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "transport connection broken") && !errors.As(err, &network): // net/http has no type for it
		return nil, errNotHTTP
	default:
		return nil, err
	}
	r.Status = strings.TrimSpace(fmt.Sprintf("%d %s", r.StatusCode, http.StatusText(r.StatusCode)))
	if r.StatusCode < 300 {
		a.Engine(r, nil, from)
		return r, nil
	}
	body := errorBody(r)
	if !a.Engine(r, body, from) {
		body = []byte(r.Status) // clients show this alone
		r.Header.Set("Content-Type", "text/plain")
	}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength, r.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	return r, nil
}

// errorBody is what an answer says, unpacked; nil if it does not come, or is not to be
// understood.
func errorBody(r *http.Response) []byte {
	defer r.Body.Close()
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil
		}
		in = unpacked
	}
	body, err := io.ReadAll(io.LimitReader(in, maxErrorBody))
	if err != nil {
		return nil
	}
	return body
}

// CloseIdleConnections closes those of Base.
func (a Answers) CloseIdleConnections() {
	if c, ok := a.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
