//go:build unix

package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/everdict/everdict/agent/sandbox"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/tool": 0o755, "bin/plain": 0o644, "other/tool": 0o755, "here": 0o755, "bin/dir/x": 0o755} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(root, "bin")
	for _, c := range []struct {
		name, path, want string
		err              error
	}{
		{"tool", "PATH=" + bin + ":" + root + "/other", bin + "/tool", nil},
		{"tool", "PATH=/nowhere:" + root + "/other", root + "/other/tool", nil},
		{"tool", "PATH=bin", bin + "/tool", nil}, // relative to the command's directory
		{"here", "PATH=", "", sandbox.ErrNotFound},
		{"here", "PATH=:/nowhere", root + "/here", nil},
		{"tool", "OTHER=x", "", sandbox.ErrNotFound},
		{"plain", "PATH=" + bin, "", os.ErrPermission},
		{"dir", "PATH=" + bin, "", sandbox.ErrNotFound},
		{"bin/tool", "PATH=", bin + "/tool", nil},
		{"./here", "", root + "/here", nil},
		{root + "/here", "", root + "/here", nil},
		{"./missing", "", "", sandbox.ErrNotFound},
		{"here/below", "", "", sandbox.ErrNotFound},
		{"./bin/plain", "", "", os.ErrPermission},
		{"./bin", "", "", syscall.EISDIR},
	} {
		got, err := lookup(c.name, root, []string{c.path})
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("lookup %q with %q: %q, %v; wanted %q, %v", c.name, c.path, got, err, c.want, c.err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := environment([]string{"A=1", "B=2", "A=3"}, []string{"C=", "B=x=y"}, nil)
	if want := []string{"A=3", "B=x=y", "C="}; !slices.Equal(got, want) {
		t.Errorf("environment is %q, wanted %q", got, want)
	}
	if got := environment(nil); got == nil || len(got) != 0 {
		t.Errorf("an empty environment is %#v: nil would inherit the runner's", got)
	}
}
