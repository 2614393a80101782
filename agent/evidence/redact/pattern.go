package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// base64Window is how many characters of a base64 text are a pattern each, at
	// every offset: together they cover the text wherever lines break it. Twelve are nine
	// bytes of the value, so that "https:" or "passwo" alone, which values share with
	// ordinary text, are none.
	base64Window = 12
	// hexWindow is the same for hexadecimal digits: eight bytes of the value.
	hexWindow = 16
	// denseBytes is up to which length of an encoded text every offset begins a
	// pattern. Of longer ones every second does, then every third, at most
	// every twelfth, so that a certificate chain does not make 100,000 patterns.
	denseBytes = 8 << 10
)

// wrapColumns are where base64 programs break their lines: coreutils and MIME at
// 76, openssl and PEM at 64.
var wrapColumns = []int{76, 64}

// builder collects the patterns of all secrets.
type builder struct {
	secrets []Secret
	owner   map[string]int // pattern -> secret
}

func (b *builder) patterns() []pattern {
	out := make([]pattern, 0, len(b.owner))
	for text, secret := range b.owner {
		out = append(out, pattern{text: text, secret: secret})
	}
	return out
}

// put makes text a pattern. What two secrets have in common belongs to the
// shorter one: the longer one has other patterns to be known by.
func (b *builder) put(secret int, text string) {
	if len(text) < MinBytes {
		return
	}
	if other, ok := b.owner[text]; ok && len(b.secrets[other].Value) <= len(b.secrets[secret].Value) {
		return
	}
	b.owner[text] = secret
}

// add makes the patterns of a secret.
func (b *builder) add(i int) {
	value := b.secrets[i].Value
	b.texts(i, value)
	b.whole(i, value)
	opaque := []string{value} // what is encoded as a part of something larger
	if leaves, ok := sensitiveLeaves(value); ok {
		opaque = opaque[:0]
		for _, leaf := range leaves {
			b.texts(i, leaf)
			b.whole(i, leaf)
			b.lines(i, leaf)
			opaque = append(opaque, leaf)
			opaque = append(opaque, jsonForms(leaf)...)
		}
	}
	b.lines(i, value)
	for _, text := range opaque {
		for _, part := range withoutBoundaries(text) {
			b.encoded(i, part)
		}
	}
}

// lines makes patterns of the lines that say something.
func (b *builder) lines(i int, value string) {
	if !strings.ContainsAny(value, "\r\n") {
		return
	}
	for _, line := range strings.FieldsFunc(value, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line = trim(line); !weak(line) && !boundary(line) {
			b.texts(i, line)
		}
	}
}

// texts are the forms that a text has in text: itself, with JSON's and with
// URLs' escapes, and with the line ends of the other kind.
func (b *builder) texts(i int, text string) {
	b.put(i, text)
	if strings.Contains(text, "\n") {
		unix := strings.ReplaceAll(text, "\r\n", "\n")
		b.put(i, unix)
		b.put(i, strings.ReplaceAll(unix, "\n", "\r\n"))
	}
	for _, form := range jsonForms(text) {
		b.put(i, form)
	}
	for _, form := range urlForms(text) {
		b.put(i, form)
	}
}

// whole are the encodings of a text that is encoded alone, to the last bit: with
// and without a line end behind it, which echo adds.
func (b *builder) whole(i int, text string) {
	for _, raw := range []string{text, text + "\n"} {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			full := enc.EncodeToString([]byte(raw))
			b.put(i, full)
			b.put(i, strings.TrimRight(full, "="))
			for _, columns := range wrapColumns {
				if len(full) > columns {
					b.put(i, wrap(full, columns, "\n"))
					b.put(i, wrap(full, columns, `\n`))
				}
			}
		}
	}
}

func wrap(s string, columns int, end string) string {
	var lines []string
	for line := range slices.Chunk([]byte(s), columns) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, end)
}

// encoded are the patterns of a text that is encoded as a part of something
// larger. Base64 makes four characters of three bytes, so there are three ways in
// which the text can lie in the threes; the characters at its ends that depend
// on what surrounds it are left out.
func (b *builder) encoded(i int, text string) {
	if len(text) < MinBytes {
		return
	}
	for before := range 3 {
		raw := append(make([]byte, before), text...)
		from := []int{0, 2, 3}[before]
		upto := len(raw) * 8 / 6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			b.windows(i, enc.EncodeToString(raw)[from:upto], base64Window, 1)
		}
	}
	digits := hex.EncodeToString([]byte(text))
	b.windows(i, digits, hexWindow, 2)
	b.windows(i, strings.ToUpper(digits), hexWindow, 2)
}

// windows makes patterns of all pieces of text that have size bytes, at offsets
// that are multiples of step. A shorter text is one pattern.
func (b *builder) windows(i int, text string, size, step int) {
	if len(text) <= size {
		b.put(i, text)
		return
	}
	step *= min(1+len(text)/denseBytes, size/step)
	put := func(w string) {
		if distinct(w) >= minDistinct { // spaces and zeros are encoded everywhere
			b.put(i, w)
		}
	}
	for at := 0; at+size <= len(text); at += step {
		put(text[at : at+size])
	}
	put(text[len(text)-size:])
}

// jsonForms are what JSON encoders make of text inside of quotes, and each of
// these once more for JSON inside of JSON. Encoders differ in whether they escape
// what HTML could misread (Go), slashes (PHP) and all that is not ASCII (Python).
func jsonForms(text string) []string {
	if !utf8.ValidString(text) {
		return nil
	}
	forms := []string{quoted(text)}
	for _, escape := range []func(string) string{htmlSafe.Replace, slashes.Replace, asciiOnly} {
		for _, f := range forms[:len(forms):len(forms)] {
			forms = append(forms, escape(f))
		}
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	for _, f := range forms[:len(forms):len(forms)] {
		forms = append(forms, quoted(f))
	}
	return slices.DeleteFunc(forms, func(f string) bool { return f == text })
}

var (
	htmlSafe = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)
	slashes  = strings.NewReplacer("/", `\/`)
)

// quoted is text as a JSON string without its quotes and with no escape that is
// not needed.
func quoted(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	return inner(strings.TrimSuffix(b.String(), "\n"))
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

func asciiOnly(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// urlForms are what the escaping functions of URL libraries make of text. They
// differ in what they leave alone and in the case of the digits.
func urlForms(text string) []string {
	forms := []string{url.QueryEscape(text), url.PathEscape(text)}
	for _, keep := range []string{
		"-_.~",                 // RFC 3986, most libraries
		"-_.~/",                // Python's quote
		"-_.!~*'()",            // JavaScript's encodeURIComponent
		"-_.",                  // older libraries
		"-_.!~*'();/?:@&=+$,#", // JavaScript's encodeURI
	} {
		forms = append(forms, percent(text, keep))
	}
	for _, f := range forms[:len(forms):len(forms)] {
		forms = append(forms, percentDigits.ReplaceAllStringFunc(f, strings.ToLower))
	}
	slices.Sort(forms)
	return slices.DeleteFunc(slices.Compact(forms), func(f string) bool { return f == text })
}

var percentDigits = regexp.MustCompile("%[0-9A-F]{2}")

func percent(text, keep string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
