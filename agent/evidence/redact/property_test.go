package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive masks text by looking for every pattern at every position.
func naive(r *Redactor, text string) string {
	if r.Empty() {
		return text
	}
	type place struct{ from, end, secret int }
	var places []place
	for i := range len(text) {
		best := place{from: i}
		for _, p := range r.index.patterns {
			if len(p.text) > best.end-i && strings.HasPrefix(text[i:], p.text) {
				best.end, best.secret = i+len(p.text), p.secret
			}
		}
		if best.end == 0 {
			continue
		}
		if n := len(places); n > 0 && i < places[n-1].end {
			last := &places[n-1]
			last.end = max(last.end, best.end)
			if r.index.rank[best.secret] > r.index.rank[last.secret] {
				last.secret = best.secret
			}
			continue
		}
		places = append(places, best)
	}
	var b strings.Builder
	done := 0
	for _, p := range places {
		b.WriteString(text[done:p.from])
		b.WriteString(r.markers[p.secret])
		done = p.end
	}
	b.WriteString(text[done:])
	return b.String()
}

// chunks cuts text into pieces whose lengths are in seed.
func chunks(text string, seed []byte) (out []string) {
	for _, n := range seed {
		k := min(int(n), len(text))
		out = append(out, text[:k])
		text = text[k:]
	}
	return append(out, text)
}

// checkText is what must hold of every text and any set of secrets.
func checkText(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Redactor, text string, seed []byte) string {
	t.Helper()
	var out bytes.Buffer
	w := r.Writer(&out)
	longest := 0
	if !r.Empty() {
		for _, p := range r.index.patterns {
			longest = max(longest, len(p.text))
		}
	}
	for _, piece := range chunks(text, seed) {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("write %q: %d, %v", piece, n, err)
		}
		if w, ok := w.(*writer); ok {
			if len(w.held) >= longest || len(w.held) > 0 && !begins(r, string(w.held)) {
				t.Fatalf("after %q the writer holds back %q, which begins no pattern of up to %d bytes", piece, w.held, longest)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	got := out.String()
	if want := naive(r, text); got != want {
		t.Fatalf("%q in pieces of %v became %q, want %q", text, seed, got, want)
	}
	if whole := r.String(text); whole != got {
		t.Fatalf("%q as a string became %q, as a stream %q", text, whole, got)
	}
	if r.Empty() {
		return got
	}
	clean := true
	for _, p := range r.index.patterns {
		clean = clean && !strings.Contains(text, p.text)
		if strings.Contains(got, p.text) {
			t.Fatalf("%q became %q, which holds %q", text, got, p.text)
		}
	}
	if clean != (got == text) {
		t.Fatalf("%q became %q, and holding no secret is %v", text, got, clean)
	}
	return got
}

func begins(r *Redactor, s string) bool {
	for _, p := range r.index.patterns {
		if len(s) < len(p.text) && strings.HasPrefix(p.text, s) {
			return true
		}
	}
	return false
}

// TestF26_AnyTextAnyPieces uses few letters, so that secrets overlap with each
// other and with themselves.
func TestF26_AnyTextAnyPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		alphabet := rapid.SampledFrom([]string{"abcd", "abcde[]\n", "ab\"\\cd<>", "abcd%+/é"}).Draw(rt, "alphabet")
		letters := []rune(alphabet)
		text := rapid.StringOfN(rapid.RuneFrom(letters), 0, 60, -1)
		var secrets []Secret
		for i, v := range rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom(letters), 0, 20, -1), 0, 4).Draw(rt, "values") {
			secrets = append(secrets, Secret{Name: string(rune('A' + i)), Value: v})
		}
		r := New(secrets)
		var b strings.Builder
		b.WriteString(text.Draw(rt, "before"))
		for range rapid.IntRange(0, 3).Draw(rt, "secrets") {
			if !r.Empty() {
				b.WriteString(rapid.SampledFrom(r.index.patterns).Draw(rt, "pattern").text)
			}
			b.WriteString(text.Draw(rt, "between"))
		}
		checkText(rt, r, b.String(), rapid.SliceOf(rapid.Byte()).Draw(rt, "pieces"))
	})
}

