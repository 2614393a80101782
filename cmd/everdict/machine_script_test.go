package main

import (
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
			return nil
		},
		Cmds: clitest.Commands,
	})
}
