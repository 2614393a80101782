package evidence

import "unicode/utf8"

// Sanitizer makes a job's output safe to show (P11): it removes terminal control
// sequences, control characters except newline and tab, and characters that
// reorder text (bidirectional controls). A carriage return that stands alone
// becomes a newline, so that a progress bar overwrites nothing. Bytes that are
// not UTF-8 become U+FFFD. Output may come in any pieces: the result is the same.
// The zero value is ready. It is not safe for concurrent use.
type Sanitizer struct {
	// Colors keeps the sequences that choose colours and weight: ESC [ digits m.
	Colors bool

	params []byte // of the control sequence so far, for Colors
	state  byte
	cr     bool // a carriage return waits for its newline
	length int  // of the control string so far
	part   [utf8.UTFMax]byte
	parts  int
}

const (
	inText byte = iota
	inEscape
	inEscapeMid // after ESC and an intermediate byte
	inCSI
	inString // OSC, DCS, SOS, PM, APC: until BEL, ST or the end of the line
)

// maxControl bounds a control string: one that is never ended hides no more than
// this, or the rest of its line.
const maxControl = 4 << 10

// maxColor bounds the parameters of a sequence that Colors keeps.
const maxColor = 64

func isColor(params []byte) bool {
	for _, b := range params {
		if (b < '0' || b > '9') && b != ';' && b != ':' {
			return false
		}
	}
	return len(params) <= maxColor
}

// Append sanitises p and appends the result to dst.
func (s *Sanitizer) Append(dst, p []byte) []byte {
	for _, b := range p {
		if s.parts > 0 || b >= utf8.RuneSelf {
			dst = s.multibyte(dst, b)
			continue
		}
		dst = s.rune(dst, rune(b))
	}
	return dst
}

// Held reports whether a character or a control sequence has begun and not ended:
// another Sanitizer that went on here would show the rest of it.
func (s *Sanitizer) Held() bool { return s.parts > 0 || s.state != inText }

// Flush appends what was held back, at the end of the output.
func (s *Sanitizer) Flush(dst []byte) []byte {
	if s.parts > 0 {
		s.parts = 0
		dst = s.rune(dst, utf8.RuneError)
	}
	if s.cr {
		s.cr = false
		dst = append(dst, '\n')
	}
	return dst
}

func (s *Sanitizer) multibyte(dst []byte, b byte) []byte {
	if s.parts > 0 && b < utf8.RuneSelf {
		s.parts = 0
		return s.rune(s.rune(dst, utf8.RuneError), rune(b))
	}
	s.part[s.parts] = b
	s.parts++
	for s.parts > 0 && utf8.FullRune(s.part[:s.parts]) {
		r, n := utf8.DecodeRune(s.part[:s.parts])
		dst = s.rune(dst, r)
		s.parts = copy(s.part[:], s.part[n:s.parts])
	}
	return dst
}

func (s *Sanitizer) rune(dst []byte, r rune) []byte {
	switch s.state {
	case inEscape:
		return s.escape(dst, r)
	case inEscapeMid:
		if r >= 0x20 && r < 0x30 {
			return dst
		}
		s.state = inText
		if r >= 0x30 && r < 0x7f {
			return dst
		}
	case inCSI:
		if r >= 0x20 && r < 0x40 && s.length < maxControl {
			s.length++
			if s.Colors && len(s.params) <= maxColor {
				s.params = append(s.params, byte(r))
			}
			return dst
		}
		s.state = inText
		if r == 'm' && s.Colors && isColor(s.params) {
			dst = append(append(append(dst, "\x1b["...), s.params...), 'm')
		}
		if r >= 0x40 && r < 0x7f {
			return dst
		}
	case inString:
		s.length++
		switch {
		case r == 0x1b:
			s.state = inEscape // ST is ESC \, and any other escape ends it too
			return dst
		case r == 0x07, r == 0x9c:
			s.state = inText
			return dst
		case r == '\n', r == '\r', s.length > maxControl:
			s.state = inText
		default:
			return dst
		}
	}
	return s.text(dst, r)
}

func (s *Sanitizer) escape(dst []byte, r rune) []byte {
	s.length = 0
	switch {
	case r == '[':
		s.state, s.params = inCSI, s.params[:0]
	case r == ']', r == 'P', r == 'X', r == '^', r == '_':
		s.state = inString
	case r >= 0x20 && r < 0x30:
		s.state = inEscapeMid
	case r >= 0x30 && r < 0x7f:
		s.state = inText
	case r == 0x1b:
	default:
		s.state = inText
		return s.text(dst, r)
	}
	return dst
}

func (s *Sanitizer) text(dst []byte, r rune) []byte {
	if s.cr && r != '\r' {
		s.cr = false
		dst = append(dst, '\n')
		if r == '\n' {
			return dst
		}
	}
	switch {
	case r == '\n', r == '\t':
		return append(dst, byte(r))
	case r == '\r':
		s.cr = true
	case r == 0x1b:
		s.state = inEscape
	case r == 0x9b:
		s.state, s.length, s.params = inCSI, 0, s.params[:0]
	case r == 0x90, r == 0x98, r == 0x9d, r == 0x9e, r == 0x9f:
		s.state, s.length = inString, 0
	case r < 0x20, r >= 0x7f && r < 0xa0, reorders(r):
	default:
		return utf8.AppendRune(dst, r)
	}
	return dst
}

// reorders reports the characters that change the order in which others show,
// and the separators that some viewers take for line ends.
func reorders(r rune) bool {
	switch {
	case r == 0x061c, r == 0x200e, r == 0x200f, r == 0x2028, r == 0x2029:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}
