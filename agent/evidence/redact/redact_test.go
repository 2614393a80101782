package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// Secrets of the kinds that people have. None of them was ever in use.
const (
	apiKey = "sk-ant-api03-Zx81mQ_0vLw7RkT2yHc9Gd4Ns6Pb5Jf3Xa-AbCdEfGh1234567890ijklmnopQRSTuvwxYZ-0aA1bB2cC3dAA"
	urlKey = "p@ss/w0rd+with&odd=chars?\"quoted\"\\slash é"

	pemKey = "-----BEGIN EC PRIVATE KEY-----\n" +
		"MHcCAQEEIK5u1q3vYJ0mW8c4TnX2eLrB7dHsGfZk9aPoUyQwEtRhoAoGCCqGSM49\n" +
		"AwEHoUQDQgAEx7Vb3NcLq2MfKjR8wTzPyGh5sDaXvEoIuBnYrWm1CkQ6tJ4lZe0S\n" +
		"gFpHiOxUdA9yVb2c==\n" +
		"-----END EC PRIVATE KEY-----\n"
)

// serviceAccount is a JSON document with a key in PEM inside.
var serviceAccount = `{
  "type": "service_account",
  "project_id": "everdict-fixture",
  "private_key_id": "9f2c4e6a8b0d1f3a5c7e9b1d3f5a7c9e0b2d4f6a",
  "private_key": ` + string(must(json.Marshal(pemKey))) + `,
  "client_email": "robot@everdict-fixture.example",
  "auth_uri": "https://accounts.example.com/o/oauth2/auth"
}`

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func quote(s string) string { return string(must(json.Marshal(s))) }

// b64 is base64 of text inside of something larger, one way for each alignment.
func b64(text string) (out []string) {
	for _, before := range []string{"", "k", "ke"} {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(before+text+" and more")),
			base64.URLEncoding.EncodeToString([]byte(before+text+" and more")))
	}
	return out
}

func wrapped(columns int, text string) string {
	var b strings.Builder
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(text))), columns) {
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// decoded is what anybody can read out of s: itself, and every run of base64 or
// hexadecimal characters in it, decoded at each offset.
func decoded(s string) []string {
	all := []string{s}
	for _, c := range []string{"+/", "-_"} {
		run := func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(c, r))
		}
		enc := base64.RawStdEncoding
		if c == "-_" {
			enc = base64.RawURLEncoding
		}
		for _, f := range strings.FieldsFunc(s, run) {
			for from := 0; from < 4 && from < len(f); from++ {
				whole := f[from : from+(len(f)-from)/4*4]
				if b, err := enc.DecodeString(whole); err == nil {
					all = append(all, string(b))
				}
			}
			for from := 0; from < 2 && from < len(f); from++ {
				if b, err := hex.DecodeString(f[from : from+(len(f)-from)/2*2]); err == nil {
					all = append(all, string(b))
				}
			}
		}
	}
	return all
}

