package redact

import (
	"bytes"
	"encoding/json"
)

// JSON returns a JSON document without secrets, as a document that is still
// JSON. Strings are looked at as what they mean, whatever escapes they are
// written with, names of members too. A secret that is no string but a number,
// an object or a part of the structure makes a marker of the smallest value that holds
// it. A document without secrets is returned as it is; what is no JSON is text.
func (r *Redactor) JSON(doc json.RawMessage) json.RawMessage {
	switch {
	case r.Empty() || len(doc) < MinBytes:
		return doc
	case !r.index.contains(doc) && bytes.IndexByte(doc, '\\') < 0:
		return doc
	case !json.Valid(doc):
		return r.Bytes(doc)
	}
	out, changed := r.literals(doc)
	// Each round turns a value that is no marker into one, the document itself in
	// the end.
	for {
		at, n, secret := r.index.find(out)
		if n == 0 {
			break
		}
		changed = true
		r.count.Add(1)
		marker := `"` + r.markers[secret] + `"`
		v := enclosing(out, at, at+n)
		if v == (span{0, len(out)}) {
			return json.RawMessage(marker)
		}
		out = append(append(append([]byte(nil), out[:v.from]...), marker...), out[v.end:]...)
	}
	if !changed {
		return doc
	}
	return out
}

// literals masks the string literals of a valid document.
func (r *Redactor) literals(doc []byte) (out []byte, changed bool) {
	done := 0
	for i := 0; i < len(doc); i++ {
		if doc[i] != '"' {
			continue
		}
		end := literalEnd(doc, i)
		if masked, ok := r.literal(doc[i:end]); ok {
			out = append(append(out, doc[done:i]...), masked...)
			done, changed = end, true
		}
		i = end - 1
	}
	if !changed {
		return doc, false
	}
	return append(out, doc[done:]...), true
}

func (r *Redactor) literal(lit []byte) (masked []byte, changed bool) {
	var text string
	if bytes.IndexByte(lit, '\\') < 0 {
		text = string(lit[1 : len(lit)-1])
	} else if err := json.Unmarshal(lit, &text); err != nil {
		return nil, false // not of a valid document
	}
	clean := r.String(text)
	if clean == text {
		// What its escapes spell is clean; what is written may be a form with
		// escapes of its own, and the caller looks for that.
		return nil, false
	}
	return []byte(`"` + quoted(clean) + `"`), true
}

// literalEnd returns the end of the string literal that begins at i.
func literalEnd(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(doc)
}

type span struct{ from, end int }

// enclosing returns the smallest value of a valid document around doc[from:end].
func enclosing(doc []byte, from, end int) span {
	best := span{0, len(doc)}
	take := func(v span) {
		if v.from <= from && v.end >= end && v.end-v.from < best.end-best.from {
			best = v
		}
	}
	type container struct {
		from   int
		object bool
	}
	var open []container
	name := false // the next string is the name of a member
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; c {
		case '{', '[':
			open = append(open, container{i, c == '{'})
			name = c == '{'
		case '}', ']':
			last := open[len(open)-1]
			open = open[:len(open)-1]
			take(span{last.from, i + 1})
			name = false
		case ',':
			name = open[len(open)-1].object
		case ':':
			name = false
		case '"':
			e := literalEnd(doc, i)
			if !name {
				take(span{i, e})
			}
			i = e - 1
		case ' ', '\t', '\r', '\n':
		default: // a number, true, false or null
			e := i
			for e < len(doc) && bytes.IndexByte([]byte(",]} \t\r\n"), doc[e]) < 0 {
				e++
			}
			take(span{i, e})
			i = e - 1
		}
	}
	return best
}
