//go:build unix

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// chunk is how much is read from a pipe at once: half of a Linux pipe.
const chunk = 32 << 10

// tailLimit bounds what is still taken from a pipe that is given up: the largest pipe that a user may make.
const tailLimit = 1 << 20

var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// stream copies one pipe to one writer. Nothing is buffered beside the chunk in hand: a slow writer slows the
// command down.
type stream struct {
	name string
	r    *os.File
	w    io.Writer // nil discards

	// settled is closed when nothing will be written any more: at the end of the pipe, or when it was given up.
	settled chan struct{}
	err     error // of the writer; read after settled

	bytes   atomic.Int64
	writing atomic.Bool
	note    func()          // called before and after each delivery
	over    func(s *stream) // called at the end
}

// copy runs until the pipe ends or is closed.
func (s *stream) copy() {
	bp := buffers.Get().(*[]byte)
	defer buffers.Put(bp)
	buf, givenUp := *bp, false
	defer s.over(s)
	defer s.r.Close()
	for {
		n, err := s.r.Read(buf)
		if n > 0 && !givenUp {
			s.deliver(buf[:n])
		}
		if err == nil {
			continue
		}
		if givenUp || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		// The main process is gone and a descendant holds the pipe. What is in the pipe now is still delivered,
		// whatever comes later is read and dropped, so that the descendant neither blocks nor gets SIGPIPE.
		if s.r.SetReadDeadline(time.Time{}) != nil {
			break
		}
		s.tail(buf)
		givenUp = true
		close(s.settled)
	}
	if !givenUp {
		close(s.settled)
	}
}

// giveUp makes copy settle after what is in the pipe at this moment.
func (s *stream) giveUp() { _ = s.r.SetReadDeadline(time.Unix(1, 0)) }

// close ends the copying; a holder of the other end gets SIGPIPE.
func (s *stream) close() { _ = s.r.Close() }

// tail delivers what can be read without waiting.
func (s *stream) tail(buf []byte) {
	raw, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < tailLimit; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			for {
				var rerr error
				n, rerr = syscall.Read(int(fd), buf)
				if rerr != syscall.EINTR {
					return true
				}
			}
		})
		if err != nil || n <= 0 {
			return
		}
		s.deliver(buf[:n])
		total += n
	}
}

func (s *stream) deliver(p []byte) {
	s.bytes.Add(int64(len(p)))
	s.note()
	if s.w == nil || s.err != nil {
		return
	}
	s.writing.Store(true)
	s.err = write(s.w, p)
	s.writing.Store(false)
	s.note()
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

// outputError is what the streams report, after they settled.
func outputError(streams []*stream) error {
	var errs []error
	for _, s := range streams {
		if s.err != nil {
			errs = append(errs, &sandbox.OutputError{Stream: s.name, Err: s.err})
		}
	}
	return errors.Join(errs...)
}

// sameWriter reports whether both outputs are one writer; an incomparable writer is no reason to panic.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a != nil && a == b
}
