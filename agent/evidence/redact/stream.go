package redact

import "io"

// Writer returns a writer that masks secrets on their way to w. It writes to w
// in portions of its own, one at a time; a Write that returns an error has lost
// what it was given, and every later one returns the same error. Close writes
// what was held back and does not close w. Write and Close are for one goroutine
// at a time, as those of w are.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser {
	if r.Empty() {
		return passing{w}
	}
	return &writer{scanner: scanner{r: r, w: w}}
}

type passing struct{ io.Writer }

func (passing) Close() error { return nil }

type writer struct {
	scanner
	held   []byte // the beginning of what may become a pattern
	err    error
	closed bool
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case w.closed:
		return 0, io.ErrClosedPipe
	case len(p) == 0:
		return 0, nil
	}
	if err := w.take(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// take scans what was held back with p behind it, and holds back anew.
func (w *writer) take(p []byte, final bool) error {
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		p = w.held
	}
	w.err = w.scan(p, final)
	// p can be held itself: append copies downwards within it, as copy may.
	w.held = append(w.held[:0], p[w.kept:]...)
	if cap(w.held) > maxIdle && len(w.held) < maxIdle/2 {
		w.held = append([]byte(nil), w.held...) // one large Write must not stay in memory
	}
	return w.err
}

// maxIdle is how large a buffer may stay between two writes.
const maxIdle = 64 << 10

// Close implements io.Closer.
func (w *writer) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.err == nil {
		w.err = w.take(nil, true)
	}
	w.held = nil
	return w.err
}

// scanner writes text without its secrets. Between two scans it knows of a
// covered place that reaches into what was kept.
type scanner struct {
	r *Redactor
	w io.Writer

	open   bool // a covered place has begun, its marker is not written yet
	end    int  // where it ends so far, in the text of the next scan
	secret int  // the longest secret in it
	kept   int  // where what the last scan kept begins
}

// scan writes p up to the first byte that begins what may become a pattern, all
// of it when final is true, and sets kept. The next scan begins there.
func (s *scanner) scan(p []byte, final bool) error {
	x := s.r.index
	done := 0 // p[:done] is written or covered
	s.kept = len(p)
	for i := 0; ; i++ {
		if i = x.next(p, i); final && i+prefixBytes > len(p) || i >= len(p) {
			break
		}
		n, secret, partial := x.match(p[i:])
		if partial && !final {
			s.kept = i
			break
		}
		if n == 0 {
			continue
		}
		if s.open && i < s.end {
			s.end = max(s.end, i+n)
			if x.rank[secret] > x.rank[s.secret] {
				s.secret = secret
			}
			continue
		}
		if err := s.write(p, &done, i); err != nil {
			return err
		}
		s.open, s.end, s.secret = true, i+n, secret
	}
	return s.write(p, &done, s.kept)
}

// write writes p from done to upto: the marker of the covered place, if it ends
// there, and the text behind it.
func (s *scanner) write(p []byte, done *int, upto int) error {
	if s.open {
		if s.end > upto {
			s.end -= upto // the place goes on in what is kept
			return nil
		}
		s.open = false
		s.r.count.Add(1)
		if _, err := io.WriteString(s.w, s.r.markers[s.secret]); err != nil {
			return err
		}
		*done = s.end
	}
	if *done < upto {
		if _, err := s.w.Write(p[*done:upto]); err != nil {
			return err
		}
	}
	*done = upto
	return nil
}
