// Package private has what a runner keeps to itself: its secrets in files, and the directory
// for what it keeps where it has none of its own, below that for temporary files, where
// anybody can make one of the same name first.
package private

import (
	"fmt"
	"os"
	"path/filepath"
)

// Dir makes the directory of this user below that for temporary files, and refuses one
// that others can write to.
func Dir() (string, error) {
	dir := Path()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := Check(dir); err != nil {
		return "", fmt.Errorf("%w: remove it, or set TMPDIR to a directory of your own", err)
	}
	return dir, nil
}

// Path is where Dir is.
func Path() string { return filepath.Join(os.TempDir(), fmt.Sprintf("everdict-%d", os.Getuid())) }
