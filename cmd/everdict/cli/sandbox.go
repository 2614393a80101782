package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/cmd/everdict/config"
)

// SandboxOptions say what runs are enclosed in.
type SandboxOptions struct {
	// Driver runs what names no image: process or docker.
	Driver string
	// HideFiles hides the runner's files from what runs without an image.
	HideFiles bool
	// RosterDir is where the runners of this user find each other.
	RosterDir string
	// Image is what docker runs where a run names none; empty: such a run is
	// refused by a runner whose Driver is docker.
	Image string
	// Runtime is an alternative runtime of the container engine, such as runsc.
	Runtime string
	// Network is what a run that does not choose gets in a container: public or
	// none.
	Network string
	// ReadOnly makes everything in a container but the workspace read-only.
	ReadOnly bool
	// AllowEmulation runs images that were built for another kind of machine.
	AllowEmulation bool
	// Warm is how many containers are kept ready for each kind of sandbox that was
	// used last.
	Warm int
}

// sandboxKeys are the settings of SandboxOptions.
var sandboxKeys = []string{config.Sandbox, config.HideFiles, config.RosterDir, config.Image, config.DockerRuntime, config.ContainerNetwork, config.ReadOnlyRoot, config.AllowEmulation, config.Warm}

// seclude is the first thing that a command does whose jobs must not see this process's files. sweep: it is a runner
// that stays.
func (a *app) seclude(ctx context.Context, sweep bool) {
	if a.hooks.Seclude == nil || !a.cfg.Bool(config.HideFiles) {
		return
	}
	err := a.hooks.Seclude(ctx, sweep)
	if err == nil || !sweep || ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
		return // each run's record says what its job can see
	}
	fmt.Fprintln(a.err, a.palette(a.err).yellow("warning:"), err)
}

func (a *app) sandbox() (SandboxOptions, error) {
	o := SandboxOptions{
		Driver: a.cfg.String(config.Sandbox), HideFiles: a.cfg.Bool(config.HideFiles), Image: a.cfg.String(config.Image), Runtime: a.cfg.String(config.DockerRuntime),
		Network: a.cfg.String(config.ContainerNetwork), ReadOnly: a.cfg.Bool(config.ReadOnlyRoot), AllowEmulation: a.cfg.Bool(config.AllowEmulation),
		Warm: a.cfg.Int(config.Warm),
	}
	o.RosterDir = cmp.Or(a.cfg.String(config.RosterDir), lanes.Roster(config.Home(), os.Getenv))
	var err error
	if o.RosterDir, err = absolute(o.RosterDir); err != nil {
		return o, err
	}
	if o.Warm < 0 || o.Warm > maxSlots {
		return o, fmt.Errorf("%s: warm is %d: want 0 to %d", a.cfg.Origin(config.Warm), o.Warm, maxSlots)
	}
	for _, c := range []struct {
		key, value string
		allowed    []string
	}{
		{config.Sandbox, o.Driver, []string{"process", "docker"}},
		{config.ContainerNetwork, o.Network, []string{"public", "none"}},
	} {
		if !slices.Contains(c.allowed, c.value) {
			return o, fmt.Errorf("%s: %q is unknown: want %s", a.cfg.Origin(c.key), c.value, strings.Join(c.allowed, " or "))
		}
	}
	return o, nil
}
