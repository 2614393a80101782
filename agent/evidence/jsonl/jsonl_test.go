package jsonl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func split(in string, portion, max int) []string {
	var got []string
	s := Splitter{Max: max, Line: func(line []byte, dropped int64) {
		if dropped > 0 {
			got = append(got, fmt.Sprintf("%s+%d", line, dropped))
			return
		}
		got = append(got, string(line))
	}}
	for len(in) > 0 {
		n := min(portion, len(in))
		s.Write([]byte(in[:n]))
		in = in[n:]
	}
	s.Close()
	return got
}

func TestSplitter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\nbc\r\n\nd\n", []string{"a", "bc", "", "d"}},
		{"no end", "a\nbc", []string{"a", "bc"}},
		{"exactly the limit", "12345678\n12345678", []string{"12345678", "12345678"}},
		{"over the limit", "123456789\nx\n1234567890", []string{"12345678+1", "x", "12345678+2"}},
		{"a return at the limit", "1234567\r\n12345678\r\n", []string{"1234567", "12345678+1"}},
	}
	for _, tt := range tests {
		for _, portion := range []int{1, 2, 3, 1000} {
			if d := cmp.Diff(tt.want, split(tt.in, portion, 8)); d != "" {
				t.Errorf("%s in portions of %d (-want +got):\n%s", tt.name, portion, d)
			}
		}
	}
}

func TestF25_MemoryStaysFlat(t *testing.T) {
	t.Parallel()
	lines := 0
	s := Splitter{Line: func(line []byte, dropped int64) {
		lines++
		if len(line) != DefaultMaxLine || dropped != 256<<20-DefaultMaxLine {
			t.Errorf("line of %d bytes, %d dropped", len(line), dropped)
		}
	}}
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 256 {
		s.Write(chunk)
	}
	if cap(s.buf) > 2*DefaultMaxLine {
		t.Errorf("an endless line holds %d bytes", cap(s.buf))
	}
	s.Write([]byte("\n"))
	if lines != 1 || cap(s.buf) > 64<<10 {
		t.Errorf("%d lines, %d bytes held after it", lines, cap(s.buf))
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var v struct {
		A string
		B int
	}
	if !Decode([]byte(`{"A":7,"B":3}`), &v) || v.B != 3 || v.A != "" {
		t.Errorf("a field of another type cost the rest: %+v", v)
	}
	if Decode([]byte(`{"A":`), &v) {
		t.Error("half a document was taken")
	}
}
