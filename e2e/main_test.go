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

// program is a command of this project that is built once for all tests.
type program struct {
	pkg string
	env []string

	once sync.Once
	dir  string
	path string
	err  error
}

var (
	everdict = program{pkg: "everdict"}
	// runnerOfUnits is built as it is for images.
	runnerOfUnits = program{pkg: "job-runner", env: []string{"CGO_ENABLED=0"}}
)

func (p *program) build(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "everdict-bin-"); p.err != nil {
			return
		}
		p.path = filepath.Join(p.dir, p.pkg)
		cmd := exec.Command("go", "build", "-o", p.path, "../cmd/"+p.pkg)
		cmd.Env = append(os.Environ(), p.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if p.err != nil {
		t.Fatalf("build %s: %v", p.pkg, p.err)
	}
	return p.path
}

// binary is the everdict command, jobRunner the runner that clusters start.
func binary(t testing.TB) string    { return everdict.build(t) }
func jobRunner(t testing.TB) string { return runnerOfUnits.build(t) }

func TestMain(m *testing.M) {
	// Runners of tests are to meet none of this machine.
	roster, err := os.MkdirTemp("", "everdict-roster-")
	if err == nil {
		err = os.Setenv("EVERDICT_ROSTER_DIR", filepath.Join(roster, "roster"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(roster)
	for _, p := range []*program{&everdict, &runnerOfUnits} {
		if p.dir != "" {
			os.RemoveAll(p.dir)
		}
	}
	os.Exit(code)
}
