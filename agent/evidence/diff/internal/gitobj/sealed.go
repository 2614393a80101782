package gitobj

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Sealed is a complete pack with its index.
type Sealed struct {
	index   []byte
	sum     ID
	objects []packed // sorted by id
	mem     []byte   // the pack, or
	file    string   // where it is
}

// InMemory reports whether the pack has no file.
func (s *Sealed) InMemory() bool { return s.file == "" }

// Has reports whether the pack holds id.
func (s *Sealed) Has(id ID) bool {
	_, ok := slices.BinarySearchFunc(s.objects, id, func(o packed, id ID) int { return bytes.Compare(o.id[:], id[:]) })
	return ok
}

func (s *Sealed) name() string { return "pack-" + s.sum.String() }

// Install writes a copy of the pack and its index to a directory of packs, which
// somebody else may hold, and returns their name without extension.
func (s *Sealed) Install(dir *os.Root) (name string, err error) {
	name = s.name()
	if s.InMemory() {
		err = dir.WriteFile(name+".pack", s.mem, 0o444)
	} else {
		err = copyFile(dir, name+".pack", s.file)
	}
	if err == nil {
		err = dir.WriteFile(name+".idx", s.index, 0o444)
	}
	return name, err
}

// Settle is Install of a pack whose file is temp in dir already.
func (s *Sealed) Settle(dir *os.Root, temp string) error {
	if err := dir.Rename(temp, s.name()+".pack"); err != nil {
		return err
	}
	return dir.WriteFile(s.name()+".idx", s.index, 0o444)
}

// Move puts a pack that needs no other copy into a directory of packs that is
// nobody else's, and returns its path without extension.
func (s *Sealed) Move(dir string) (base string, err error) {
	base = filepath.Join(dir, s.name())
	if s.InMemory() {
		err = os.WriteFile(base+".pack", s.mem, 0o444)
	} else if err = os.Rename(s.file, base+".pack"); err == nil {
		s.file = base + ".pack"
	}
	if err == nil {
		err = os.WriteFile(base+".idx", s.index, 0o444)
	}
	return base, err
}

// Remove removes the pack's own file, if it has one.
func (s *Sealed) Remove() error {
	if s.InMemory() {
		return nil
	}
	return os.Remove(s.file)
}

func copyFile(dir *os.Root, to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dir.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// index encodes version 2 of a pack's index.
func (p *Pack) index(sum ID) []byte {
	slices.SortFunc(p.objects, func(a, b packed) int { return bytes.Compare(a.id[:], b.id[:]) })
	b := make([]byte, 0, 8+256*4+len(p.objects)*28+40)
	b = append(b, 0xff, 't', 'O', 'c', 0, 0, 0, 2)
	n := 0
	for first := range 256 {
		for n < len(p.objects) && int(p.objects[n].id[0]) <= first {
			n++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for _, o := range p.objects {
		b = append(b, o.id[:]...)
	}
	for _, o := range p.objects {
		b = binary.BigEndian.AppendUint32(b, o.crc)
	}
	var large []int64
	for _, o := range p.objects {
		if o.offset <= math.MaxInt32 {
			b = binary.BigEndian.AppendUint32(b, uint32(o.offset))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(large)))
		large = append(large, o.offset)
	}
	for _, offset := range large {
		b = binary.BigEndian.AppendUint64(b, uint64(offset))
	}
	b = append(b, sum[:]...)
	all := sha1.Sum(b)
	return append(b, all[:]...)
}
