package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everdict/everdict/cmd/everdict/cli/clitest"
)

// TestMachineScripts runs the scripts about this machine, which need the real checks behind the commands, against
// everdict up.
func TestMachineScripts(t *testing.T) {
	url := up(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EVERDICT_API_URL", url)
			env.Setenv("EVERDICT_ROSTER_DIR", filepath.Join(env.WorkDir, "roster"))
			return nil
		},
		Cmds: clitest.Commands,
	})
}

// TestF37_UpPassesByChoice checks that the choice reaches the runner inside everdict up.
func TestF37_UpPassesByChoice(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128") // not parallel for this
	for flag, want := range map[string]string{"--pass-proxy=true": "http://proxy.example:3128\n", "--pass-proxy=false": "\n"} {
		url, dir := up(t, flag), t.TempDir()
		file := filepath.Join(dir, "run.json")
		run := `{"harness": {"id": "scripted", "version": "latest", "params": {"script": "run echo $HTTPS_PROXY > ` + dir + `/seen"}},
			"case": {"id": "c1", "env": {"kind": "prompt"}, "task": "Follow the script",
				"graders": [{"id": "tests-pass", "config": {"cmd": "true"}}]}}`
		if err := os.WriteFile(file, []byte(run), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("everdict", "submit", "-f", file, "--wait", "--api-url", url).CombinedOutput(); err != nil {
			t.Fatalf("everdict submit with up %s: %v\n%s", flag, err, out)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "seen")); err != nil || string(got) != want {
			t.Errorf("up %s: the job saw the proxy %q, %v, want %q", flag, got, err, want)
		}
	}
}
