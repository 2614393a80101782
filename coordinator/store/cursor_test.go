package store

import (
	"errors"
	"testing"
)

// FuzzCursor: whatever a client sends is a cursor that a list could have given,
// or refused.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "AQ", encodeCursor(0), encodeCursor(1<<63 - 1), encodeCursor(1_700_000_000_000 << seqShift), "run_000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seq, err := decodeCursor(s)
		if err != nil {
			if !errors.Is(err, ErrBadCursor) {
				t.Fatalf("cursor %q: %v, want ErrBadCursor", s, err)
			}
			return
		}
		if seq < 0 {
			t.Fatalf("cursor %q is %d, below every run", s, seq)
		}
		if again, err := decodeCursor(encodeCursor(seq)); err != nil || again != seq {
			t.Fatalf("cursor %q is %d, and its own form is %d (%v)", s, seq, again, err)
		}
	})
}
