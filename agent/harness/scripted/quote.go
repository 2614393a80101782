package scripted

import (
	"strings"

	"github.com/everdict/everdict/agent/harness"
)

// quote is s as one literal word of a POSIX shell.
func quote(s string) string { return harness.Quote(s) }

// sedPattern is s as a basic regular expression that matches it literally, for s/.
func sedPattern(s string) string { return escape(s, `\/.*[]^$`) }

// sedReplacement is s as the replacement of s/.
func sedReplacement(s string) string { return escape(s, `\/&`) }

func escape(s, special string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(special, c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
