// Package lanes gives a runner the sandboxes that this machine has, chosen in the same way by every program with a
// runner in it.
package lanes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/protocol"
)

// Config says what the owner of the machine wants. StateDir and WorkDir are the runner's and required.
type Config struct {
	// Driver of jobs that name no image: process.Name (the default) or docker.Name.
	Driver            string
	StateDir, WorkDir string
	// Slots is how many jobs the runner takes at a time.
	Slots int
	// Offered, if not nil, replaces what is found as what the runner offers.
	Offered []string
	// ShowFiles does without hiding the runner's files from jobs.
	ShowFiles bool
	// Roster is where the runners of this user list what no job may see: see process.Config.
	Roster string

	// Of containers.
	Image, Runtime, Network  string
	ReadOnly, AllowEmulation bool
	Warm                     int
}

// Lanes are the sandboxes of a runner. Close them when it has ended.
type Lanes struct {
	// Plain is for jobs that name no image, Images for those that do: nil where no container engine answers.
	Plain, Images sandbox.Driver
	// Capabilities are what the runner offers, Evidence what was seen of each.
	Capabilities []string
	Evidence     map[string]string
	// Engine is where the container engine is, as endpoint.Candidate.Host; empty: none answers.
	Engine string
}

// Find finds what this machine has, as everdict doctor shows it. A runner whose default is docker gets it even when no
// engine answers now: each run then says so.
func Find(ctx context.Context, cfg Config) *Lanes {
	found, evidence, engine := []string{}, map[string]string{}, ""
	for _, name := range cfg.Offered {
		evidence[name] = "the runner was told so, and nothing was looked for"
	}
	for _, c := range doctor.Capabilities(ctx, doctor.Config{Runtime: cfg.Runtime}) {
		found = append(found, c.ID)
		evidence[c.ID] = c.Evidence
		if c.Docker != nil && c.Docker.Chosen != nil {
			engine = c.Docker.Chosen.Host
		}
	}
	offered := cfg.Offered
	if offered == nil {
		offered = found
	}
	containers := docker.New(docker.Config{
		StateDir: cfg.StateDir, Image: cfg.Image, Runtime: cfg.Runtime, Network: cfg.Network, ReadonlyRoot: cfg.ReadOnly, AllowEmulation: cfg.AllowEmulation,
		Slots: cfg.Slots, Warm: cfg.Warm, WarmRoot: agent.WorkRoot(cfg.WorkDir),
	})
	l := &Lanes{Plain: containers, Images: containers, Capabilities: offered, Evidence: evidence, Engine: engine}
	if cfg.Driver == docker.Name {
		return l
	}
	l.Plain, l.Images = process.New(process.Config{Slots: cfg.Slots, NoMask: cfg.ShowFiles, Roster: cfg.Roster}), nil
	if slices.Contains(found, protocol.CapDocker) {
		l.Images = containers
	}
	return l
}

// Close ends what the drivers hold.
func (l *Lanes) Close() error {
	err := l.Plain.Close()
	if l.Images != nil && l.Images != l.Plain {
		err = errors.Join(err, l.Images.Close())
	}
	return err
}

// Enlist has the other runners of this user hide what this one keeps from their jobs, before it keeps anything: it makes
// the directories of dirs, and lists them and files that exist. The error says whose jobs may read it.
func Enlist(ctx context.Context, roster string, dirs []string, files ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	err := process.Enlist(ctx, roster, append(dirs, files...)...)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // no runner hides anything here
	}
	return err
}

// Listed tells what the runners of this user list in a roster. What cannot be read there is hidden from no job either, and
// the record of each run says so.
func Listed(roster string) func() []string {
	if roster == "" {
		return nil
	}
	return func() []string {
		paths, _ := process.Listed(roster)
		return paths
	}
}

// RootRoster is root's roster whatever its environment says: a service has no home, and sudo may keep another user's.
const RootRoster = "/var/lib/everdict-runners"

// Roster is where the runners of the user with this home find each other if no setting says where.
func Roster(home string, getenv func(string) string) string {
	if os.Geteuid() == 0 {
		return RootRoster
	}
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "everdict-runners")
}
