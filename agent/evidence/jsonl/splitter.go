// Package jsonl splits a stream of bytes into lines with bounded memory, for
// programs that print JSON lines of any length.
package jsonl

import "bytes"

// DefaultMaxLine is the longest line that a Splitter delivers whole: 4 MiB.
// Agents print tool results of several hundred kilobytes on one line.
const DefaultMaxLine = 4 << 20

// Splitter is an io.Writer that calls Line for every line that was written to
// it. It never fails and never holds more than Max bytes.
type Splitter struct {
	// Line gets a line without its end ("\n" or "\r\n"); the slice is valid during
	// the call only. Of a line longer than Max it gets the first Max bytes, and
	// dropped is the number of bytes that are missing.
	Line func(line []byte, dropped int64)
	// Max is the longest line; zero is DefaultMaxLine.
	Max int

	buf     []byte
	dropped int64
}

// Write takes bytes in any portions.
func (s *Splitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.keep(p)
			break
		}
		if len(s.buf) == 0 && s.dropped == 0 && i <= s.max() {
			s.Line(trimCR(p[:i]), 0)
		} else {
			s.keep(p[:i])
			s.flush()
		}
		p = p[i+1:]
	}
	return n, nil
}

// Close delivers a last line that has no end.
func (s *Splitter) Close() {
	if len(s.buf) > 0 || s.dropped > 0 {
		s.flush()
	}
}

func (s *Splitter) max() int {
	if s.Max > 0 {
		return s.Max
	}
	return DefaultMaxLine
}

func (s *Splitter) keep(p []byte) {
	room := s.max() - len(s.buf)
	if len(p) > room {
		s.dropped += int64(len(p) - room)
		p = p[:room]
	}
	s.buf = append(s.buf, p...)
}

func (s *Splitter) flush() {
	line, dropped := s.buf, s.dropped
	if dropped == 0 {
		line = trimCR(line)
	}
	s.Line(line, dropped)
	s.dropped = 0
	// One long line must not pin its buffer for the rest of a run.
	if cap(s.buf) > 64<<10 {
		s.buf = nil
	} else {
		s.buf = s.buf[:0]
	}
}

func trimCR(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		return b[:n-1]
	}
	return b
}
