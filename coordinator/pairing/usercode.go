package pairing

import "strings"

// userCodeLetters are the consonants without Y: no word comes of them, and none is a
// digit's look-alike (RFC 8628, section 6.1). Eight of them are 34 bits.
const (
	userCodeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	userCodeLength  = 8
)

// newUserCode makes a code such as WDJB-MJHT.
func newUserCode() string {
	var b strings.Builder
	for i := range userCodeLength {
		if i == userCodeLength/2 {
			b.WriteByte('-')
		}
		b.WriteByte(userCodeLetters[randomBelow(int64(len(userCodeLetters)))])
	}
	return b.String()
}

// readUserCode is the code that somebody typed in, as newUserCode made it; "" for what is
// none. Case, spaces and hyphens do not matter.
func readUserCode(s string) string {
	if len(s) > 64 {
		return ""
	}
	var letters []byte
	for _, c := range []byte(strings.ToUpper(s)) {
		switch {
		case c == ' ' || c == '-' || c == '\t':
		case strings.IndexByte(userCodeLetters, c) >= 0 && len(letters) < userCodeLength:
			letters = append(letters, c)
		default:
			return ""
		}
	}
	if len(letters) != userCodeLength {
		return ""
	}
	return string(letters[:userCodeLength/2]) + "-" + string(letters[userCodeLength/2:])
}
