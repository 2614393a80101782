package lease_test

import (
	"os"
	"path/filepath"
	"testing"
)

// copyFiles copies a database as a crash at this moment would leave it: the file and its write-ahead log.
func copyFiles(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
