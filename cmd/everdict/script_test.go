package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everdict/everdict/cmd/everdict/cli/clitest"
)

// TestMain lets the test binary be everdict: scripts run it as a process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"everdict": main})
}

// TestScripts runs the scripts of e2e/script, which the command line's own tests
// run against a server of their own, against everdict up.
func TestScripts(t *testing.T) {
	url := up(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "../../e2e/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EVERDICT_API_URL", url)
			env.Setenv("EVERDICT_ROSTER_DIR", filepath.Join(env.WorkDir, "roster"))
			return nil
		},
		Cmds: clitest.Commands,
	})
}

// up starts everdict up and returns its address.
func up(t *testing.T, flags ...string) string {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command("everdict", append([]string{"up", "--listen", "127.0.0.1:0", "--data-dir", home + "/data", "--max-concurrent", "4", "--drain-timeout", "0s", "-o", "json"}, flags...)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home+"/cache", "EVERDICT_LOG_LEVEL=warn", "EVERDICT_ROSTER_DIR="+home+"/roster")
	cmd.Dir = home
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("everdict up ended with %v after SIGTERM, want exit code 0", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("everdict up ended before it was ready: %v", err)
	}
	var said struct {
		Ready string `json:"ready"`
	}
	if err := json.Unmarshal(line, &said); err != nil || said.Ready == "" {
		t.Fatalf("everdict up said %q, want {\"ready\": URL}", line)
	}
	return said.Ready
}
