package docker

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent/private"
)

// Without a home our programs lie below the directory for temporary files, where anybody
// can make that directory first.
func TestLayWithoutAHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", t.TempDir())
	path, err := lay("", "ask", runtime.GOARCH)
	if err != nil || !strings.HasPrefix(path, private.Path()+string(filepath.Separator)) {
		t.Fatalf("laid out at %s, %v; want it below %s", path, err, private.Path())
	}
	if err := os.Chmod(private.Path(), 0o777); err != nil {
		t.Fatal(err)
	}
	if path, err := lay("", "ask", runtime.GOARCH); err == nil {
		t.Errorf("it lies in a directory that others can write to: %s", path)
	}
}
