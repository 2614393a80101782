package run

import (
	"bytes"
	"context"
	"time"
	"unicode/utf8"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/evidence"
	"github.com/everdict/everdict/protocol"
)

const (
	// searchLine is how much of a line is searched at once: a longer one counts as
	// several.
	searchLine = 64 << 10
	// searchShown is how many characters of a line a match shows.
	searchShown = 400
	// searchWithin bounds one search; the next goes on where it stopped.
	searchWithin = 2 * time.Second
)

// SearchLog looks for a text in the run's log, as it is shown: what is taken out of a
// view does not come between its characters.
func (s *Service) SearchLog(ctx context.Context, p auth.Principal, id string, q protocol.LogSearch) (protocol.LogMatches, error) {
	found := protocol.LogMatches{Matches: []protocol.LogMatch{}, Next: q.Offset, Done: true}
	r, err := s.find(ctx, p, id)
	if err != nil {
		return found, err
	}
	a, _, err := s.attempt(r, q.Attempt)
	if err != nil || a == nil {
		return found, err
	}
	defer a.Close()
	found.Bytes = a.Summary().Channels[protocol.ChannelLog]
	within := time.Now().Add(searchWithin)
	m := matcher{text: []byte(q.Text), fold: !q.Case}
	if m.fold {
		m.text = bytes.ToLower(m.text)
	}
	var line []byte
	begin := q.Offset // of line
	look := func(next int64) {
		if match, ok := m.match(line); ok {
			match.Offset = begin
			found.Matches = append(found.Matches, match)
		}
		line, begin, found.Next = line[:0], next, next
	}
	for c, err := range a.Log(ctx, evidence.LogOptions{Stream: q.Stream, Offset: q.Offset}) {
		if err != nil {
			return found, err
		}
		if c.Gap != nil {
			continue
		}
		if len(line) == 0 {
			begin = c.Offset
		}
		for rest := c.Data; len(rest) > 0; {
			n := bytes.IndexByte(rest, '\n') + 1
			whole := n > 0
			if !whole {
				n = len(rest)
			}
			line = append(line, rest[:n]...)
			rest = rest[n:]
			if !whole && len(line) < searchLine {
				continue
			}
			look(c.Next() - int64(len(rest)))
			if len(found.Matches) >= q.Limit {
				found.Done = found.Next >= found.Bytes
				return found, nil
			}
		}
		if time.Now().After(within) {
			found.Done = false
			return found, nil
		}
	}
	if len(line) > 0 {
		look(begin + int64(len(line)))
	}
	found.Next = max(found.Next, found.Bytes)
	return found, nil
}

// matcher finds a text in lines. With fold, text is in lower case.
type matcher struct {
	text         []byte
	fold         bool
	shown, lower []byte
}

func (m *matcher) match(line []byte) (protocol.LogMatch, bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	shown := line
	if !printable(line) {
		var clean evidence.Sanitizer
		m.shown = clean.Flush(clean.Append(m.shown[:0], line))
		shown = m.shown
	}
	in := shown
	if m.fold {
		m.lower = lower(m.lower[:0], shown)
		in = m.lower
	}
	i := bytes.Index(in, m.text)
	if i < 0 {
		return protocol.LogMatch{}, false
	}
	// Folding may change a character's length, so that places are told in characters.
	column := utf8.RuneCount(in[:i])
	runes := []rune(string(shown))
	column = min(column, len(runes))
	from := max(0, min(column-searchShown/4, len(runes)-searchShown))
	return protocol.LogMatch{Column: column - from, Text: string(runes[from:min(len(runes), from+searchShown)])}, true
}

// printable says that a line is plain ASCII, which is shown as it is.
func printable(line []byte) bool {
	for _, b := range line {
		if b != '\t' && (b < 0x20 || b >= 0x7f) {
			return false
		}
	}
	return true
}

// lower appends a text in lower case.
func lower(dst, text []byte) []byte {
	for i, b := range text {
		if b >= utf8.RuneSelf {
			return append(dst, bytes.ToLower(text[i:])...)
		}
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		dst = append(dst, b)
	}
	return dst
}
