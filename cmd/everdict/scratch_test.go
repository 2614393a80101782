package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestScratchOfAKilledCommandIsRemoved: the next command removes what one that was killed
// has left, and neither what is in use nor what is somebody else's.
func TestScratchOfAKilledCommandIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp)
	used, remove, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(t.TempDir(), "precious")
	killed, begun, linked := filepath.Join(tmp, scratchPrefix+"killed"), filepath.Join(tmp, scratchPrefix+"begun"), filepath.Join(tmp, scratchPrefix+"linked")
	for _, dir := range []string{precious, filepath.Join(killed, "data"), begun} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{filepath.Join(killed, scratchLock), filepath.Join(killed, "data", "x.db"), filepath.Join(precious, scratchLock)} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(precious, linked); err != nil {
		t.Fatal(err)
	}
	next, removeNext, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{used: true, next: true, killed: false, begun: true, filepath.Join(precious, scratchLock): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	if err := removeNext(); err != nil {
		t.Error(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{used, next} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}
