package protocol

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Code is the closed vocabulary of problem codes.
type Code string

// The codes of the API. What a code means for a run's failure is in failure.go.
const (
	CodeBadRequest            Code = "BAD_REQUEST"
	CodeNotFound              Code = "NOT_FOUND"
	CodeConflict              Code = "CONFLICT"
	CodeCancelled             Code = "CANCELLED"
	CodeUnauthenticated       Code = "UNAUTHENTICATED"
	CodeForbidden             Code = "FORBIDDEN"
	CodeRateLimited           Code = "RATE_LIMITED"
	CodeNotConfigured         Code = "NOT_CONFIGURED"
	CodeUpstreamError         Code = "UPSTREAM_ERROR"
	CodeUpstreamMisconfigured Code = "UPSTREAM_MISCONFIGURED"
	CodeDriverProvisionFailed Code = "DRIVER_PROVISION_FAILED"
	CodeComputeExecFailed     Code = "COMPUTE_EXEC_FAILED"
	CodeDriverSnapshotFailed  Code = "DRIVER_SNAPSHOT_FAILED"
	CodeHarnessInstallFailed  Code = "HARNESS_INSTALL_FAILED"
	CodeHarnessRunFailed      Code = "HARNESS_RUN_FAILED"
	CodeGraderFailed          Code = "GRADER_FAILED"
	CodeTraceCollectFailed    Code = "TRACE_COLLECT_FAILED"
	CodeOOMKilled             Code = "OOM_KILLED"
	CodeInternal              Code = "INTERNAL"
)

// Problem is the one error shape of the API: a code, a sentence, and where it
// helps a hint with the next step and structured data. It is also the error
// value that packages return for bad input, so that the sentence is written
// where the fault is known.
type Problem struct {
	// Status is the HTTP status; it is not part of the document.
	Status  int            `json:"-"`
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
	Data    map[string]any `json:"data,omitempty"`
}

// Error returns the message, with the hint after it.
func (p *Problem) Error() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + " (" + p.Hint + ")"
}

// WithHint returns a copy with the next step.
func (p *Problem) WithHint(format string, args ...any) *Problem {
	q := *p
	q.Hint = fmt.Sprintf(format, args...)
	return &q
}

// WithData returns a copy with one more structured fact.
func (p *Problem) WithData(key string, value any) *Problem {
	q := *p
	q.Data = make(map[string]any, len(p.Data)+1)
	for k, v := range p.Data {
		q.Data[k] = v
	}
	q.Data[key] = value
	return &q
}

func problem(status int, code Code, format string, args []any) *Problem {
	return &Problem{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest is a 400: the input is wrong and nothing was changed.
func BadRequest(format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, CodeBadRequest, format, args)
}

// NotFound is a 404, also for what belongs to another workspace.
func NotFound(format string, args ...any) *Problem {
	return problem(http.StatusNotFound, CodeNotFound, format, args)
}

// Conflict is a 409: the input is right but the state does not allow it.
func Conflict(format string, args ...any) *Problem {
	return problem(http.StatusConflict, CodeConflict, format, args)
}

// Unauthenticated is a 401.
func Unauthenticated(format string, args ...any) *Problem {
	return problem(http.StatusUnauthorized, CodeUnauthenticated, format, args)
}

// Forbidden is a 403.
func Forbidden(format string, args ...any) *Problem {
	return problem(http.StatusForbidden, CodeForbidden, format, args)
}

// TooLarge is a 413 with the code BAD_REQUEST.
func TooLarge(format string, args ...any) *Problem {
	return problem(http.StatusRequestEntityTooLarge, CodeBadRequest, format, args)
}

// Internal is a 500.
func Internal(format string, args ...any) *Problem {
	return problem(http.StatusInternalServerError, CodeInternal, format, args)
}

// Unavailable is a 503: the same request can succeed later.
func Unavailable(format string, args ...any) *Problem {
	return problem(http.StatusServiceUnavailable, CodeUpstreamError, format, args)
}

// checker collects what is wrong with a document, each with its path.
type checker struct{ faults []string }

func (c *checker) add(path, format string, args ...any) {
	c.faults = append(c.faults, path+": "+fmt.Sprintf(format, args...))
}

// name checks an identifier that a user chose.
func (c *checker) name(path, s string) {
	if !ValidName(s, MaxNameBytes) {
		c.add(path, "want 1 to %d printable characters without / or \\, got %q", MaxNameBytes, Clip(s, 40))
	}
}

// text checks what becomes an argument, a variable or a path of a process: none of them
// can hold a NUL byte.
func (c *checker) text(path string, texts ...string) {
	if slices.ContainsFunc(texts, func(s string) bool { return strings.ContainsRune(s, 0) }) {
		c.add(path, "contains a NUL byte")
	}
}

// texts checks each value of a map as text does.
func (c *checker) texts(path string, values map[string]string) {
	for name, v := range values {
		c.text(path+"."+Clip(name, 40), name, v)
	}
}

// err is nil, or one BAD_REQUEST that lists every fault.
func (c *checker) err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return BadRequest("%s", strings.Join(c.faults, "; ")).WithData("faults", c.faults)
}

// Clip cuts s to at most n bytes for a message.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
