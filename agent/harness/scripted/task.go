package scripted

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// parseTask understands simple file tasks in plain English:
//
//	Create ok.txt containing the text done.
//	Create a.txt with "one" and b/c.txt with "two", then delete old.txt.
//	Append a line to notes.md.   Replace foo with bar in a.go and b.go.
//	Delete x.txt, y.txt and z.txt.   Make a directory build.
//
// Text in double or single quotes (or backquotes) is taken exactly, \n in double
// quotes is a line break; text without quotes ends with its sentence, so that one
// that holds a full stop or " and " needs quotes. Created and appended text gets a
// final line break. What is not understood is listed, the rest is done.
func parseTask(task string) plan {
	p := plan{summary: true}
	t := &texts{}
	for _, sentence := range sentences(t.hide(task)) {
		for _, clause := range clauses(sentence) {
			steps, ok := parseClause(clause, t)
			if !ok {
				p.unclear = append(p.unclear, t.show(clause))
				continue
			}
			p.steps = append(p.steps, steps...)
		}
	}
	return p
}

// texts holds the quoted parts of a task while its grammar is looked at: each
// stands as \x01N\x02 in the hidden form, which no keyword can match.
type texts struct{ quoted []quotedText }

type quotedText struct{ source, value string }

// A single quote opens only after white space and closes only before a
// non-letter: it also is an apostrophe.
var quotations = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|“[^”]*”")
var singles = regexp.MustCompile(`(^|[\s(])'([^']*)'`)

func (t *texts) hide(task string) string {
	task = strings.NewReplacer("\x01", "", "\x02", "").Replace(task)
	task = quotations.ReplaceAllStringFunc(task, func(q string) string {
		value := strings.Trim(q, "“”")
		if q[0] == '`' {
			value = strings.Trim(q, "`")
		}
		if q[0] == '"' {
			if v, err := strconv.Unquote(strings.ReplaceAll(q, "\n", `\n`)); err == nil {
				value = v
			} else {
				value = q[1 : len(q)-1]
			}
		}
		return t.put(q, value)
	})
	return singles.ReplaceAllStringFunc(task, func(q string) string {
		m := singles.FindStringSubmatch(q)
		// Other quotations inside it are already hidden.
		value := t.show(m[2])
		return m[1] + t.put("'"+value+"'", value)
	})
}

func (t *texts) put(source, value string) string {
	t.quoted = append(t.quoted, quotedText{source, value})
	return "\x01" + strconv.Itoa(len(t.quoted)-1) + "\x02"
}

var hidden = regexp.MustCompile("\x01(\\d+)\x02")

func (t *texts) expand(s string, part func(quotedText) string) string {
	return hidden.ReplaceAllStringFunc(s, func(m string) string {
		i, _ := strconv.Atoi(m[1 : len(m)-1])
		return part(t.quoted[i])
	})
}

// show is the clause as the user wrote it, value what its quotations mean.
func (t *texts) show(s string) string {
	return t.expand(s, func(q quotedText) string { return q.source })
}
func (t *texts) value(s string) string {
	return t.expand(s, func(q quotedText) string { return q.value })
}

var sentenceEnd = regexp.MustCompile(`[.!?;]+(?:\s+|$)|\n+`)

// bullet is what stands before an item of a list.
var bullet = regexp.MustCompile(`(?m)^[ \t]*(?:[-*•]|\d+[.)])[ \t]+`)

func sentences(s string) []string {
	return nonEmpty(sentenceEnd.Split(bullet.ReplaceAllString(s, ""), -1))
}

// A clause begins where a conjunction stands before a verb. "add" and "write"
// after "and" are verbs too; nouns of these names need quotes.
var clauseStart = regexp.MustCompile(`(?i)(?:,\s*and\s+then|,\s*then|,\s*and|\s+and\s+then|\s+then|\s+and|,)\s+((?:please\s+)?(?:create|write|make|add|append|replace|change|delete|remove)\s)`)

var onlyPlace = regexp.MustCompile(polite + `in\s+` + theFile + `\S+$`)

func clauses(sentence string) []string {
	var out []string
	from := 0
	for _, m := range clauseStart.FindAllStringSubmatchIndex(sentence, -1) {
		if onlyPlace.MatchString(sentence[from:m[0]]) {
			continue // "In a.txt, replace x with y" is one clause
		}
		out = append(out, sentence[from:m[0]])
		from = m[2]
	}
	return nonEmpty(append(out, sentence[from:]))
}

func nonEmpty(in []string) []string {
	var out []string
	for _, s := range in {
		if s = strings.Trim(s, " \t\r\n"); s != "" {
			out = append(out, s)
		}
	}
	return out
}

const (
	polite  = `(?is)^(?:please\s+|then\s+|first,?\s+|next,?\s+|finally,?\s+|now\s+)*`
	article = `(?:(?:a|an|the)\s+)?`
	// theFile is what may stand before a path.
	theFile = article + `(?:(?:new|text|existing)\s+)*(?:files?\s+)?(?:(?:called|named)\s+)?`
	// containing introduces a content.
	containing = `\s+(?:that\s+contains|which\s+contains|containing|contains|with|holding|saying|that\s+says|whose\s+contents?\s+(?:is|are))\s+`
	theText    = `(?:(?:exactly|only|just)\s+)?(?:(?:the|a)\s+)?(?:single\s+)?(?:(?:text|contents?|words?|line|string|sentence)\b\s*:?\s*)?`
)

