// Package redact takes the values of secrets out of everything that leaves an
// attempt: log, trace, diff, failure texts and the result document (P12).
//
// A Redactor knows a set of secrets, each as a set of patterns: the value, the
// lines of a value that has several, the strings inside a JSON value that hold
// its keys, and what base64, hexadecimal, JSON and URL encoders make of them
// (pattern.go). Every occurrence of every pattern is found, overlapping ones too;
// what they cover together is replaced by one marker, "[redacted:NAME]", with
// the name of the longest secret among them. Nothing that is covered is written,
// and no marker can complete a pattern with the text around it (marker.go).
//
// # What is not masked
//
// Masking "test" or "a" would destroy the evidence and hide nothing. Values of
// fewer than MinBytes bytes, of fewer than four different bytes, and common words
// are not masked; NotMaskable names them, for people to see. A value that was
// compressed, encrypted, reversed or spelled out with spaces cannot be found. Of
// encoded text that is broken into lines, up to 11 characters beside a break can stay.
//
// # Streams
//
// Writer works on bytes in any pieces. It holds back a tail of what was written
// only while that tail is the proper beginning of a pattern, so at most the
// longest pattern less one byte, and with it the marker of a secret that the tail
// may belong to; everything else is written before Write returns.
// There is no flush on idle: what is held back may be the first half of a secret,
// and time does not make it safe. A tail that stays incomplete comes out at Close.
// Hardly any pattern holds a line end, so a complete line is not held back, but
// for the lines of a key that is being printed.
//
// The matcher is our own because the libraries for many patterns at once
// (coregx/ahocorasick, cloudflare/ahocorasick) search a haystack that is there as
// a whole: neither tells at the end of a piece how much of it must be held back. A filter on eight bytes suits the many patterns of one
// length that encodings give, and needs no automaton (match.go).
package redact

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// MinBytes is the length under which a value is not masked: eight bytes, the
// least that a password may have where one is asked for, and the length under
// which words of ordinary text begin to match.
const MinBytes = 8

// Secret is a value that must not leave the attempt. Name stands in the marker.
// Whatever prints or encodes one shows its name and its length.
type Secret struct{ Name, Value string }

// String implements fmt.Stringer.
func (s Secret) String() string { return fmt.Sprintf("%s (%d bytes)", s.Name, len(s.Value)) }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, for JSON and its like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Redactor masks a set of secrets. Its methods may be called from any goroutine.
// A nil Redactor, and one without secrets, changes nothing and costs nothing.
type Redactor struct {
	index       *index // nil: nothing to mask
	markers     []string
	notMaskable []string
	count       atomic.Int64
}

// New returns a redactor for secrets. Empty values are left out; of several
// secrets with one value the first gives the name.
func New(secrets []Secret) *Redactor {
	r := &Redactor{}
	var known []Secret
	seen := map[string]bool{}
	b := builder{owner: map[string]int{}}
	for _, s := range secrets {
		value := trim(s.Value)
		if value == "" || seen[value] {
			continue
		}
		seen[value] = true
		if weak(value) {
			r.notMaskable = append(r.notMaskable, s.Name)
			continue
		}
		known = append(known, Secret{Name: s.Name, Value: value})
	}
	b.secrets = known
	for i := range known {
		b.add(i)
	}
	if len(b.owner) == 0 {
		return r
	}
	rank := make([]int, len(known))
	for i, s := range known {
		rank[i] = len(s.Value)
	}
	r.index = newIndex(b.patterns(), rank)
	r.markers = markers(known, r.index.patterns)
	return r
}

// Empty reports whether there is nothing to mask.
func (r *Redactor) Empty() bool { return r == nil || r.index == nil }

// NotMaskable names the secrets whose values are too short or too common to be
// masked, in the order in which they were given.
func (r *Redactor) NotMaskable() []string {
	if r == nil {
		return nil
	}
	return append([]string(nil), r.notMaskable...)
}

// Count is how many markers were written so far.
func (r *Redactor) Count() int64 {
	if r == nil {
		return 0
	}
	return r.count.Load()
}

// Contains reports whether a secret is in p.
func (r *Redactor) Contains(p []byte) bool { return !r.Empty() && r.index.contains(p) }

// Bytes returns p without secrets: p itself when it holds none, else a copy.
func (r *Redactor) Bytes(p []byte) []byte {
	if !r.Contains(p) {
		return p
	}
	var out sliceWriter
	s := scanner{r: r, w: &out}
	_ = s.scan(p, true) // a slice takes everything
	return out
}

// String returns s without secrets.
func (r *Redactor) String(s string) string {
	if r.Empty() || len(s) < MinBytes {
		return s
	}
	p := []byte(s)
	if !r.index.contains(p) {
		return s
	}
	return string(r.Bytes(p))
}

type sliceWriter []byte

func (s *sliceWriter) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}
