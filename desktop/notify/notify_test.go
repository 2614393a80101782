package notify

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"text":             {"118 of 120 passed", "118 of 120 passed"},
		"lines":            {" a\r\nb\tc ", "a b c"},
		"escape sequences": {"\x1b[31mred\x1b[0m", "[31mred[0m"},
		"turned direction": {"a\u202etxt.exe", "atxt.exe"},
		"not UTF-8":        {"a\xff\xfeb", "ab"},
		"other scripts":    {"日本語 ✓ é", "日本語 ✓ é"},
		"long":             {strings.Repeat("é", 20), strings.Repeat("é", 9) + "…"},
		"nothing":          {"\n\x00 ", ""},
	} {
		if got := plain(tt.in, 10); name == "long" && got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		} else if got := plain(tt.in, 100); name != "long" && got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
