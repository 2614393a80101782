package gitobj

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
)

// Numbers of the writer.
const (
	// buffered is how much of a pack is held in memory before it goes to the
	// file: the pack of a small repository is written with one call.
	buffered = 256 << 10
	// storedBelow is the size below which content is not compressed: the pack
	// lives as long as an attempt, and deflating 10,000 small files costs more
	// than all the rest of recording them. It is below 64 KiB, the largest stored
	// block of a deflate stream.
	storedBelow = 16 << 10
)

// Pack collects objects for a pack. Objects that were added already are
// skipped, so that each is in it once. It stays in memory while it is small. It
// is not safe for concurrent use.
type Pack struct {
	spill   func() (*os.File, error)
	f       *os.File // nil: nothing has been flushed
	buf     []byte   // what follows flushed
	flushed int64
	objects []packed
	have    map[ID]struct{}
	err     error // of the first write that failed; a pack with a hole is no pack
}

type packed struct {
	id     ID
	crc    uint32
	offset int64
}

// NewPack starts a pack. When it outgrows memory it moves to a file that spill
// makes.
func NewPack(spill func() (*os.File, error)) *Pack {
	p := &Pack{spill: spill, have: make(map[ID]struct{})}
	p.buf = append(p.buf, "PACK\x00\x00\x00\x02\x00\x00\x00\x00"...) // the count is set by Seal
	return p
}

// Has reports whether the pack holds id.
func (p *Pack) Has(id ID) bool { _, ok := p.have[id]; return ok }

// Add writes an object whose ID the caller has computed.
func (p *Pack) Add(t Type, id ID, content []byte) error {
	if p.Has(id) || p.err != nil {
		return p.err
	}
	p.begin(id)
	start := len(p.buf)
	p.buf = appendHeader(p.buf, t, int64(len(content)))
	if len(content) < storedBelow {
		p.buf = appendStored(p.buf, content)
	} else {
		p.deflate(bytes.NewReader(content))
	}
	p.end(start)
	return p.err
}

