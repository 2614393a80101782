package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/protocol"
)

// drivers are the sandboxes of a runner: the one for jobs that name no image, and
// the one for those that do, nil where no container engine answers.
type drivers struct {
	plain, images sandbox.Driver
	// capabilities are what the runner offers, evidence what was seen of each.
	capabilities []string
	evidence     map[string]string
}

// newDrivers finds what this machine has, as everdict doctor shows it; offered, if
// not nil, replaces what a runner says of it; slots is how many jobs it takes at a
// time. A runner whose default is docker gets
// it even when no engine answers now: each run then says so.
func newDrivers(ctx context.Context, o cli.SandboxOptions, stateDir, workDir string, slots int, offered []string) drivers {
	found, evidence := []string{}, map[string]string{}
	for _, name := range offered {
		evidence[name] = "the runner was told so, and nothing was looked for"
	}
	for _, c := range doctor.Capabilities(ctx, doctor.Config{Runtime: o.Runtime}) {
		found = append(found, c.ID)
		evidence[c.ID] = c.Evidence
	}
	if offered == nil {
		offered = found
	}
	containers := docker.New(docker.Config{
		StateDir: stateDir, Image: o.Image, Runtime: o.Runtime, Network: o.Network, ReadonlyRoot: o.ReadOnly, AllowEmulation: o.AllowEmulation,
		Slots: slots, Warm: o.Warm, WarmRoot: agent.WorkRoot(workDir),
	})
	if o.Driver == docker.Name {
		return drivers{containers, containers, offered, evidence}
	}
	d := drivers{plain: process.New(process.Config{Slots: slots, NoMask: !o.HideFiles, Roster: o.RosterDir}), capabilities: offered, evidence: evidence}
	if slices.Contains(found, protocol.CapDocker) {
		d.images = containers
	}
	return d
}

// enlist has the other runners of this user hide what this one keeps from their jobs, before it keeps anything: it makes
// the directories of dirs, and lists them and files that exist. The error says whose jobs may read it.
func enlist(ctx context.Context, o cli.SandboxOptions, dirs []string, files ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	err := process.Enlist(ctx, o.RosterDir, append(dirs, files...)...)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // no runner hides anything here
	}
	return err
}

// Close ends what the drivers hold.
func (d drivers) Close() error {
	err := d.plain.Close()
	if d.images != nil && d.images != d.plain {
		err = errors.Join(err, d.images.Close())
	}
	return err
}
