package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// UnreachableError says that the server gave no answer.
type UnreachableError struct {
	// URL is the address that was called.
	URL string
	Err error
}

// Error names the address and the cause.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// IsNotFound reports whether err is the server's 404.
func IsNotFound(err error) bool { return StatusOf(err) == http.StatusNotFound }

// StatusOf is the HTTP status behind err, or 0 when no server answered.
func StatusOf(err error) int {
	var p *protocol.Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// IsRefused reports whether nothing listens at the address: the request was not
// sent.
func IsRefused(err error) bool { return refused(err) }

// retryAfterKey is where the header Retry-After is kept in a problem's data, in
// seconds. A field of its own would change the shape of the document.
const retryAfterKey = "retryAfterSec"

// maxProblem bounds how much of an error's body is read.
const maxProblem = 1 << 20

// foreignError is an answer that the coordinator would not give: a proxy, or another program, has answered in its place.
type foreignError struct{ *protocol.Problem }

func (e *foreignError) Unwrap() error { return e.Problem }

// problemOf turns an answer to r that is no success into a problem.
func problemOf(r request, res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	p := new(protocol.Problem)
	foreign := json.Unmarshal(body, p) != nil || p.Code == ""
	if foreign {
		p = strangeAnswer(r, res, body, "no error document")
	}
	p.Status = res.StatusCode
	if after := parseRetryAfter(res.Header.Get("Retry-After")); after > 0 {
		p = p.WithData(retryAfterKey, after.Seconds())
	}
	if foreign {
		return &foreignError{p}
	}
	return p
}

// strangeAnswer is the problem of an answer to r that the coordinator would not give.
func strangeAnswer(r request, res *http.Response, body []byte, what string) *protocol.Problem {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "" {
		kind = "an unknown type"
	}
	said := gist(kind, string(body))
	if said != "" {
		said = fmt.Sprintf(": %q", said)
	}
	p := &protocol.Problem{
		Status:  res.StatusCode,
		Code:    codeOf(res.StatusCode),
		Message: fmt.Sprintf("the server answered %s (%s) with %s%s", statusLine(res.StatusCode), kind, what, said),
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return p.WithHint("the address redirects to %q: give that as the address of the coordinator", protocol.Clip(res.Header.Get("Location"), 200))
	}
	const hint = "a proxy or another program may have answered in the coordinator's place: check the address and the proxy variables"
	if res.StatusCode >= 500 && !safe(r.method) {
		return p.WithHint("%s; the coordinator may have done what was asked: look before asking again", hint)
	}
	return p.WithHint(hint)
}

func statusLine(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

func codeOf(status int) protocol.Code {
	switch status {
	case http.StatusUnauthorized:
		return protocol.CodeUnauthenticated
	case http.StatusForbidden:
		return protocol.CodeForbidden
	case http.StatusNotFound:
		return protocol.CodeNotFound
	case http.StatusConflict:
		return protocol.CodeConflict
	case http.StatusTooManyRequests:
		return protocol.CodeRateLimited
	}
	if status >= 400 && status < 500 {
		return protocol.CodeBadRequest
	}
	return protocol.CodeUpstreamError
}

var (
	htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlTag   = regexp.MustCompile(`(?s)<[^>]*>`)
)

// gist is one short line of what a foreign answer says.
func gist(kind, body string) string {
	if strings.Contains(kind, "html") {
		if m := htmlTitle.FindStringSubmatch(body); m != nil {
			body = m[1]
		}
		body = html.UnescapeString(htmlTag.ReplaceAllString(body, " "))
	}
	return protocol.Clip(strings.Join(strings.Fields(strings.ToValidUTF8(body, "")), " "), 120)
}

// protocolError is a fault of what the caller gave.
func protocolError(format string, args ...any) error {
	p := protocol.BadRequest(format, args...)
	p.Status = 0
	return p
}
