package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"
)

// The programs are committed; this catches a change of their source that was not built.
func TestProgramsAreBuiltFromTheirSource(t *testing.T) {
	t.Parallel()
	system, err := os.ReadFile("init/system.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"init", "ask"} {
		source, err := os.ReadFile("init/" + name + ".c")
		if err != nil {
			t.Fatal(err)
		}
		source = slices.Concat(system, source)
		built, err := os.ReadFile("init/" + name + ".c.sha256")
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(source)
		if got := hex.EncodeToString(sum[:]); got != strings.TrimSpace(string(built)) {
			t.Errorf("%s.c or system.h has changed since %s_linux_* were built: go generate ./agent/sandbox/docker", name, name)
		}
		for _, arch := range []string{"amd64", "arm64"} {
			program, err := programs.ReadFile("init/" + name + "_linux_" + arch)
			if err != nil || !strings.HasPrefix(string(program), "\x7fELF") {
				t.Errorf("%s for %s: %d bytes, %v", name, arch, len(program), err)
			}
		}
	}
}