// forms are ways to print a value, written without the package's own code. core
// is what may not come out: of base64 inside of something larger, the
// characters that depend on the value alone.
var forms = []func(before, value, after string) (text, core string){
	func(b, v, a string) (string, string) { return b + v + a, v },
	func(b, v, a string) (string, string) {
		text := base64.StdEncoding.EncodeToString([]byte(b + v + a))
		return text, text[(len(b)*8+5)/6 : (len(b)+len(v))*8/6]
	},
	func(b, v, a string) (string, string) {
		text := base64.URLEncoding.EncodeToString([]byte(b + v + a))
		return text, text[(len(b)*8+5)/6 : (len(b)+len(v))*8/6]
	},
	func(b, v, a string) (string, string) {
		return b + base64.RawURLEncoding.EncodeToString([]byte(v)) + a, base64.RawURLEncoding.EncodeToString([]byte(v))
	},
	func(b, v, a string) (string, string) {
		return hex.EncodeToString([]byte(b + v + a)), hex.EncodeToString([]byte(v))
	},
	func(b, v, a string) (string, string) {
		return url.QueryEscape(b + v + a), url.QueryEscape(v)
	},
	func(b, v, a string) (string, string) {
		return b + url.PathEscape(v) + a, url.PathEscape(v)
	},
	func(b, v, a string) (string, string) {
		v = strings.ToValidUTF8(v, "?")
		q, _ := json.Marshal(v)
		return b + string(q) + a, string(q[1 : len(q)-1])
	},
}

// FuzzF26_Redactor: what comes out never holds a secret nor an encoding of it,
// and text without secrets passes unchanged, in any pieces.
func FuzzF26_Redactor(f *testing.F) {
	f.Add(apiKey, "0123abcd4567", "KEY=", "\n", byte(0), []byte{1, 2, 3})
	f.Add(pemKey, "MHcCAQEE", "+", "", byte(1), []byte{64})
	f.Add(serviceAccount, pemKey, "", "", byte(7), []byte{1})
	f.Add(urlKey, "p@ss/w0rd", "?a=", "&", byte(5), []byte{})
	f.Add("abcd1234[", "0123abcd4567", "abcd1234", "", byte(0), []byte{8, 8})
	f.Add("abcdabcdab", "cdabcdabcd", "abcd", "abcd", byte(0), []byte{3, 3, 3, 3, 3, 3})
	f.Add("\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "ééééabcd", "\xff", "é", byte(4), []byte{5, 200})
	f.Add("eyJhbGciOiJIUzI1NiJ9", "{\"token\":\"abc\\\"defgh\"}", "{\"a\":\"", "\"}", byte(2), []byte{7})
	f.Fuzz(func(t *testing.T, one, two, before, after string, form byte, pieces []byte) {
		if len(one)+len(two) > 2000 || len(before)+len(after) > 2000 {
			t.Skip("the naive search is slow")
		}
		r := New([]Secret{{"ONE", one}, {"TWO", two}})
		value := trim(one)
		if value == "" {
			form = 0
		}
		text, core := forms[int(form)%len(forms)](before, value, after)
		got := checkText(t, r, text, pieces)
		if weak(value) || form%8 == 7 && strings.ToValidUTF8(value, "?") != value {
			return
		}
		// Only base64 of a document with public members shows those.
		if _, partly := sensitiveLeaves(value); (partly || strings.Contains(value, "-----BEGIN ")) && form%8 != 0 {
			return
		}
		if distinct(core) > minDistinct && strings.Contains(got, core) {
			t.Fatalf("%q as %q became %q, which holds %q", value, text, got, core)
		}
		checkDocument(t, r, text)
	})
}

// checkDocument puts text into a JSON document.
func checkDocument(t *testing.T, r *Redactor, text string) {
	t.Helper()
	doc, err := json.Marshal(map[string]any{"text": text, "list": []any{text, 1.5}})
	if err != nil {
		t.Fatal(err)
	}
	got := r.JSON(doc)
	if !json.Valid(got) {
		t.Fatalf("%s became %s, which is no JSON", doc, got)
	}
	if r.Contains(got) {
		t.Fatalf("%s became %s, which holds a secret", doc, got)
	}
	if again := r.JSON(got); !bytes.Equal(again, got) {
		t.Fatalf("%s became %s, and then %s", doc, got, again)
	}
}
