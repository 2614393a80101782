//go:build unix

package docker

import (
	"bytes"
	"io"
	"testing"
)

// FuzzFollow: whatever an engine reports of a pull, the report comes to its end, and what is
// logged of it is lines.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{`{"status":"Pulling","id":"latest"}` + "\n" + `{"status":"Downloading"}`, `{"error":"denied"}`, `{"status":1}`, `[`, `null null`, `{"errorDetail":{"message":"x"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, report []byte) {
		var log bytes.Buffer
		_ = follow(bytes.NewReader(report), io.Writer(&log))
		if n := log.Len(); n > 0 && log.Bytes()[n-1] != '\n' {
			t.Errorf("the log ends within a line: %q", log.Bytes())
		}
	})
}
