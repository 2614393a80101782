package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

// prefixBytes is how much of a pattern the filter looks at. No pattern is shorter.
const prefixBytes = 8

var _ [MinBytes - prefixBytes]struct{} // a pattern has MinBytes at least

// pattern is a text that may not appear.
type pattern struct {
	text   string
	secret int // whose it is
}

// index finds patterns. Every position of a text is put to a filter by its next
// eight bytes; only what passes is compared.
type index struct {
	// patterns are sorted by their first eight bytes, then by length, the longest
	// first.
	patterns []pattern
	// prefixes are the different first eight bytes, big-endian, sorted; first is
	// where the patterns of each begin.
	prefixes []uint64
	first    []int
	// at finds a prefix's place in prefixes.
	at map[uint64]int
	// filter has a bit for the hash of each prefix.
	filter []uint64
	shift  uint
	// rank orders secrets: the longer value names a place that two cover.
	rank []int
}

// hash spreads the bytes of a prefix: the multiplier is 2^64 divided by the
// golden ratio, and the high bits are taken.
func (x *index) hash(v uint64) uint64 { return v * 0x9e3779b97f4a7c15 >> x.shift }

func newIndex(patterns []pattern, rank []int) *index {
	x := &index{patterns: patterns, rank: rank, at: make(map[uint64]int)}
	key := func(p pattern) uint64 { return binary.BigEndian.Uint64([]byte(p.text[:prefixBytes])) }
	slices.SortFunc(x.patterns, func(a, b pattern) int {
		return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(len(b.text), len(a.text)), strings.Compare(a.text, b.text))
	})
	for i, p := range x.patterns {
		if k := key(p); len(x.prefixes) == 0 || x.prefixes[len(x.prefixes)-1] != k {
			x.at[k] = len(x.prefixes)
			x.prefixes = append(x.prefixes, k)
			x.first = append(x.first, i)
		}
	}
	x.first = append(x.first, len(x.patterns))
	// 32 bits for each prefix let one position in 32 through by mistake; 2^18 bits
	// are what a first-level cache holds.
	log := min(max(bits.Len(uint(len(x.prefixes)*32)), 12), 18)
	x.shift = uint(64 - log)
	x.filter = make([]uint64, 1<<log/64)
	for _, k := range x.prefixes {
		h := x.hash(k)
		x.filter[h/64] |= 1 << (h % 64)
	}
	return x
}

// next returns the first position from i on at which p may hold a pattern, or
// the first one with fewer than eight bytes behind it.
func (x *index) next(p []byte, i int) int {
	filter, shift := x.filter, x.shift&63
	for ; i+prefixBytes <= len(p); i++ {
		h := binary.BigEndian.Uint64(p[i:]) * 0x9e3779b97f4a7c15 >> shift
		if filter[h/64]&(1<<(h%64)) != 0 {
			return i
		}
	}
	return i
}

// match looks at p, which begins with what next has found. n is the length of
// the longest pattern that p begins with, 0 for none; partial is true when p is
// the proper beginning of a longer one.
func (x *index) match(p []byte) (n, secret int, partial bool) {
	if len(p) < prefixBytes {
		return 0, 0, x.begins(p)
	}
	k, ok := x.at[binary.BigEndian.Uint64(p)]
	if !ok {
		return 0, 0, false
	}
	for _, c := range x.patterns[x.first[k]:x.first[k+1]] {
		switch {
		case len(c.text) > len(p):
			partial = partial || c.text[:len(p)] == string(p)
		case string(p[:len(c.text)]) == c.text:
			return len(c.text), c.secret, partial
		}
	}
	return 0, 0, partial
}

// begins reports whether a pattern begins with p, which has fewer than eight bytes.
func (x *index) begins(p []byte) bool {
	if len(p) == 0 {
		return false
	}
	var b [prefixBytes]byte
	copy(b[:], p)
	low := binary.BigEndian.Uint64(b[:])
	k, _ := slices.BinarySearch(x.prefixes, low)
	if k == len(x.prefixes) {
		return false
	}
	binary.BigEndian.PutUint64(b[:], x.prefixes[k])
	return bytes.HasPrefix(b[:], p)
}

func (x *index) contains(p []byte) bool {
	_, n, _ := x.find(p)
	return n > 0
}

// find returns the first place in p that holds a pattern; n is 0 when none does.
func (x *index) find(p []byte) (at, n, secret int) {
	for i := 0; ; i++ {
		if i = x.next(p, i); i+prefixBytes > len(p) {
			return 0, 0, 0
		}
		if n, secret, _ := x.match(p[i:]); n > 0 {
			return i, n, secret
		}
	}
}
