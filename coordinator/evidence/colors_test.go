package evidence_test

import (
	"testing"

	"github.com/everdict/everdict/coordinator/evidence"
)

// P11: with Colors a view keeps the sequences that choose colours, whole, and nothing
// else that controls a terminal, in whatever pieces the output comes.
func TestP11_SanitizerKeepsColors(t *testing.T) {
	t.Parallel()
	long := "\x1b["
	for range 100 {
		long += "1;"
	}
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m":               "\x1b[31mred\x1b[0m",
		"\x1b[38;2;1;2;3mx\x1b[m":          "\x1b[38;2;1;2;3mx\x1b[m",
		"\u009b1mbold":                     "\x1b[1mbold",
		"\x1b[2Jgone\x1b[10;10Hthere":      "gonethere",
		"\x1b[?25mx\x1b[>4;2my":            "xy",
		"\x1b]8;;http://x\x07link\x1b]8;;": "link",
		"\x1b[31\nm":                       "\nm",
		long + "mx":                        "x",
		"\x1b[31":                          "",
		"a\r\x1b[1mb":                      "a\n\x1b[1mb",
	} {
		for size := 1; size <= len(in); size++ {
			s := evidence.Sanitizer{Colors: true}
			var got []byte
			for i := 0; i < len(in); i += size {
				got = s.Append(got, []byte(in[i:min(i+size, len(in))]))
			}
			if got = s.Flush(got); string(got) != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, got, want)
				break
			}
		}
	}
}
