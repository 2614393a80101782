package scripted

import "bytes"

// maxFrame is longer than any frame's words.
const maxFrame = 64

// frames takes the frames out of an agent's stdout. Text comes through as it is,
// in order with the frames.
type frames struct {
	mark  []byte // 0x1E, the mark, a colon
	text  func([]byte)
	frame func(words []byte)

	held []byte // the beginning of what may become a frame
}

func newFrames(mark string, text func([]byte), frame func([]byte)) *frames {
	return &frames{mark: []byte("\x1e" + mark + ":"), text: text, frame: frame}
}

// Write takes bytes in any portions.
func (f *frames) Write(p []byte) (int, error) {
	buf := p
	if len(f.held) > 0 {
		buf = append(f.held, p...)
		f.held = nil
	}
	for {
		i := bytes.Index(buf, f.mark)
		if i < 0 {
			keep := f.partial(buf)
			f.say(buf[:len(buf)-keep])
			f.hold(buf[len(buf)-keep:])
			return len(p), nil
		}
		f.say(buf[:i])
		words := buf[i+len(f.mark):]
		end := bytes.IndexByte(words, '\n')
		if end < 0 && len(words) <= maxFrame {
			f.hold(buf[i:])
			return len(p), nil
		}
		if end < 0 || end > maxFrame {
			// Not from the program: it knows the mark but not the form.
			f.say(buf[i : i+len(f.mark)])
			buf = words
			continue
		}
		f.frame(words[:end])
		buf = words[end+1:]
	}
}

// Close lets through what was held.
func (f *frames) Close() {
	f.say(f.held)
	f.held = nil
}

func (f *frames) say(b []byte) {
	if len(b) > 0 {
		f.text(b)
	}
}

func (f *frames) hold(b []byte) {
	if len(b) > 0 {
		f.held = append([]byte(nil), b...)
	}
}

// partial is the length of the longest end of b that begins a mark.
func (f *frames) partial(b []byte) int {
	for n := min(len(b), len(f.mark)-1); n > 0; n-- {
		if bytes.HasPrefix(f.mark, b[len(b)-n:]) {
			return n
		}
	}
	return 0
}