// TestF26_EveryFormIsMasked prints secrets in every way that the package
// promises, in one piece and split at every byte, and looks for pieces of the value in
// what comes out.
func TestF26_EveryFormIsMasked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		// pieces of the value that may not be in what comes out.
		pieces []string
		out    func(value string) []string // what is printed
		// kept is what has to stay.
		kept string
	}{
		{"plain", apiKey, []string{apiKey[13:33], apiKey[60:80]}, func(v string) []string { return []string{v, "x" + v + "y", v + v, "\x00" + v + "\xff"} }, ""},
		{"in a line", apiKey, []string{apiKey[13:33]}, func(v string) []string { return []string{"export KEY=" + v + "\nnext\n"} }, "\nnext\n"},
		{"trailing newline in the value", apiKey + "\n", []string{apiKey[13:33]}, func(v string) []string { return []string{"<" + strings.TrimSpace(v) + ">"} }, ">"},
		{"base64", apiKey, []string{apiKey[24:36], apiKey[60:72]}, b64, ""},
		{"base64 alone", apiKey, []string{apiKey[:12], apiKey[len(apiKey)-3:]}, func(v string) []string {
			return []string{base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v + "\n"))}
		}, ""},
		{"base64 in lines", apiKey, []string{apiKey[:12], apiKey[48:60], apiKey[len(apiKey)-6:]}, func(v string) []string {
			return []string{wrapped(76, v), wrapped(64, v+"\n"), quote(wrapped(76, v))}
		}, ""},
		{"base64 in lines, inside of a file", apiKey, []string{apiKey[24:33], apiKey[60:69], apiKey[70:79]}, func(v string) (all []string) {
			for n := range 80 {
				all = append(all, wrapped(76, strings.Repeat("#", n)+v+"\n# end of file\n"))
			}
			return all
		}, ""},
		{"hexadecimal", apiKey, []string{apiKey[13:33]}, func(v string) []string {
			return []string{hex.EncodeToString([]byte(v)), fmt.Sprintf("%X", v), fmt.Sprintf("ff%xff", v)}
		}, ""},
		{"hexadecimal in lines", apiKey, []string{apiKey[40:52]}, func(v string) (all []string) {
			var b strings.Builder
			for line := range slices.Chunk([]byte(hex.EncodeToString([]byte(v))), 60) {
				fmt.Fprintf(&b, "%s\n", line)
			}
			return []string{b.String()}
		}, ""},
		{"URL", urlKey, []string{"w0rd", "odd"}, func(v string) []string {
			return []string{"?k=" + url.QueryEscape(v) + "&x", "/" + url.PathEscape(v) + "/y", strings.ToLower(url.PathEscape(v)) + url.PathEscape(v)}
		}, ""},
		{"JSON", urlKey, []string{"w0rd", "odd"}, func(v string) []string {
			return []string{quote(v), quote(quote(v)), strings.ReplaceAll(quote(v), "/", `\/`), `"p@ss\/w0rd+with&odd=chars?\"quoted\"\\slash \u00e9"`}
		}, `"`},
		{"PEM", pemKey, []string{"MHcCAQEE", "AwEHoUQD", "gFpHiOxU"}, func(v string) []string {
			return []string{v, strings.ReplaceAll(v, "\n", "\r\n"), quote(v), quote(quote(v)), "+" + strings.ReplaceAll(v, "\n", "\n+")}
		}, ""},
		{"PEM, one line of it", pemKey, []string{"AwEHoUQD", "gFpHiOxU"}, func(v string) []string {
			lines := strings.Split(v, "\n")
			return []string{"> " + lines[2] + " <", lines[3]}
		}, ""},
		{"PEM, base64", pemKey, []string{"MHcCAQEEIK5u1q3vYJ0", "AwEHoUQDQgAEx7Vb3N", "cLq2MfKjR8wT"}, b64, ""},
		{"service account", serviceAccount, []string{"MHcCAQEE", "AwEHoUQD", "gFpHiOxU", "9f2c4e6a"}, func(v string) []string {
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(v)); err != nil {
				panic(err)
			}
			return []string{v, compact.String(), quote(v), pemKey, quote(pemKey)}
		}, ""},
		{"service account, base64", serviceAccount, []string{"MHcCAQEEIK5u1q3vYJ0", "AwEHoUQDQgAEx7Vb3N", "cLq2MfKjR8wT", "9f2c4e6a8b0d1f"}, func(v string) []string {
			return append(b64(v), wrapped(76, v), base64.StdEncoding.EncodeToString([]byte(v)))
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := New([]Secret{{"THE_KEY", tt.value}})
			for _, text := range tt.out(tt.value) {
				got := r.String(text)
				if !strings.Contains(got, "[redacted:THE_KEY]") || !strings.Contains(got, tt.kept) {
					t.Fatalf("masking %q gave %q, want a marker and %q", text, got, tt.kept)
				}
				for _, piece := range tt.pieces {
					for _, d := range append(decoded(got), decoded(strings.NewReplacer("\n", "", `\n`, "").Replace(got))...) {
						if strings.Contains(d, piece) {
							t.Fatalf("masking %q gave %q, in which one can read %q", text, got, piece)
						}
					}
				}
				for at := range len(text) {
					if split := stream(t, r, text[:at], text[at:]); split != got {
						t.Fatalf("%q split at %d gave %q, want %q", text, at, split, got)
					}
				}
			}
		})
	}
}

// stream writes pieces through a Writer.
func stream(t testing.TB, r *Redactor, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, p := range pieces {
		if n, err := io.WriteString(w, p); n != len(p) || err != nil {
			t.Fatalf("write %q: %d, %v", p, n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return out.String()
}

// TestF26_WhatIsNotMasked: a value that is in every text hides nothing and costs
// the evidence.
func TestF26_WhatIsNotMasked(t *testing.T) {
	t.Parallel()
	text := "a test of PASSWORD in production aaaaaaaaaaaaaaaa: -----BEGIN EC PRIVATE KEY-----\n"
	r := New([]Secret{{"EMPTY", ""}, {"BLANK", " \n\t"}, {"A", "a"}, {"TEST", "test"}, {"SEVEN", "a1b2c3d"}, {"WORD", "Password"},
		{"RUN", "aaaaaaaaaaaaaaaa"}, {"TWO", "0101010101"}, {"PEM", pemKey}})
	if got := r.String(text); got != text {
		t.Errorf("got %q, want %q unchanged", got, text)
	}
	if got, want := r.NotMaskable(), []string{"A", "TEST", "SEVEN", "WORD", "RUN", "TWO"}; !slices.Equal(got, want) {
		t.Errorf("not maskable: got %q, want %q", got, want)
	}
	if r := New([]Secret{{"A", "a"}, {"EMPTY", ""}}); !r.Empty() {
		t.Error("a redactor of weak values masks something")
	}
	eight := New([]Secret{{"EIGHT", "a1b2c3d4"}})
	if got, want := eight.String("a1b2c3d a1b2c3d4"), "a1b2c3d [redacted:EIGHT]"; got != want {
		t.Errorf("eight bytes: got %q, want %q", got, want)
	}
	for line := range strings.Lines("{\n  \"type\": \"authorized_user\"\n}\n") {
		if r := New([]Secret{{"SA", serviceAccount}}); r.String(line) != line {
			t.Errorf("line %q of other JSON became %q", line, r.String(line))
		}
	}
}

func TestF26_OverlappingSecrets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		secrets []Secret
		text    string
		want    string
	}{
		{"one contains the other", []Secret{{"SHORT", "0123abcd4567"}, {"LONG", "key-0123abcd4567-end"}},
			"0123abcd4567 key-0123abcd4567-end key-0123abcd4567-en", "[redacted:SHORT] [redacted:LONG] key-[redacted:SHORT]-en"},
		{"one begins with the other", []Secret{{"SHORT", "0123abcd"}, {"LONG", "0123abcd-efgh"}},
			"0123abcd-efgh 0123abcd-efg", "[redacted:LONG] [redacted:SHORT]-efg"},
		{"one ends in the other's beginning", []Secret{{"ONE", "0123abcd4567"}, {"TWO", "4567efgh89ijkl"}},
			"<0123abcd4567efgh89ijkl>", "<[redacted:TWO]>"},
		{"side by side", []Secret{{"ONE", "0123abcd4567"}, {"TWO", "efgh89ijkl"}},
			"0123abcd4567efgh89ijkl", "[redacted:ONE][redacted:TWO]"},
		{"overlaps itself", []Secret{{"ONE", "abcdabcdab"}}, "-abcdabcdabcdabcdab-", "-[redacted:ONE]-"},
		{"the same twice", []Secret{{"ONE", "0123abcd4567"}, {"TWO", "0123abcd4567"}}, "0123abcd4567", "[redacted:ONE]"},
		{"an end that stays open", []Secret{{"ONE", "0123abcd4567"}}, "0123abcd456", "0123abcd456"},
		{"a false start", []Secret{{"ONE", "0123abcd4567"}}, "0123ab0123abcd0123abcd45670123", "0123ab0123abcd[redacted:ONE]0123"},
		{"a name that is no word", []Secret{{"A \"B\"\n]", "0123abcd4567"}}, "0123abcd4567", "[redacted:A__B___]"},
		{"a value that is a name", []Secret{{"DEPLOY_TOKEN", "0123abcd4567"}, {"OTHER", "DEPLOY_TOKEN"}},
			"0123abcd4567 DEPLOY_TOKEN", "[redacted] [redacted:OTHER]"},
		{"a value that a marker would complete", []Secret{{"ONE", "abcd1234["}, {"TWO", "0123abcd4567"}},
			"abcd12340123abcd4567", "abcd1234<redacted>"},
		{"a value that a marker would begin", []Secret{{"ONE", "]abcd1234"}, {"TWO", "0123efgh4567"}},
			"0123efgh4567abcd1234", "<redacted>abcd1234"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := New(tt.secrets)
			if got := r.String(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := stream(t, r, strings.Split(tt.text, "")...); got != tt.want {
				t.Errorf("byte by byte: got %q, want %q", got, tt.want)
			}
			if want := int64(2 * strings.Count(tt.want, "redacted")); r.Count() != want {
				t.Errorf("counted %d markers, want %d", r.Count(), want)
			}
		})
	}
}

// TestF26_LiveOutputDoesNotWait: what cannot become a secret is written at once.
func TestF26_LiveOutputDoesNotWait(t *testing.T) {
	t.Parallel()
	r := New([]Secret{{"KEY", apiKey}, {"PEM", pemKey}})
	for _, tt := range []struct{ name, write, want string }{
		{"a line", "Building the index of 1234 files\n", "Building the index of 1234 files\n"},
		{"a question", "Continue? [y/N] ", "Continue? [y/N] "},
		{"the beginning of a key", "key: " + apiKey[:50], "key: "},
		{"a key", "key: " + apiKey + "\n", "key: [redacted:KEY]\n"},
		{"a key that went another way", "key: " + apiKey[:50] + "!\n", "key: " + apiKey[:50] + "!\n"},
		{"the first line of a key", strings.SplitAfter(pemKey, "\n")[0], ""},
		{"two lines of a key", strings.Join(strings.SplitAfter(pemKey, "\n")[:2], "") + "\nother\n", "-----BEGIN EC PRIVATE KEY-----\n[redacted:PEM]\n\nother\n"},
	} {
		var out bytes.Buffer
		w := r.Writer(&out)
		if _, err := io.WriteString(w, tt.write); err != nil {
			t.Fatal(err)
		}
		if out.String() != tt.want {
			t.Errorf("%s: after Write of %q there is %q, want %q", tt.name, tt.write, out.String(), tt.want)
		}
	}
}

func TestP12_WriterReportsErrors(t *testing.T) {
	t.Parallel()
	r := New([]Secret{{"KEY", apiKey}})
	boom := errors.New("disk full")
	w := r.Writer(failing{boom})
	for range 2 {
		if n, err := io.WriteString(w, "text\n"); n != 0 || !errors.Is(err, boom) {
			t.Errorf("write: %d, %v, want 0 and %v", n, err, boom)
		}
	}
	if err := w.Close(); !errors.Is(err, boom) {
		t.Errorf("close: %v, want %v", err, boom)
	}
	w = r.Writer(failing{boom})
	if _, err := io.WriteString(w, apiKey[:9]); err != nil {
		t.Errorf("write of what is held back: %v", err)
	}
	if err := w.Close(); !errors.Is(err, boom) {
		t.Errorf("close with something held back: %v, want %v", err, boom)
	}
	var out bytes.Buffer
	w = r.Writer(&out)
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
	if _, err := io.WriteString(w, "late"); !errors.Is(err, io.ErrClosedPipe) || out.Len() > 0 {
		t.Errorf("write after close: %v, wrote %q", err, out.String())
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestP12_NothingToMaskCostsNothing: no copy, no allocation, the same bytes.
func TestP12_NothingToMaskCostsNothing(t *testing.T) {
	for name, r := range map[string]*Redactor{"nil": nil, "empty": New(nil)} {
		p, doc := []byte("some output"), json.RawMessage(`{"a":1}`)
		var out sliceWriter
		out = make([]byte, 0, 1<<16)
		w := r.Writer(&out)
		if n := testing.AllocsPerRun(100, func() {
			out = out[:0]
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Errorf("%s: write: %d, %v", name, n, err)
			}
			if &r.Bytes(p)[0] != &p[0] || &r.JSON(doc)[0] != &doc[0] || r.String("text of some length") != "text of some length" {
				t.Errorf("%s: changed something", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if err := w.Close(); err != nil || string(out) != "some output" || r.Count() != 0 || r.Contains(p) || r.NotMaskable() != nil {
			t.Errorf("%s: close %v, wrote %q, count %d", name, err, out, r.Count())
		}
	}
}

// TestP12_LargeWritesAreNotKept: a writer holds a secret's length, not a Write's.
func TestP12_LargeWritesAreNotKept(t *testing.T) {
	t.Parallel()
	w := New([]Secret{{"KEY", apiKey}}).Writer(io.Discard).(*writer)
	for range 3 {
		if _, err := w.Write(append(bytes.Repeat([]byte("x"), 1<<20), apiKey[:20]...)); err != nil {
			t.Fatal(err)
		}
		if len(w.held) != 20 || cap(w.held) > maxIdle {
			t.Fatalf("%d bytes held in a buffer of %d, want 20 in at most %d", len(w.held), cap(w.held), maxIdle)
		}
	}
}

func TestP12_OneByteReads(t *testing.T) {
	t.Parallel()
	r := New([]Secret{{"KEY", apiKey}})
	text := strings.Repeat("log line\n"+apiKey+"\n", 50)
	var out bytes.Buffer
	w := r.Writer(&out)
	if _, err := io.Copy(w, iotest.OneByteReader(strings.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("log line\n[redacted:KEY]\n", 50); out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestP12_RunnerLogIsMasked(t *testing.T) {
	t.Parallel()
	r := New([]Secret{{"KEY", apiKey}})
	var out bytes.Buffer
	log := slog.New(r.Handler(slog.NewTextHandler(&out, nil))).With("path", "/tmp/"+apiKey).WithGroup("g")
	log.Error("cannot remove "+apiKey, "err", fmt.Errorf("unlink %s: busy", apiKey), "n", 7, slog.Group("in", "x", apiKey), "b", []string{apiKey})
	if got := out.String(); strings.Contains(got, apiKey[13:33]) || strings.Count(got, "[redacted:KEY]") != 5 || !strings.Contains(got, "g.n=7") {
		t.Errorf("the log says %s", got)
	}
	for _, text := range []string{fmt.Sprint(Secret{"KEY", apiKey}), fmt.Sprintf("%+v %#v", Secret{"KEY", apiKey}, []Secret{{"KEY", apiKey}}),
		string(must(json.Marshal([]Secret{{"KEY", apiKey}})))} {
		if strings.Contains(text, apiKey) || !strings.Contains(text, "KEY (") {
			t.Errorf("a Secret prints its value: %s", text)
		}
	}
}
