package api

import (
	"unicode"
	"unicode/utf8"
)

// sanitizer makes text of a log's bytes for people and terminals (P11): escape
// sequences, control characters and marks that reorder text are left out,
// what is not UTF-8 becomes U+FFFD, and line ends, tabs and carriage returns
// stay. It keeps its state between chunks, so that neither a character nor an
// escape sequence is missed at a border.
type sanitizer struct {
	state   escapeState
	pending [utf8.UTFMax]byte // the beginning of a character
	n       int
}

type escapeState uint8

const (
	plainText     escapeState = iota
	afterEscape               // ESC
	inCSI                     // ESC [ ... until a final byte
	inString                  // ESC ] or P, X, ^, _ ... until BEL or ESC \
	inStringAfter             // ESC within such a string
	inCharset                 // ESC ( and its like: one more byte
)

const escape = 0x1b

// append adds the text of chunk to dst.
func (s *sanitizer) append(dst, chunk []byte) []byte {
	for len(chunk) > 0 {
		if s.n > 0 || !utf8.FullRune(chunk) {
			s.pending[s.n] = chunk[0]
			s.n++
			chunk = chunk[1:]
			for s.n > 0 && utf8.FullRune(s.pending[:s.n]) {
				r, size := utf8.DecodeRune(s.pending[:s.n])
				dst = s.step(dst, r)
				s.n = copy(s.pending[:], s.pending[size:s.n])
			}
			continue
		}
		r, size := utf8.DecodeRune(chunk)
		dst = s.step(dst, r)
		chunk = chunk[size:]
	}
	return dst
}

// held reports whether a character has begun and not ended.
func (s *sanitizer) held() bool { return s.n > 0 }

// flush adds what a last, incomplete character stands for.
func (s *sanitizer) flush(dst []byte) []byte {
	if s.n > 0 {
		s.n = 0
		dst = s.step(dst, utf8.RuneError)
	}
	return dst
}

func (s *sanitizer) step(dst []byte, r rune) []byte {
	switch s.state {
	case afterEscape:
		s.state = plainText
		switch {
		case r == '[':
			s.state = inCSI
		case r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_':
			s.state = inString
		case r >= 0x20 && r <= 0x2f:
			s.state = inCharset
		case r == escape:
			s.state = afterEscape
		case r == '\n':
			dst = append(dst, '\n')
		}
		return dst
	case inCSI:
		switch {
		case r == escape:
			s.state = afterEscape
		case r == '\n': // a sequence that was cut short ends with its line
			s.state = plainText
			dst = append(dst, '\n')
		case r >= 0x40 && r <= 0x7e:
			s.state = plainText
		}
		return dst
	case inString:
		switch r {
		case escape:
			s.state = inStringAfter
		case '\a', 0x9c:
			s.state = plainText
		case '\n':
			s.state = plainText
			dst = append(dst, '\n')
		}
		return dst
	case inStringAfter:
		s.state = inString
		if r == '\\' {
			s.state = plainText
		}
		return dst
	case inCharset:
		if r < 0x20 || r > 0x2f {
			s.state = plainText
		}
		return dst
	}
	switch {
	case r == escape:
		s.state = afterEscape
	case r == 0x9b: // CSI as one character
		s.state = inCSI
	case r == '\n' || r == '\t' || r == '\r':
		dst = append(dst, byte(r))
	case unicode.IsControl(r) || reorders(r):
	default:
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// reorders reports whether r makes text look other than it is stored: the
// bidirectional embeddings, overrides and isolates.
func reorders(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }
