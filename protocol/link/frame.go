package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A frame is a kind (1 byte), the length of the payload (4 bytes, big endian) and the payload.
const frameHeader = 5

// Kinds of frames. A reader skips a kind that it does not know, if its payload is at most MaxMessage.
const (
	// kindMessage: the payload is a JSON object with a field "type".
	kindMessage = 'J'
	// kindData: the payload is a piece of the document that the message before announced (a job, a result).
	kindData = 'D'
	// kindChunk: evidence. Offset (8 bytes), length of the channel's name (1 byte), name, bytes.
	kindChunk = 'C'
	// kindSub: a piece of one sub-stream of an exec or a file view. Number (1 byte), bytes.
	kindSub = 'S'
)

// chunkHeader is what a chunk's payload holds beside name and bytes.
const chunkHeader = 9

// frame is one decoded frame. Data and chunk alias the reader's buffer until the next read.
type frame struct {
	kind byte
	// msg is set for kindMessage; an *unknown for a type that this build does not know.
	msg message
	// data is the payload of kindData, of kindSub without its number, or the bytes of a chunk.
	data    []byte
	channel string
	offset  int64
	sub     byte
}

// appendHeader appends the header of a frame with a payload of n bytes.
func appendHeader(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// appendMessage appends m as a frame. It fails with a *LimitError when m exceeds a limit; b is then returned as it was.
func appendMessage(b []byte, m message) ([]byte, error) {
	if err := m.check(); err != nil {
		return b, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return b, fmt.Errorf("link: encode %s: %w", m.messageType(), err)
	}
	// The object gets its type as first field by splicing, which saves a second struct per message.
	head := `{"type":"` + m.messageType() + `"`
	n := len(head) + len(body) - 1
	if len(body) > 2 {
		n++
	}
	if n > MaxMessage {
		return b, &LimitError{Limit: "message", Configured: MaxMessage, Measured: int64(n)}
	}
	b = appendHeader(b, kindMessage, n)
	b = append(b, head...)
	if len(body) > 2 {
		b = append(b, ',')
	}
	return append(b, body[1:]...), nil
}

// decodeMessage decodes the payload of a kindMessage frame. Fields that this build does not know are ignored.
func decodeMessage(p []byte) (message, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(p, &head); err != nil {
		return nil, fmt.Errorf("message is not JSON: %w", err)
	}
	if head.Type == "" {
		return nil, errors.New("message has no type")
	}
	m := newMessage(head.Type)
	if m == nil {
		return &unknown{name: head.Type}, nil
	}
	if err := json.Unmarshal(p, m); err != nil {
		return nil, fmt.Errorf("message %s: %w", head.Type, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("message %s: %w", head.Type, err)
	}
	return m, nil
}

// appendChunk appends an evidence chunk as a frame. The caller has checked channel and size.
func appendChunk(b []byte, channel string, offset int64, p []byte) []byte {
	b = appendHeader(b, kindChunk, chunkHeader+len(channel)+len(p))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = append(b, byte(len(channel)))
	b = append(b, channel...)
	return append(b, p...)
}

// decodeChunk splits the payload of a kindChunk frame. The bytes alias p.
func decodeChunk(p []byte) (channel string, offset int64, data []byte, err error) {
	if len(p) < chunkHeader {
		return "", 0, nil, errors.New("chunk is shorter than its header")
	}
	offset = int64(binary.BigEndian.Uint64(p))
	n := int(p[8])
	if offset < 0 || offset > 1<<62 {
		return "", 0, nil, errors.New("chunk has an impossible offset")
	}
	if len(p) < chunkHeader+n {
		return "", 0, nil, errors.New("chunk is shorter than its channel's name")
	}
	channel = string(p[chunkHeader : chunkHeader+n])
	if err := checkChannel(channel); err != nil {
		return "", 0, nil, err
	}
	return channel, offset, p[chunkHeader+n:], nil
}

// payloadLimit returns the most that a frame of this kind may carry.
func payloadLimit(kind byte) int {
	switch kind {
	case kindData:
		return MaxData
	case kindChunk:
		return chunkHeader + MaxChannelName + MaxData
	case kindSub:
		return 1 + MaxData
	default:
		return MaxMessage
	}
}

// frameReader reads frames from r, reusing one buffer.
type frameReader struct {
	r   io.Reader
	hdr [frameHeader]byte
	buf []byte
}

// maxIdleBuffer is the buffer that a reader keeps between frames; a larger one is dropped after use.
const maxIdleBuffer = 1 << 10

// header waits for the next frame and returns its kind and length. io.EOF means that the peer ended the stream
// between two frames.
func (fr *frameReader) header() (kind byte, n int, err error) {
	if _, err := io.ReadFull(fr.r, fr.hdr[:]); err != nil {
		return 0, 0, err
	}
	kind = fr.hdr[0]
	n64 := binary.BigEndian.Uint32(fr.hdr[1:])
	if n64 > uint32(payloadLimit(kind)) {
		return kind, 0, &ProtocolError{Op: "read frame", Err: &LimitError{
			Limit: fmt.Sprintf("frame of kind %q", kind), Configured: int64(payloadLimit(kind)), Measured: int64(n64)}}
	}
	return kind, int(n64), nil
}

// payload reads the n bytes that belong to the header read before.
func (fr *frameReader) payload(kind byte, n int) (frame, error) {
	p, err := fr.fill(n)
	if err != nil {
		return frame{}, err
	}
	f := frame{kind: kind}
	switch kind {
	case kindMessage:
		f.msg, err = decodeMessage(p)
	case kindData:
		f.data = p
	case kindChunk:
		f.channel, f.offset, f.data, err = decodeChunk(p)
	case kindSub:
		if len(p) == 0 {
			err = errors.New("sub-stream frame is empty")
			break
		}
		f.sub, f.data = p[0], p[1:]
	default:
		f.msg = &unknown{name: string(rune(kind))}
	}
	if err != nil {
		return frame{}, &ProtocolError{Op: "read frame", Err: err}
	}
	if (kind == kindMessage || n == 0) && cap(fr.buf) > maxIdleBuffer {
		fr.buf = nil
	}
	return f, nil
}

// fill reads n bytes. A buffer for more than MaxData grows with what arrives, so that a length alone costs nothing.
func (fr *frameReader) fill(n int) ([]byte, error) {
	if n <= cap(fr.buf) {
		p := fr.buf[:n]
		return p, noEOF(readFull(fr.r, p))
	}
	if n <= MaxData+chunkHeader+MaxChannelName {
		fr.buf = make([]byte, n)
		return fr.buf, noEOF(readFull(fr.r, fr.buf))
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, fr.r, int64(n))
	fr.buf = b.Bytes()
	return fr.buf, noEOF(err)
}

func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	return err
}

// noEOF turns the end of a stream inside a frame into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
