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

// index finds patterns. A filter looks at the text four positions at a time: of a
// pattern that begins at any of them, five bytes lie at the last one, and these are bytes
// 0 to 4, 1 to 5, 2 to 6 or 3 to 7 of the pattern. What passes goes to a second
// filter, one position at a time with all eight bytes, and only then is text compared.
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
	// coarse knows the five bytes at offsets 0 to 3 of each prefix, fine its eight.
	coarse, fine filter
	// member are the bytes that prefixes consist of.
	member [256]bool
	// rank orders secrets: the longer value names a place that two cover.
	rank []int
}

// filter is a set of numbers that may hold some more.
type filter struct {
	bits  []uint64
	shift uint
}

// newFilter has room for n numbers with one wrong answer in 16. 2^18 bits are what
// a first-level cache holds.
func newFilter(n int) filter {
	log := min(max(bits.Len(uint(n*16)), 12), 18)
	return filter{bits: make([]uint64, 1<<log/64), shift: uint(64 - log)}
}

// place returns where v's bit is. The multiplier is 2^64 divided by the golden
// ratio; the high bits are taken, which depend on all of v.
func (f *filter) place(v uint64) (word, bit uint64) {
	h := v * 0x9e3779b97f4a7c15 >> (f.shift & 63)
	return h / 64, 1 << (h % 64)
}

func (f *filter) add(v uint64) {
	word, bit := f.place(v)
	f.bits[word] |= bit
}

func (f *filter) has(v uint64) bool {
	word, bit := f.place(v)
	return f.bits[word]&bit != 0
}

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
	x.coarse, x.fine = newFilter(4*len(x.prefixes)), newFilter(len(x.prefixes))
	for _, k := range x.prefixes {
		v := bits.ReverseBytes64(k)
		x.fine.add(v)
		for range 4 {
			x.coarse.add(v << 24 >> 24)
			v >>= 8
		}
		for range prefixBytes {
			x.member[byte(k)] = true
			k >>= 8
		}
	}
	return x
}

// next returns the first position from i on at which p may hold a pattern, or
// the first one with fewer than eight bytes behind it that may begin one.
func (x *index) next(p []byte, i int) int {
	from := i
	for ; i+prefixBytes <= len(p); i += 4 {
		v := binary.LittleEndian.Uint64(p[i:])
		if !x.coarse.has(v >> 24) {
			continue
		}
		for at := i; at < i+4 && at+prefixBytes <= len(p); at++ {
			if x.fine.has(binary.LittleEndian.Uint64(p[at:])) {
				return at
			}
		}
	}
	// The last round can have gone past positions that have eight bytes no more.
	i = max(min(i, len(p)-prefixBytes+1), from)
	for at := len(p) - 1; at >= i; at-- {
		if !x.member[p[at]] {
			return at + 1
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
