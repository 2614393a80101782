package protocol

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/oklog/ulid/v2"
)

// Prefixes of identifiers. An id is opaque to clients; its prefix says what it
// names.
const (
	RunPrefix    = "run_"
	RunnerPrefix = "rnr_"
	KeyPrefix    = "key_"
)

// Prefixes of credentials: the prefix plus 24 random bytes in base64url.
const (
	RunnerTokenPrefix = "rnr_"
	APIKeyPrefix      = "ak_"
)

// NewID makes an identifier that sorts by the time of its making, so that an
// index over ids grows at its end.
func NewID(prefix string) string {
	return prefix + strings.ToLower(ulid.MustNew(ulid.Now(), entropy).String())
}

// entropy is not the one of ulid.Make: from one id of that all later ones can be
// calculated, and who knows the id of a machine's request can approve it.
var entropy = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}

// NewCredential makes a secret of 192 random bits behind its prefix.
func NewCredential(prefix string) string {
	var b [24]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// ValidName reports whether s can name a case, harness, version, runtime or
// label: 1 to max bytes of printable characters without a path separator or a
// control character, not "." or "..".
func ValidName(s string, max int) bool {
	if s == "" || len(s) > max || s == "." || s == ".." {
		return false
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == '/' || r == '\\' || r == '�' {
			return false
		}
	}
	return s == strings.TrimSpace(s)
}
