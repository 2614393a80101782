package gitobj

import (
	"crypto/sha1"
	"encoding/binary"
)

// Stat is what the index remembers of a file, so that "git status" needs to
// read only what changed since. Its zero value makes git read the file once.
type Stat struct {
	CtimeSec, CtimeNsec uint32
	MtimeSec, MtimeNsec uint32
	Dev, Ino            uint32
	UID, GID            uint32
	Size                uint32
}

// IndexEntry is one path of the index.
type IndexEntry struct {
	Entry
	Stat Stat
}

// EncodeIndex encodes version 2 of git's index, with the entries sorted by the
// bytes of their paths.
func EncodeIndex(entries []IndexEntry) []byte {
	size := 12 + sha1.Size
	for _, e := range entries {
		size += 72 + len(e.Path)
	}
	b := make([]byte, 0, size)
	b = append(b, "DIRC\x00\x00\x00\x02"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		start := len(b)
		s := e.Stat
		for _, v := range [...]uint32{s.CtimeSec, s.CtimeNsec, s.MtimeSec, s.MtimeNsec, s.Dev, s.Ino, uint32(e.Mode), s.UID, s.GID, s.Size} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		b = append(b, e.ID[:]...)
		b = binary.BigEndian.AppendUint16(b, uint16(min(len(e.Path), 0xfff)))
		b = append(b, e.Path...)
		// One to eight NULs end the path and align the entry.
		for pad := 8 - (len(b)-start)%8; pad > 0; pad-- {
			b = append(b, 0)
		}
	}
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}
