// Package e2e holds the tests that need the whole product: a real coordinator,
// real runners, the real binary. The scripts beside it are what make calls.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// binary builds the everdict command, once for all tests.
func binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "everdict-bin-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "everdict")
		cmd := exec.Command("go", "build", "-o", built.path, "../cmd/everdict")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build everdict: %v", built.err)
	}
	return built.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}
