package evidence

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// The file of an attempt:
//
//	header  magic [8], nonce [8]
//	frame*  crc u32, kind u8, len(name) u8, 0 u16, len(payload) u32, name, payload
//
// Little endian. The crc (CRC-32C) covers nonce and the frame behind the crc.
// The nonce is random and never leaves the file: what a job writes into its log
// cannot pass for a frame, wherever a crash may cut the file.
const (
	magic      = "everdev1"
	headerSize = 16
	frameSize  = 12
	// maxPayload bounds a frame: no reader allocates or trusts more.
	maxPayload = 64 << 20

	kindData = 1
	// kindSeal ends a file. Its payload is the table of contents and a footer:
	// the seal's own position u64, nonce [8]. So a complete file is opened by
	// reading its end.
	kindSeal   = 2
	footerSize = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extent is a piece of a channel: n bytes from off on lie at pos in the file.
type extent struct {
	off, pos, n int64
}

// contents says where everything is. channels keep the order of their first byte.
type contents struct {
	channels []*channel
	sealed   bool
	end      int64 // of the last whole frame
}

type channel struct {
	name    string
	size    int64
	lines   int64 // newlines
	extents []extent
}

func (c *contents) channel(name string) *channel {
	for _, ch := range c.channels {
		if ch.name == name {
			return ch
		}
	}
	return nil
}

func (c *contents) make(name string) *channel {
	ch := c.channel(name)
	if ch == nil {
		ch = &channel{name: name}
		c.channels = append(c.channels, ch)
	}
	return ch
}

func (c *contents) add(name string, pos int64, payload []byte) *channel {
	ch := c.make(name)
	n := int64(len(payload))
	ch.extents = append(ch.extents, extent{ch.size, pos, n})
	ch.size += n
	ch.lines += int64(bytes.Count(payload, []byte{'\n'}))
	return ch
}

// appendFrame encodes a frame behind dst.
func appendFrame(dst []byte, nonce [8]byte, kind byte, name string, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, kind, byte(len(name)), 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(append(dst, name...), payload...)
	crc := crc32.Update(crc32.Checksum(nonce[:], castagnoli), castagnoli, dst[start+4:])
	binary.LittleEndian.PutUint32(dst[start:], crc)
	return dst
}

type frame struct {
	kind    byte
	name    string
	pos     int64 // of the payload
	payload []byte
}

// errTorn is a frame that is not whole.
var errTorn = errors.New("torn frame")

// readFrame reads the frame that begins at pos. buf is used for the payload.
func readFrame(r io.Reader, nonce [8]byte, pos, limit int64, buf []byte) (frame, []byte, error) {
	var h [frameSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, buf, torn(err)
	}
	nameLen, n := int64(h[5]), int64(binary.LittleEndian.Uint32(h[8:]))
	if n > maxPayload || pos+frameSize+nameLen+n > limit {
		return frame{}, buf, errTorn
	}
	if need := int(nameLen + n); cap(buf) < need {
		buf = make([]byte, need)
	}
	buf = buf[:nameLen+n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return frame{}, buf, torn(err)
	}
	crc := crc32.Update(crc32.Checksum(nonce[:], castagnoli), castagnoli, h[4:])
	if crc32.Update(crc, castagnoli, buf) != binary.LittleEndian.Uint32(h[:]) {
		return frame{}, buf, errTorn
	}
	return frame{kind: h[4], name: string(buf[:nameLen]), pos: pos + frameSize + nameLen, payload: buf[nameLen:]}, buf, nil
}

func torn(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTorn
	}
	return err
}

// readHeader returns the nonce; ok is false for a file whose header never got
// there, by a crash or a power cut. Any other file is not ours to overwrite.
func readHeader(r io.ReaderAt) (nonce [8]byte, ok bool, err error) {
	var h [headerSize]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		if err == io.EOF {
			return nonce, false, nil
		}
		return nonce, false, err
	}
	if written := bytes.TrimRight(h[:8], "\x00"); len(written) < len(magic) && strings.HasPrefix(magic, string(written)) {
		return nonce, false, nil
	}
	if string(h[:8]) != magic {
		return nonce, false, errors.New("not an evidence file, or one of a newer version")
	}
	copy(nonce[:], h[8:])
	return nonce, true, nil
}

