package pairing

import (
	"strings"
	"testing"
	"time"
)

// FuzzUserCode: whatever is read as a code is one that could have been made, and reads as
// itself.
func FuzzUserCode(f *testing.F) {
	for _, s := range []string{"BCDF-GHJK", "bcdf ghjk", "b-c-d-f-g-h-j-k", "", "AEIOUAEI", "BCDFGHJKL", strings.Repeat("-", 100), "ſKKKKKKK"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		code := readUserCode(s)
		if code == "" {
			return
		}
		if len(code) != userCodeLength+1 || strings.Trim(code, userCodeLetters+"-") != "" || readUserCode(code) != code {
			t.Errorf("%q reads as %q", s, code)
		}
	})
}

// FuzzNonce: nothing but what was given is a nonce.
func FuzzNonce(f *testing.F) {
	n := newNonces(time.Now)
	given := n.give().Nonce
	f.Add(given)
	f.Add("")
	f.Add(given[:len(given)-1])
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := n.read(s); err == nil && s != given {
			t.Errorf("%q is taken for a nonce", s)
		}
	})
}

func TestUserCodesAreMade(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		code := newUserCode()
		if readUserCode(code) != code || seen[code] {
			t.Fatalf("made %q", code)
		}
		seen[code] = true
	}
}
