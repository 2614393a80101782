package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/protocol"
)

// drivers are the sandboxes of a runner: the one for jobs that name no image, and
// the one for those that do, nil where no container engine answers.
type drivers struct{ plain, images sandbox.Driver }

// newDrivers finds what this machine has. A runner whose default is docker gets it
// even when no engine answers now: each run then says so.
func newDrivers(ctx context.Context, o cli.SandboxOptions, stateDir string) drivers {
	containers := docker.New(docker.Config{
		StateDir: stateDir, Image: o.Image, Runtime: o.Runtime, Network: o.Network, ReadonlyRoot: o.ReadOnly, AllowEmulation: o.AllowEmulation,
	})
	if o.Driver == docker.Name {
		return drivers{containers, containers}
	}
	d := drivers{plain: process.New(process.Config{})}
	if slices.Contains(agent.DetectCapabilities(ctx, os.Environ()), protocol.CapDocker) {
		d.images = containers
	}
	return d
}

// Close ends what the drivers hold.
func (d drivers) Close() error {
	err := d.plain.Close()
	if d.images != nil && d.images != d.plain {
		err = errors.Join(err, d.images.Close())
	}
	return err
}
