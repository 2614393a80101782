package scripted

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func frame(in string, portion int) []string {
	var got []string
	text := ""
	flush := func() {
		if text != "" {
			got = append(got, "text "+text)
			text = ""
		}
	}
	f := newFrames("MARK", func(b []byte) { text += string(b) }, func(b []byte) { flush(); got = append(got, "frame "+string(b)) })
	for len(in) > 0 {
		n := min(portion, len(in))
		f.Write([]byte(in[:n]))
		in = in[n:]
	}
	f.Close()
	flush()
	return got
}

func TestFrames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     []string
	}{
		{"text", "one\ntwo", []string{"text one\ntwo"}},
		{"frames", "a\x1eMARK:b 1\nout\x1eMARK:e 1 0\n\x1eMARK:z\nb", []string{"text a", "frame b 1", "text out", "frame e 1 0", "frame z", "text b"}},
		{"another mark", "\x1eMARX:b 1\n\x1e\x1eMARK:z\n", []string{"text \x1eMARX:b 1\n\x1e", "frame z"}},
		{"a frame without end", "x\x1eMARK:b", []string{"text x\x1eMARK:b"}},
		{"a beginning at the end", "x\x1eMAR", []string{"text x\x1eMAR"}},
		{"words too long", "\x1eMARK:" + strings.Repeat("y", 100) + "\n", []string{"text \x1eMARK:" + strings.Repeat("y", 100) + "\n"}},
	}
	for _, tt := range tests {
		for _, portion := range []int{1, 2, 5, 1000} {
			if d := cmp.Diff(tt.want, frame(tt.in, portion)); d != "" {
				t.Errorf("%s in portions of %d (-want +got):\n%s", tt.name, portion, d)
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add("a\x1eMARK:b 1\nout\x1eMARK:e 1 0\n", 3)
	f.Add("\x1e\x1eMARK\x1eMARK:", 1)
	f.Fuzz(func(t *testing.T, in string, portion int) {
		if portion < 1 || portion > 100 {
			portion = 1
		}
		if d := cmp.Diff(frame(in, len(in)+1), frame(in, portion)); d != "" {
			t.Errorf("in portions of %d it reads otherwise:\n%s", portion, d)
		}
	})
}

// Whatever a task or a script says, its program is one that a shell can be given:
// text from outside stands in quotes only.
func FuzzPlan(f *testing.F) {
	f.Add("Create ok.txt containing the text done. Then delete 'a b' and replace \"x\" with `y` in z")
	f.Add("create a b\nrun echo hi\nthink input=3 cost=0.5\nfork hold x\nprint 3k raw stderr\ncrash TERM")
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range []plan{parseTask(s), scriptOrEmpty(s)} {
			for _, st := range p.steps {
				if st.tool == "" && st.bare == "" && st.say == "" && st.think == nil {
					t.Fatalf("a step that does nothing: %+v", st)
				}
			}
			if program := p.program("MARK"); !strings.HasSuffix(program, "m z\nexit 0\n") {
				t.Fatalf("program %q", program)
			}
			if strings.ContainsAny(strings.Join(p.unclear, ""), "\x01\x02") {
				t.Fatalf("a placeholder is left in %q", p.unclear)
			}
		}
	})
}

func scriptOrEmpty(s string) plan {
	p, _ := parseScript(s)
	return p
}
