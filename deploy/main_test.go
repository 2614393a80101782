package deploy_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/cmd/everdict/cli"
)

// asEverdict makes this test binary the program: with its real flags, variables and
// checks, and with commands that print what they were told.
const asEverdict = "EVERDICT_DEPLOY_TEST"

// told is what the program makes of a command line.
type told struct {
	Command string
	// Of a coordinator.
	DataDir, Listen, RunnerURL string
	RequireAuth                bool
	// Of a runner.
	APIURL, PoolToken, StateDir, WorkDir string
	Slots                                int
	Drain                                time.Duration
}

func TestMain(m *testing.M) {
	if os.Getenv(asEverdict) == "" {
		os.Exit(m.Run())
	}
	show := func(t told) error { return json.NewEncoder(os.Stdout).Encode(t) }
	os.Exit(cli.Main(cli.Hooks{
		Coordinator: func(_ context.Context, o cli.CoordinatorOptions) error {
			return show(told{Command: "coordinator", DataDir: o.DataDir, Listen: o.Listen, RunnerURL: o.Launch.RunnerURL, RequireAuth: o.RequireAuth})
		},
		Runner: func(_ context.Context, o cli.RunnerOptions) error {
			return show(told{Command: "runner", APIURL: o.APIURL, PoolToken: o.PoolToken, StateDir: o.StateDir, WorkDir: o.WorkDir, Slots: o.MaxConcurrent, Drain: o.DrainTimeout})
		},
	}))
}

// ask runs the program with a command line out of a manifest: a flag that is renamed or
// a value that is not taken any more is found here.
func ask(t *testing.T, args []string, env ...string) told {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	home := t.TempDir()
	cmd.Dir = home
	cmd.Env = append([]string{asEverdict + "=1", "HOME=" + home, "PATH=" + os.Getenv("PATH")}, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("everdict %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var got told
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("everdict %s printed %q: %v", strings.Join(args, " "), out, err)
	}
	return got
}

// TestAskRefuses is for the other tests: what is asked is the real program.
func TestAskRefuses(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "coordinator", "--no-such-flag")
	cmd.Env = append(os.Environ(), asEverdict+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no-such-flag") {
		t.Errorf("a flag that does not exist is taken: %v, %s", err, out)
	}
}
