package log

import (
	"errors"
	"io"
	"time"
)

// maxSpans bounds the memory of a ring: output in smaller pieces keeps a shorter
// end.
const maxSpans = 64 << 10

// storage is where a ring keeps its bytes: a file, or memory.
type storage interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// ring keeps the last bytes that were written to it, with stream and time.
type ring struct {
	store storage
	cap   int64
	start int64 // place in store of the oldest byte
	size  int64
	spans []span // oldest first, from spans[first] on
	first int
}

type span struct {
	n      int64
	at     int64 // epoch milliseconds
	stream string
}

func newRing(store storage, capacity int64) *ring { return &ring{store: store, cap: capacity} }

func (r *ring) write(stream string, at time.Time, p []byte) error {
	p = p[max(0, int64(len(p))-r.cap):]
	n := int64(len(p))
	if n == 0 {
		return nil
	}
	r.evict(r.size + n - r.cap)
	end := (r.start + r.size) % r.cap
	first := min(n, r.cap-end)
	if _, err := r.store.WriteAt(p[:first], end); err != nil {
		return err
	}
	if first < n {
		if _, err := r.store.WriteAt(p[first:], 0); err != nil {
			return err
		}
	}
	r.size += n
	ms := at.UnixMilli()
	if last := len(r.spans) - 1; last >= r.first {
		s := &r.spans[last]
		if s.stream == stream && ms-s.at <= spanTime.Milliseconds() && s.n+n <= spanBytes {
			s.n += n
			return nil
		}
	}
	if len(r.spans)-r.first >= maxSpans {
		r.evict(r.spans[r.first].n)
	}
	r.spans = append(r.spans, span{n, ms, stream})
	return nil
}

// evict forgets the n oldest bytes.
func (r *ring) evict(n int64) {
	for n > 0 && r.first < len(r.spans) {
		s := &r.spans[r.first]
		cut := min(n, s.n)
		s.n -= cut
		n -= cut
		r.size -= cut
		r.start = (r.start + cut) % r.cap
		if s.n == 0 {
			r.first++
		}
	}
	if r.first > maxSpans {
		r.spans = append(r.spans[:0], r.spans[r.first:]...)
		r.first = 0
	}
}

// drain hands out what is kept, oldest first, and says how much it was.
func (r *ring) drain(f func(stream string, at time.Time, p []byte)) (read int64, err error) {
	buf := make([]byte, copyBuf)
	for _, s := range r.spans[r.first:] {
		for s.n > 0 {
			at := (r.start + read) % r.cap
			p := buf[:min(s.n, copyBuf, r.cap-at)]
			if n, err := r.store.ReadAt(p, at); n < len(p) {
				return read, errors.Join(errors.New("log: read back the end"), err)
			}
			f(s.stream, time.UnixMilli(s.at), p)
			read += int64(len(p))
			s.n -= int64(len(p))
		}
	}
	return read, nil
}

func (r *ring) close() error { return r.store.Close() }

// memory is storage that grows as it is used.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if end := at + int64(len(p)); end > int64(len(m.b)) {
		m.b = append(m.b, make([]byte, end-int64(len(m.b)))...)
	}
	return copy(m.b[at:], p), nil
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	if at >= int64(len(m.b)) {
		return 0, io.EOF
	}
	return copy(p, m.b[at:]), nil
}

func (m *memory) Close() error {
	m.b = nil
	return nil
}
