package cli

import (
	"io"
	"unicode/utf8"
)

// sanitizer writes a log to a terminal: escape sequences that only colour are
// left out, everything else that a terminal would act on is shown (^[ for ESC).
// A carriage return starts a new line, so that nothing is overwritten. Text may
// come in pieces that cut a character or a sequence.
type sanitizer struct {
	w io.Writer
	// rest holds the beginning of a character or a sequence that the next piece
	// goes on with; it stays below maxSequence bytes.
	rest []byte
}

// maxSequence bounds a colour sequence; a longer one is shown.
const maxSequence = 64

// Write implements io.Writer.
func (s *sanitizer) Write(p []byte) (int, error) {
	in := append(s.rest, p...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		n, text, more := s.take(in)
		if more {
			break
		}
		out = append(out, text...)
		in = in[n:]
	}
	s.rest = append([]byte(nil), in...)
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what is left of a cut character or sequence.
func (s *sanitizer) Close() error {
	rest := s.rest
	s.rest = nil
	var out []byte
	for len(rest) > 0 {
		r, n := utf8.DecodeRune(rest)
		out = append(out, visible(r)...)
		rest = rest[n:]
	}
	_, err := s.w.Write(out)
	return err
}

// take consumes one character or sequence of in. more: it is not complete.
func (s *sanitizer) take(in []byte) (n int, text string, more bool) {
	b := in[0]
	if b == '\r' {
		if len(in) == 1 {
			return 0, "", true
		}
		if in[1] == '\n' {
			return 2, "\n", false
		}
		return 1, "\n", false
	}
	if b == '\n' || b == '\t' {
		return 1, string(b), false
	}
	if b == 0x1b {
		end, complete := colour(in)
		switch {
		case end > 0:
			return end, "", false
		case !complete && len(in) < maxSequence:
			return 0, "", true
		}
		return 1, visible(0x1b), false
	}
	if !utf8.FullRune(in) {
		return 0, "", true
	}
	r, n := utf8.DecodeRune(in)
	return n, visible(r), false
}

// colour is the length of a sequence ESC [ digits ; m at the start of in, or 0;
// complete is false when in could still become one.
func colour(in []byte) (n int, complete bool) {
	for i := 1; i < len(in); i++ {
		c := in[i]
		switch {
		case i == 1 && c == '[':
		case i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm' && i < maxSequence:
			return i + 1, true
		default:
			return 0, true
		}
	}
	return 0, false
}
