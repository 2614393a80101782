package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/everdict/everdict/protocol"
)

// A body has bodyGrace to arrive, and more time the larger it is: slowestBody is
// the slowest link, in bytes a second, over which one still gets through.
const (
	bodyGrace   = 30 * time.Second
	slowestBody = 64 << 10
)

// decode reads the JSON body into v. An empty body leaves v as it is: what is
// missing is then said by name.
func (c *call) decode(v any) error {
	if c.r.ContentLength == 0 || c.r.Body == nil {
		return nil
	}
	if c.r.ContentLength > c.maxBody() {
		return c.refuseBody()
	}
	b := buffers.Get().(*buffer)
	defer b.release()
	size := c.r.ContentLength
	body := io.Reader(c.r.Body)
	if size > 0 {
		// What a client only announces costs no memory.
		b.Grow(int(min(size, maxPooled/2)) + bytes.MinRead)
	} else {
		size = c.maxBody()
		body = http.MaxBytesReader(c.w.ResponseWriter, c.r.Body, size)
	}
	if err := c.expectBody(size); err != nil {
		return err
	}
	if _, err := b.ReadFrom(body); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return (&protocol.Problem{Status: http.StatusRequestTimeout, Code: protocol.CodeBadRequest, Message: "the body did not arrive in time"}).
				WithHint("send it again over a faster connection: it has %s, and a second more for each %d KiB", bodyGrace, slowestBody>>10)
		}
		var limit *http.MaxBytesError
		if errors.As(err, &limit) {
			c.passOver(c.maxBody())
			return c.tooLarge()
		}
		return protocol.BadRequest("the body did not arrive whole: %s", err)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := acceptable(c.r.Header.Get("Content-Type")); err != nil {
		return err
	}
	return decodeJSON(b.Bytes(), v)
}

// expectBody gives size bytes of the body their time to arrive. The server sets the
// deadline anew for the next request.
func (c *call) expectBody(size int64) error {
	deadline := time.Now().Add(bodyGrace + time.Duration(size/slowestBody)*time.Second)
	err := http.NewResponseController(c.w.ResponseWriter).SetReadDeadline(deadline)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// refuseBody answers a body that is announced as too large. Many clients send all of
// it before they read, and what they have not sent when the connection closes costs
// them the answer: a body of up to twice what is allowed is read to its end, and
// thrown away. One that waits to be asked for its body (Expect) is told at once.
func (c *call) refuseBody() error {
	most := 2 * c.maxBody()
	if c.r.ContentLength > most || c.r.Header.Get("Expect") != "" {
		c.w.Header().Set("Connection", "close")
		return c.tooLarge()
	}
	if err := c.expectBody(c.r.ContentLength); err != nil {
		return err
	}
	c.passOver(most)
	return c.tooLarge()
}

// passOver reads up to most bytes of the body. What is left, or does not come, is the
// client's loss.
func (c *call) passOver(most int64) {
	if n, err := io.Copy(io.Discard, io.LimitReader(c.r.Body, most)); err != nil || n == most {
		c.w.Header().Set("Connection", "close")
	}
}

// maxStranger bounds the body of somebody who has shown no credential, in bytes: a
// pairing's has a few hundred.
const maxStranger = 64 << 10

func (c *call) maxBody() int64 {
	if c.principal.Subject == "" {
		return maxStranger
	}
	return protocol.MaxBodyBytes
}

func (c *call) tooLarge() error {
	if c.principal.Subject == "" {
		return protocol.TooLarge("the body is larger than %d KiB", maxStranger>>10).
			WithHint("without an API key there is no route that takes so much; look at what is sent")
	}
	return protocol.TooLarge("the body is larger than %d MiB", protocol.MaxBodyBytes>>20).
		WithHint("put large files into a git repository and name it in case.env.source.git")
}

// acceptable refuses bodies that say they are not JSON. A form's type is taken,
// since that is what curl -d sends; a page in a browser that would use it to
// reach the development mode is stopped by its origin.
func acceptable(contentType string) error {
	if contentType == mediaJSON || contentType == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && (media == mediaJSON || strings.HasSuffix(media, "+json") || media == "application/x-www-form-urlencoded") {
		return nil
	}
	return (&protocol.Problem{
		Status: http.StatusUnsupportedMediaType, Code: protocol.CodeBadRequest,
		Message: fmt.Sprintf("the body is %q, and this takes JSON", protocol.Clip(contentType, 80)),
	}).WithHint("send content-type: application/json")
}

// decodeJSON reads a document and says where it is wrong. Unknown keys are
// dropped.
func decodeJSON(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line, column := position(b, syntax.Offset)
		return protocol.BadRequest("the body is not JSON: line %d, column %d: %s", line, column, syntax).
			WithData("line", line).WithData("column", column).
			WithHint("check quotes, commas and brackets before that place")
	case errors.As(err, &kind):
		line, column := position(b, kind.Offset)
		field := kind.Field
		if field == "" {
			field = "the body"
		}
		return protocol.BadRequest("%s: want %s, got %s (line %d, column %d)", field, wanted(kind), kind.Value, line, column).
			WithData("field", kind.Field).WithData("line", line).WithData("column", column)
	default:
		// The sentence of a document's own UnmarshalJSON.
		return protocol.BadRequest("the body: %s", err)
	}
}

// wanted names a Go type as somebody who writes JSON knows it.
func wanted(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); kind {
	case "struct", "map":
		return "an object"
	case "slice", "array":
		return "an array"
	case "string":
		return "a string"
	case "bool":
		return "true or false"
	default:
		if strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") {
			return "a whole number in range"
		}
		if strings.HasPrefix(kind, "float") {
			return "a number"
		}
		return "another kind of value"
	}
}

// position turns an offset into the line and column that an editor shows.
func position(b []byte, offset int64) (line, column int) {
	before := b[:min(max(offset-1, 0), int64(len(b)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:]))) + 1
}
