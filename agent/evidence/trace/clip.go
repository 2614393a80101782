package trace

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/everdict/everdict/protocol"
)

// shortField is what the small fields (names, ids, models) are cut to in an
// event that is too long: they are short in every honest trace.
const shortField = 1 << 10

// clip cuts an event of encoded bytes down to MaxTraceEventBytes and marks it.
// The long fields share what is left in proportion to their length; of each,
// head and tail are kept.
func clip(ev *protocol.TraceEvent, encoded int) {
	ev.Truncated = true
	for _, s := range []*string{&ev.SpanID, &ev.ParentID, &ev.Model, &ev.ID, &ev.Name, &ev.Action, &ev.Stream,
		&ev.Ref, &ev.MediaType, &ev.Role, &ev.Scope, &ev.Event, &ev.Unit, &ev.Node, &ev.Service, &ev.At} {
		*s = Ends(*s, shortField)
	}
	texts := []*string{&ev.Message}
	for _, p := range []*(*string){&ev.Text, &ev.Output} {
		if *p != nil {
			// The caller's string stays as it is.
			copied := **p
			*p = &copied
			texts = append(texts, *p)
		}
	}
	raws := []*json.RawMessage{&ev.Args, &ev.Detail, &ev.Attributes}
	sum := 0
	for _, s := range texts {
		sum += quotedLen(*s)
	}
	for _, m := range raws {
		sum += quotedLen(string(*m))
	}
	// 20 short fields at their longest, names of fields and braces.
	const fixed = 24 << 10
	budget := protocol.MaxTraceEventBytes - fixed
	share := func(n int) int { return int(int64(n) * int64(budget) / int64(max(sum, 1))) }
	for _, s := range texts {
		if n := quotedLen(*s); sum > budget && n > share(n) {
			*s = Ends(*s, share(n))
		}
	}
	for _, m := range raws {
		if n := quotedLen(string(*m)); sum > budget && n > share(n) {
			*m, _ = json.Marshal(map[string]any{"truncated": true, "bytes": len(*m), "text": Ends(string(*m), max(share(n)-64, 0))})
		}
	}
}

// Ends cuts s so that its JSON form is at most n bytes, keeping three quarters
// of its head and one of its tail with a note of what is missing between them.
// A string that fits is returned as it is.
func Ends(s string, n int) string {
	if len(s) <= n && quotedLen(s) <= n {
		return s
	}
	room := max(n-64, 0) // the note between the two
	head := 0
	for used := 0; head < len(s); {
		c, size := runeCost(s[head:])
		if used+c > room*3/4 {
			break
		}
		used, head = used+c, head+size
	}
	tail := len(s)
	for used := 0; tail > head; {
		_, size := utf8.DecodeLastRuneInString(s[:tail])
		c, _ := runeCost(s[tail-size:])
		if used+c > room/4 {
			break
		}
		used, tail = used+c, tail-size
	}
	return s[:head] + fmt.Sprintf("\n[... %d bytes cut ...]\n", tail-head) + s[tail:]
}

// quotedLen is the length of s in JSON, without the quotes, for an encoder that
// does not escape HTML.
func quotedLen(s string) int {
	n := 0
	for len(s) > 0 {
		c, size := runeCost(s)
		n += c
		s = s[size:]
	}
	return n
}

// runeCost returns how many bytes the first rune of s takes in JSON and in s.
func runeCost(s string) (cost, size int) {
	switch c := s[0]; {
	case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f':
		return 2, 1
	case c < 0x20:
		return 6, 1
	case c < utf8.RuneSelf:
		return 1, 1
	}
	r, size := utf8.DecodeRuneInString(s)
	if r == '\u2028' || r == '\u2029' || r == utf8.RuneError && size == 1 {
		return 6, size
	}
	return size, size
}