// AddStream writes a blob of size bytes from r and returns its ID. It is for
// content that is not to be held in memory. A reader that yields another number
// of bytes fails the pack.
func (p *Pack) AddStream(size int64, r io.Reader) (ID, error) {
	if p.err != nil {
		return ID{}, p.err
	}
	if p.flush(); p.err != nil {
		return ID{}, p.err
	}
	// The header of the pack is always in the buffer first, so there is a file now.
	offset, crc := p.flushed, crc32.NewIEEE()
	h := NewHash(Blob, size)
	out := &counter{w: io.MultiWriter(p.f, crc)}
	if _, err := out.Write(appendHeader(nil, Blob, size)); err != nil {
		return ID{}, p.fail(err)
	}
	z := writers.Get().(*zlib.Writer)
	defer writers.Put(z)
	z.Reset(out)
	n, err := io.Copy(io.MultiWriter(h, z), io.LimitReader(r, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("%w: %d bytes where %d were announced", ErrSize, n, size)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return ID{}, p.fail(err)
	}
	p.flushed += out.n
	id := Sum(h)
	// A duplicate found only now stays in the file as bytes that no index entry
	// names would break the count, so it is cut off again.
	if p.Has(id) {
		p.flushed = offset
		if err := p.f.Truncate(offset); err != nil {
			return ID{}, p.fail(err)
		}
		if _, err := p.f.Seek(offset, io.SeekStart); err != nil {
			return ID{}, p.fail(err)
		}
		return id, nil
	}
	p.have[id] = struct{}{}
	p.objects = append(p.objects, packed{id: id, crc: crc.Sum32(), offset: offset})
	return id, nil
}

// ErrSize is a file that changed its size while it was read.
var ErrSize = errors.New("size changed while reading")

func (p *Pack) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

func (p *Pack) begin(id ID) {
	p.have[id] = struct{}{}
	p.objects = append(p.objects, packed{id: id, offset: p.flushed + int64(len(p.buf))})
}

func (p *Pack) end(start int) {
	p.objects[len(p.objects)-1].crc = crc32.ChecksumIEEE(p.buf[start:])
	if len(p.buf) >= buffered {
		p.flush()
	}
}

func (p *Pack) flush() {
	if p.err != nil || len(p.buf) == 0 {
		return
	}
	if p.f == nil {
		f, err := p.spill()
		if err != nil {
			p.fail(err)
			return
		}
		p.f = f
	}
	n, err := p.f.Write(p.buf)
	p.flushed += int64(n)
	p.buf = p.buf[:0]
	if err != nil {
		p.fail(err)
	}
}

func (p *Pack) deflate(r io.Reader) {
	z := writers.Get().(*zlib.Writer)
	defer writers.Put(z)
	z.Reset((*appender)(&p.buf))
	_, err := io.Copy(z, r)
	if err = errors.Join(err, z.Close()); err != nil {
		p.fail(err)
	}
}

// AddFrom copies an object of a pack that is in memory, as it is encoded there.
func (p *Pack) AddFrom(s *Sealed, id ID) error {
	if p.Has(id) || p.err != nil {
		return p.err
	}
	k, ok := slices.BinarySearchFunc(s.objects, id, func(o packed, id ID) int { return bytes.Compare(o.id[:], id[:]) })
	if !ok || !s.InMemory() {
		return p.fail(fmt.Errorf("object %s is not in the pack's memory", id))
	}
	end := int64(len(s.mem) - sha1.Size)
	for _, o := range s.objects {
		if o.offset > s.objects[k].offset && o.offset < end {
			end = o.offset
		}
	}
	p.begin(id)
	start := len(p.buf)
	p.buf = append(p.buf, s.mem[s.objects[k].offset:end]...)
	p.end(start)
	return p.err
}

// Abort drops a pack that is not to be sealed.
func (p *Pack) Abort() {
	if p.f != nil {
		p.f.Close()
		os.Remove(p.f.Name())
	}
}

// Seal completes the pack. After an error nothing is left of it.
func (p *Pack) Seal() (_ *Sealed, err error) {
	defer func() {
		if err != nil {
			p.Abort()
		}
	}()
	if p.err != nil {
		return nil, p.err
	}
	count := binary.BigEndian.AppendUint32(nil, uint32(len(p.objects)))
	h := sha1.New()
	if p.f == nil {
		copy(p.buf[8:], count)
		h.Write(p.buf)
	} else {
		if p.flush(); p.err != nil {
			return nil, p.err
		}
		if _, err := p.f.WriteAt(count, 8); err != nil {
			return nil, err
		}
		// The checksum covers the count, which was not known before the end.
		if _, err := io.Copy(h, io.NewSectionReader(p.f, 0, p.flushed)); err != nil {
			return nil, err
		}
	}
	sum := Sum(h)
	p.buf = append(p.buf, sum[:]...)
	s := &Sealed{index: p.index(sum), sum: sum, objects: p.objects}
	if p.f == nil {
		s.mem = p.buf
		return s, nil
	}
	if p.flush(); p.err != nil {
		return nil, p.err
	}
	s.file = p.f.Name()
	if err := errors.Join(p.f.Chmod(0o444), p.f.Close()); err != nil {
		return nil, err
	}
	return s, nil
}

// appendHeader encodes the type and size that precede an object in a pack.
func appendHeader(b []byte, t Type, size int64) []byte {
	c := byte(t)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(b, c)
}

// appendStored encodes content, which is shorter than storedBelow, as a zlib
// stream of one stored block.
func appendStored(b, content []byte) []byte {
	n := uint16(len(content))
	b = append(b, 0x78, 0x01, 1) // zlib's header; the last block, stored
	b = binary.LittleEndian.AppendUint16(b, n)
	b = binary.LittleEndian.AppendUint16(b, ^n)
	b = append(b, content...)
	return binary.BigEndian.AppendUint32(b, adler32.Checksum(content))
}

// writers keeps deflate's tables, which are large, from one object to the next.
var writers = sync.Pool{New: func() any {
	z, err := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
