package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// The init programs are committed; this catches a change of their source that was not built.
func TestInitIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("init/init.c")
	if err != nil {
		t.Fatal(err)
	}
	built, err := os.ReadFile("init/init.c.sha256")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(source)
	if got := hex.EncodeToString(sum[:]); got != strings.TrimSpace(string(built)) {
		t.Errorf("init.c has changed since init_linux_* were built: go generate ./agent/sandbox/docker")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		program, err := inits.ReadFile("init/init_linux_" + arch)
		if err != nil || !strings.HasPrefix(string(program), "\x7fELF") {
			t.Errorf("init for %s: %d bytes, %v", arch, len(program), err)
		}
	}
}