// scan reads all frames and believes only those whose checksum holds. It stops
// at the first that is not whole.
func scan(r io.ReaderAt, nonce [8]byte, size int64) (contents, error) {
	c := contents{end: headerSize}
	in := bufio.NewReaderSize(io.NewSectionReader(r, headerSize, size-headerSize), 128<<10)
	var buf []byte
	for c.end < size && !c.sealed {
		f, b, err := readFrame(in, nonce, c.end, size, buf)
		buf = b
		if err == errTorn {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		switch f.kind {
		case kindData:
			if !protocol.ValidChannel(f.name) {
				return c, nil
			}
			c.add(f.name, f.pos, f.payload)
		case kindSeal:
			c.sealed = true
		default:
			return c, fmt.Errorf("frame of kind %d: written by a newer version", f.kind)
		}
		c.end = f.pos + int64(len(f.payload))
	}
	return c, nil
}

// readSealed opens a complete file by its end. ok is false when it has none. It
// checks the table of contents and not the channels: those of a run that was
// settled were on the disk before.
func readSealed(r io.ReaderAt, nonce [8]byte, size int64) (c contents, ok bool, err error) {
	if size < headerSize+frameSize+footerSize {
		return c, false, nil
	}
	var foot [footerSize]byte
	if _, err := r.ReadAt(foot[:], size-footerSize); err != nil {
		return c, false, err
	}
	pos := int64(binary.LittleEndian.Uint64(foot[:]))
	if !bytes.Equal(foot[8:], nonce[:]) || pos < headerSize || pos > size-frameSize-footerSize {
		return c, false, nil
	}
	f, _, err := readFrame(io.NewSectionReader(r, pos, size-pos), nonce, pos, size, nil)
	if err == errTorn || err == nil && (f.kind != kindSeal || f.pos+int64(len(f.payload)) != size) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	c, ok = decodeTable(f.payload[:len(f.payload)-footerSize], pos)
	c.sealed, c.end = true, size
	return c, ok, nil
}

// appendSeal encodes the payload of the seal that will stand at pos.
func appendSeal(dst []byte, c *contents, nonce [8]byte) []byte {
	put := func(v int64) { dst = binary.AppendUvarint(dst, uint64(v)) }
	put(int64(len(c.channels)))
	for _, ch := range c.channels {
		put(int64(len(ch.name)))
		dst = append(dst, ch.name...)
		put(ch.lines)
		put(int64(len(ch.extents)))
		last := int64(0)
		for _, e := range ch.extents {
			put(e.pos - last)
			put(e.n)
			last = e.pos
		}
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.end))
	return append(dst, nonce[:]...)
}

// decodeTable reads what appendSeal wrote; limit is where the table's own frame
// begins, which no extent may reach over.
func decodeTable(b []byte, limit int64) (c contents, ok bool) {
	ok = true
	get := func() int64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<62 {
			ok, b = false, nil
			return 0
		}
		b = b[n:]
		return int64(v)
	}
	inside := func(pos, n int64) bool { return pos >= 0 && n >= 0 && pos <= limit && n <= limit-pos }
	text := func() string {
		n := get()
		if !ok || n > int64(len(b)) {
			ok, b = false, nil
			return ""
		}
		t := string(b[:n])
		b = b[n:]
		return t
	}
	for range get() {
		ch := &channel{name: text(), lines: get()}
		last := int64(0)
		for range get() {
			e := extent{off: ch.size, pos: last + get(), n: get()}
			if !ok || !inside(e.pos, e.n) {
				return contents{}, false
			}
			last = e.pos
			ch.size += e.n
			ch.extents = append(ch.extents, e)
		}
		if !ok {
			return contents{}, false
		}
		c.channels = append(c.channels, ch)
	}
	return c, ok && len(b) == 0
}
