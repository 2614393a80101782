package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/cmd/launched"
	"github.com/everdict/everdict/cmd/member"
	"github.com/everdict/everdict/coordinator"
	units "github.com/everdict/everdict/coordinator/fleet/local"
)

// This program is the keeper and the runner of the units on the coordinator's own machine
// as well. Nobody types these words, and no page of help has them.
const (
	unitKeeper = "unit-keeper"
	unitRunner = "unit-runner"
)

// asUnit is the life of this process as a part of a unit; false: it is none.
func asUnit(args []string) (code int, is bool) {
	if len(args) != 2 {
		return 0, false
	}
	switch args[0] {
	case unitKeeper:
		return units.Keep(args[1]), true
	case unitRunner:
		err := runUnit(args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "everdict:", err)
		}
		return member.ExitCode(err), true
	}
	return 0, false
}

// unitSettings are what the runner of a unit does as the runner of "everdict up" does. It
// is an argument, and has no secret in it.
type unitSettings struct {
	Sandbox       cli.SandboxOptions
	Capabilities  []string
	CAFile        string
	WithholdProxy bool
	PassCA        bool
}

// runUnit is the runner of a unit.
func runUnit(settings string) error {
	var s unitSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return fmt.Errorf("%s: %w", unitRunner, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if s.Sandbox.HideFiles {
		if err := process.Seclude(ctx, false); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			fmt.Fprintln(os.Stderr, "everdict:", err) // each run's record says what its job can see
		}
	}
	if dir := os.Getenv("EVERDICT_RUNNER_DIR"); dir != "" {
		if err := lanes.Enlist(ctx, s.Sandbox.RosterDir, []string{filepath.Join(dir, "state")}); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "everdict: jobs of other runners of this user may read this runner's files:", err)
		}
	}
	s.Sandbox.Warm = 0 // it takes one run
	return launched.Run(ctx, launched.Config{
		Version: version,
		Agent:   agent.Config{CAFile: s.CAFile, WithholdProxy: s.WithholdProxy, PassCA: s.PassCA, Executable: executable()},
		Sandboxes: func(ctx context.Context, stateDir, workDir string) launched.Sandboxes {
			l := findLanes(ctx, s.Sandbox, stateDir, workDir, 1, s.Capabilities)
			return launched.Sandboxes{Plain: l.Plain, Images: l.Images, Capabilities: l.Capabilities, Evidence: l.Evidence}
		},
	})
}

// machine is how units are launched on this machine; nil: they are not, and why.
func machine(o cli.CoordinatorOptions, url, workDir string, drain time.Duration, s unitSettings) (*coordinator.Machine, string) {
	if !o.Launch.Machine {
		return nil, o.Launch.NoMachine
	}
	if !units.Supported {
		return nil, "runners are launched on the coordinator's own machine on Linux only"
	}
	self := executable()
	if self == "" {
		return nil, "this program does not know where it is"
	}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, err.Error()
	}
	return &coordinator.Machine{
		URL: url, WorkDir: workDir, Keeper: []string{self, unitKeeper}, Runner: []string{self, unitRunner, string(settings)}, Encloses: true, Drain: drain,
	}, ""
}

// unitsWorkDir is where the runners of units work: beside where a runner does that was
// told where, else below the cache directory.
func unitsWorkDir(chosen, dataDir string) string {
	if chosen != "" {
		return chosen + "-units"
	}
	return workDir("", filepath.Join(dataDir, "units"))
}