var (
	writeInto  = regexp.MustCompile(polite + `write\s+` + theText + `(.+?)\s+(?:in)?to\s+` + theFile + `(\S+)$`)
	makeDir    = regexp.MustCompile(polite + `(?:create|make|add)\s+` + article + `(?:(?:new|empty)\s+)*(?:directory|folder|dir)\s+(?:(?:called|named)\s+)?(.+)$`)
	makeEmpty  = regexp.MustCompile(polite + `(?:create|make|add)\s+` + article + `(?:new\s+)?empty\s+(?:text\s+)?files?\s+(?:(?:called|named)\s+)?(.+)$`)
	create     = regexp.MustCompile(polite + `(?:create|write|make|add)\s+` + theFile + `(.+)$`)
	appendTo   = regexp.MustCompile(polite + `(?:append|add)\s+` + theText + `(.+?)\s+(?:at\s+the\s+end\s+of|to\s+the\s+end\s+of|to)\s+` + theFile + `(.+)$`)
	replaceIn  = regexp.MustCompile(polite + `(?:replace|change)\s+(?:every\s+|all\s+(?:occurrences\s+of\s+)?)?` + theText + `(.+?)\s+(?:with|by|to|into)\s+` + theText + `(.+?)\s+in\s+` + theFile + `(.+)$`)
	inReplace  = regexp.MustCompile(polite + `in\s+` + theFile + `(\S+?),?\s+(?:replace|change)\s+` + theText + `(.+?)\s+(?:with|by|to|into)\s+` + theText + `(.+)$`)
	deletePath = regexp.MustCompile(polite + `(?:delete|remove)\s+` + article + `(?:(?:files?|directory|folder|dir)\s+)?(.+)$`)
	contents   = regexp.MustCompile(`(?is)` + containing + theText)
	nextFile   = regexp.MustCompile(`(?is)(?:,\s*and|,|\s+and)\s+` + theFile + "(\\S+)" + containing)
	listed     = regexp.MustCompile(`(?i)\s*,\s*and\s+|\s*,\s*|\s+and\s+`)
)

func parseClause(clause string, t *texts) ([]step, bool) {
	if m := writeInto.FindStringSubmatch(clause); m != nil {
		return each(m[2], t, func(p string) step { return createStep(p, lined(t, m[1])) })
	}
	if m := makeDir.FindStringSubmatch(clause); m != nil {
		return each(m[1], t, mkdirStep)
	}
	if m := makeEmpty.FindStringSubmatch(clause); m != nil {
		return each(m[1], t, func(p string) step { return createStep(p, "") })
	}
	if m := replaceIn.FindStringSubmatch(clause); m != nil {
		return parseReplacement(m[3], m[1], m[2], t)
	}
	if m := inReplace.FindStringSubmatch(clause); m != nil {
		return parseReplacement(m[1], m[2], m[3], t)
	}
	if m := deletePath.FindStringSubmatch(clause); m != nil {
		return each(m[1], t, deleteStep)
	}
	if m := appendTo.FindStringSubmatch(clause); m != nil && !contents.MatchString(m[2]) {
		return each(m[2], t, func(p string) step { return appendStep(p, lined(t, m[1])) })
	}
	if m := create.FindStringSubmatch(clause); m != nil {
		return parseCreate(m[1], t)
	}
	return nil, false
}

func parseReplacement(paths, old, new string, t *texts) ([]step, bool) {
	old, new = t.value(old), t.value(new)
	if old == "" || strings.ContainsAny(old+new, "\n\x00") {
		return nil, false
	}
	return each(paths, t, func(p string) step { return replaceStep(p, old, new) })
}

// parseCreate reads "a.txt and b.txt containing x and c.txt containing y".
func parseCreate(rest string, t *texts) ([]step, bool) {
	var steps []step
	for {
		m := contents.FindStringIndex(rest)
		if m == nil {
			return nil, false // a file without a content: what should be in it?
		}
		content, after := rest[m[1]:], ""
		if next := nextFile.FindStringSubmatchIndex(content); next != nil {
			content, after = content[:next[0]], content[next[2]:]
		}
		got, ok := each(rest[:m[0]], t, func(p string) step { return createStep(p, lined(t, content)) })
		if !ok || strings.TrimSpace(content) == "" {
			return nil, false
		}
		steps = append(steps, got...)
		if after == "" {
			return steps, true
		}
		rest = after
	}
}

// lined is a text with a final line break.
func lined(t *texts, s string) string {
	return strings.TrimSuffix(t.value(strings.TrimSpace(s)), "\n") + "\n"
}

// each makes one step per path of a list such as "a, b and c". The agent works
// inside its workspace only, and a path with a space needs quotes.
func each(list string, t *texts, make func(path string) step) ([]step, bool) {
	var steps []step
	for _, item := range listed.Split(strings.TrimSpace(list), -1) {
		path := strings.TrimPrefix(t.value(item), "./")
		if strings.ContainsAny(item, " \t\n") || protocol.CheckFilePath(path) != nil {
			return nil, false
		}
		steps = append(steps, make(path))
	}
	return steps, len(steps) > 0
}
