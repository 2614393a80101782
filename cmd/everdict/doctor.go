package main

import (
	"context"
	"path/filepath"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/doctor"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/protocol/link"
)

func runDoctor(ctx context.Context, o cli.RunnerOptions) (doctor.Report, error) {
	return doctor.Examine(ctx, doctor.Config{
		Version: version, Sandbox: o.Sandbox.Driver, Runtime: o.Sandbox.Runtime, Slots: o.MaxConcurrent, RosterDir: o.Sandbox.RosterDir, StateDir: o.StateDir, WorkDir: workDir(o.WorkDir, o.StateDir),
		URL: o.APIURL, CAFile: o.CAFile, PassProxy: o.PassProxy, PassCA: o.PassCA,
		CredentialFile: filepath.Join(o.StateDir, credentialFile),
		ReadCredential: func(path string) (link.Credential, error) {
			c, _, err := agent.LoadCredential(path)
			return c, err
		},
	}), nil
}

func runGC(ctx context.Context, o cli.GCOptions) (agent.GarbageReport, error) {
	drivers := []sandbox.Driver{process.New(process.Config{})}
	if found := endpoint.Find(ctx, endpoint.This(nil)); found.Chosen != nil {
		drivers = append(drivers, docker.New(docker.Config{}))
	} else {
		o.Log.Info("containers are not looked at", "reason", found.Err())
	}
	report, err := agent.Collect(ctx, agent.GarbageConfig{
		StateDir: o.StateDir, WorkDir: workDir(o.WorkDir, o.StateDir), Drivers: drivers, DryRun: o.DryRun,
	})
	for _, d := range drivers {
		if cerr := d.Close(); cerr != nil {
			o.Log.Warn("the sandbox's driver could not be closed", "driver", d.Name(), "err", cerr)
		}
	}
	return report, err
}
