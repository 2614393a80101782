package private

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	// What a crash has left is replaced, however it can be read.
	if err := os.WriteFile(path+".new", []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "a second, longer one", ""} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("read %q, %v; want %q", b, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	if err := WriteFile(filepath.Join(dir, "none", "secret"), nil); err == nil {
		t.Error("a file in a directory that is missing was written")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v; want the file alone", entries, err)
	}
}
