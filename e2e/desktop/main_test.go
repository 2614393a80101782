package desktop_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// bin is where what the tests build and put on the PATH lies.
var bin string

// built builds a command of this project, once.
func built(name string, environ ...string) func(testing.TB) string {
	build := sync.OnceValues(func() (string, error) {
		path := filepath.Join(bin, name, name)
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "github.com/everdict/everdict/cmd/"+name)
		cmd.Env = append(os.Environ(), environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return path, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// The programs. everdict is what a job calls to ask a person.
var (
	everdictDesktop = built("everdict-desktop", "CGO_ENABLED=0")
	everdict        = built("everdict")
)

// gitGate is a FIFO that makes every git wait which works somewhere below its directory, until somebody opens it.
const gitGate = "git-waits"

// slowGit is the git on the PATH of the tests: the machine's, which can be made to wait.
const slowGit = `#!/bin/sh
dir=$PWD
while [ -n "$dir" ]; do
	[ -p "$dir/` + gitGate + `" ] && : < "$dir/` + gitGate + `"
	dir=${dir%%/*}
done
exec '%s' "$@"
`

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(bin)
	os.Exit(code)
}

func prepare() error {
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	if bin, err = os.MkdirTemp("", "everdict-desktop-test"); err != nil {
		return err
	}
	path := filepath.Join(bin, "path")
	return errors.Join(
		os.Mkdir(path, 0o755),
		os.WriteFile(filepath.Join(path, "git"), fmt.Appendf(nil, slowGit, git), 0o755),
		os.Setenv("PATH", path+string(os.PathListSeparator)+os.Getenv("PATH")),
	)
}
