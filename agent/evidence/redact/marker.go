package redact

import "strings"

// maxName bounds the name in a marker.
const maxName = 64

// neutral are markers for the case that "[redacted:NAME]" will not do, in the
// order of preference. The last ones are every printable byte that JSON does not
// escape, three times: one of them suits any set of secrets but one that begins or ends in
// each of them.
var neutral = func() []string {
	out := []string{"[redacted]", "<redacted>", "{redacted}", "(redacted)", "*redacted*"}
	for c := byte('!'); c <= '~'; c++ {
		if c != '"' && c != '\\' {
			out = append(out, strings.Repeat(string(rune(c)), 3))
		}
	}
	return out
}()

// markers returns what is put in the place of each secret.
//
// A marker must not make a secret visible: neither alone (the name of one secret
// can be the value of another), nor together with text beside it ("abcdefgh["
// comes to light where "abcdefgh" stands before a marker). What is not so is left
// out, and a neutral form takes its place.
func markers(secrets []Secret, patterns []pattern) []string {
	out := make([]string, len(secrets))
	for i, s := range secrets {
		out[i] = neutral[0]
		for _, m := range append([]string{"[redacted:" + clean(s.Name) + "]"}, neutral...) {
			if harmless(m, patterns) {
				out[i] = m
				break
			}
		}
	}
	return out
}

// clean makes a name that stands in any text, JSON included.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxName)]
}

// harmless reports whether no pattern can come about by writing marker.
func harmless(marker string, patterns []pattern) bool {
	first, last := marker[:1], marker[len(marker)-1:]
	for _, p := range patterns {
		if strings.Contains(marker, p.text) {
			return false
		}
		if strings.Contains(p.text, first) && (strings.Contains(p.text, marker) || meets(p.text, marker)) ||
			strings.Contains(p.text, last) && meets(marker, p.text) {
			return false
		}
	}
	return true
}

// meets reports whether an end of a is a beginning of b.
func meets(a, b string) bool {
	for n := min(len(a), len(b)) - 1; n > 0; n-- {
		if a[len(a)-n:] == b[:n] {
			return true
		}
	}
	return false
}
