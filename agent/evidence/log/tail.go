package log

import (
	"context"
	"io"
	"sync"
)

// Tail keeps the end of what is written to it, for views that follow it. A Write never
// waits: a view that is slower misses bytes, and is told so.
type Tail struct {
	mu      sync.Mutex
	keep    int
	buf     []byte        // at most 2*keep, of which the last keep count
	end     int64         // how many bytes were ever written
	changed chan struct{} // closed and replaced by a Write that somebody waits for; nil: nobody does
	closed  bool
}

// NewTail returns one that keeps so many bytes. It takes memory only when it is written to.
func NewTail(keep int) *Tail { return &Tail{keep: keep} }

// Write implements io.Writer. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end += int64(len(p))
	last := p[max(0, len(p)-t.keep):]
	if len(t.buf)+len(last) > 2*t.keep {
		kept := t.buf[len(t.buf)-(t.keep-len(last)):]
		t.buf = append(t.buf[:0], kept...)
	}
	t.buf = append(t.buf, last...)
	t.wake()
	return len(p), nil
}

// Close ends the reading when everything was read.
func (t *Tail) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.wake()
}

func (t *Tail) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Read returns what was written after the first from bytes, as far as it is kept, and at, where
// that begins: more than from means that bytes between are gone. It waits until there is some,
// and returns io.EOF when there will be none, or ctx's error.
func (t *Tail) Read(ctx context.Context, from int64) (p []byte, at int64, err error) {
	for {
		t.mu.Lock()
		if from < t.end {
			kept := t.buf[max(0, len(t.buf)-t.keep):]
			at = max(from, t.end-int64(len(kept)))
			p = append(p, kept[int64(len(kept))-(t.end-at):]...)
			t.mu.Unlock()
			return p, at, nil
		}
		if t.closed {
			t.mu.Unlock()
			return nil, t.end, io.EOF
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, from, ctx.Err()
		}
	}
}
