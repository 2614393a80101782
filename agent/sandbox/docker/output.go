package docker

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/everdict/everdict/agent/sandbox"
)

var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// piece is output that has come and was not delivered yet.
type piece struct {
	p  []byte
	bp *[]byte
}

// stream brings one output of a command from the link to its writer. The link puts, a goroutine of its own delivers
// and grants room for more: at most window is held.
type stream struct {
	name string
	w    io.Writer // nil discards

	grant func(n int) // tells init
	note  func()      // called before and after each delivery

	mu    sync.Mutex
	queue []piece
	eof   bool          // nothing more will come
	cut   bool          // what comes is dropped
	more  chan struct{} // capacity 1: something changed

	// settled is closed when nothing will be written any more: at the end of the output, or when it was cut.
	settled chan struct{}
	err     error // of the writer; read after settled
	writing atomic.Bool
}

func newStream(name string, w io.Writer) *stream {
	return &stream{name: name, w: w, more: make(chan struct{}, 1), settled: make(chan struct{})}
}

// put takes output; kept says that the buffer is the stream's now.
func (s *stream) put(p []byte, bp *[]byte) (kept bool) {
	s.mu.Lock()
	switch {
	case len(p) == 0:
		s.eof = true
	case s.cut:
		s.mu.Unlock()
		s.grant(len(p))
		return false
	default:
		s.queue = append(s.queue, piece{p, bp})
		kept = true
	}
	s.mu.Unlock()
	s.wake()
	return kept
}

func (s *stream) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// end says that nothing more will come.
func (s *stream) end() {
	s.mu.Lock()
	s.eof = true
	s.mu.Unlock()
	s.wake()
}

// giveUp makes the stream settle with what has come so far.
func (s *stream) giveUp() {
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	s.wake()
}

// complete reports whether the end of the output has come, delivered or not.
func (s *stream) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof
}

// empty reports whether all that has come is delivered.
func (s *stream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0 && !s.writing.Load()
}

// deliver runs until the stream settles.
func (s *stream) deliver() {
	defer close(s.settled)
	owed := 0
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			if s.eof || s.cut {
				s.mu.Unlock()
				if owed > 0 {
					s.grant(owed)
				}
				return
			}
			s.mu.Unlock()
			<-s.more
			continue
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		if len(s.queue) == 0 {
			s.queue = nil
		}
		s.writing.Store(true)
		s.mu.Unlock()
		s.note()
		if s.w != nil && s.err == nil {
			s.err = write(s.w, next.p)
		}
		owed += len(next.p)
		buffers.Put(next.bp)
		s.writing.Store(false)
		s.note()
		if owed >= window/4 {
			s.grant(owed)
			owed = 0
		}
	}
}

// write turns a panic of the writer into an error: the writer is another package's, the goroutine is ours, and a
// panic in it would end the runner with every other sandbox.
func write(w io.Writer, p []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// outputError is what settled streams report.
func outputError(streams []*stream) error {
	var errs []error
	for _, s := range streams {
		select {
		case <-s.settled:
			if s.err != nil {
				errs = append(errs, &sandbox.OutputError{Stream: s.name, Err: s.err})
			}
		default:
		}
	}
	return errors.Join(errs...)
}

// sameWriter reports whether both outputs are one writer; an incomparable writer is no reason to panic.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}
