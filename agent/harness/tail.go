package harness

import (
	"io"
	"strings"
)

// Tail is an io.Writer that passes everything on and keeps the last bytes. An
// error of the writer behind it ends the passing on, not the keeping: its owner
// knows of it.
type Tail struct {
	next  io.Writer
	max   int
	buf   []byte
	total int64
}

// NewTail keeps the last max bytes of what is written to it; next may be nil.
func NewTail(next io.Writer, max int) *Tail { return &Tail{next: next, max: max} }

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.total += int64(len(p))
	if t.next != nil {
		if _, err := t.next.Write(p); err != nil {
			t.next = nil
		}
	}
	t.buf = append(t.buf, p[max(0, len(p)-t.max):]...)
	if len(t.buf) > 2*t.max {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.max:]...)
	}
	return len(p), nil
}

// String is the kept end as text.
func (t *Tail) String() string {
	return strings.ToValidUTF8(string(t.buf[max(0, len(t.buf)-t.max):]), "�")
}

// Cut reports whether String lacks the beginning.
func (t *Tail) Cut() bool { return t.total > int64(t.max) }

// tee writes to both of its writers, where they are not nil.
type tee [2]io.Writer

func (t *tee) Write(p []byte) (int, error) {
	for _, w := range t {
		if w != nil {
			w.Write(p) // each of them keeps its own errors
		}
	}
	return len(p), nil
}
