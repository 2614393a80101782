package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/lanes"
	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
	"github.com/everdict/everdict/coordinator"
	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/coordinator/store"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol/link"
)

// drainGrace is how long a coordinator that leaves waits for requests under way.
const drainGrace = 10 * time.Second

func runCoordinator(ctx context.Context, o cli.CoordinatorOptions) error {
	// Values of secrets are in the memory, and their key may be in the environment.
	if err := process.HideSelf(); err != nil && !errors.Is(err, errors.ErrUnsupported) { // some systems cannot
		o.Log.Warn("other programs of this user can look into the coordinator", "err", err)
	}
	if o.Launch.Machine {
		if err := lanes.Enlist(ctx, o.Sandbox.RosterDir, []string{o.DataDir}); err != nil && ctx.Err() == nil {
			o.Log.Warn("jobs of other runners of this user may read what is kept in the data directory", "err", err)
		}
	}
	s, err := open(ctx, o, func(url string) coordinator.Config {
		cfg := coordinatorConfig(o)
		cfg.Launch.Machine, cfg.Launch.NoMachine = machine(o, url, unitsWorkDir("", o.DataDir), 0, unitSettings{Sandbox: o.Sandbox})
		return cfg
	})
	if err != nil {
		return err
	}
	if err := s.bootstrap(ctx, o); err != nil {
		return errors.Join(err, s.Close())
	}
	o.Ready(s.url())
	var trim sync.WaitGroup
	defer trim.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	trim.Go(func() { keepHeadroom(ctx) })
	return s.serve(ctx, o.Hurry)
}

func coordinatorConfig(o cli.CoordinatorOptions) coordinator.Config {
	return coordinator.Config{
		DataDir: o.DataDir, InternalToken: o.InternalToken, SecretsKey: o.SecretsKey, SecretsOldKeys: o.SecretsOldKeys,
		RequireAuth: o.RequireAuth, AnyHost: o.InsecureListenWithoutAuth,
		SessionIdle: o.SessionIdle, SessionLife: o.SessionLife, Proxies: o.TrustedProxies, NoDeviceCode: o.NoDeviceCode,
		Lease: lease.Config{
			TTL: o.Lease.TTL, StartAck: o.Lease.StartAck, OnlineWindow: o.Lease.OnlineWindow,
			QueueDeadline: o.Lease.QueueDeadline, Aging: o.Lease.Aging, MaxAttempts: o.Lease.MaxAttempts,
		},
		Timing:            timing(o.Lease),
		PoolMaxConcurrent: o.PoolMaxConcurrent,
		Launch: coordinator.Launch{
			URL: o.Launch.RunnerURL, HostNetwork: o.Launch.KubeHostNetwork, ImagePullPolicy: o.Launch.KubeImagePullPolicy, User: o.Launch.KubeUser,
			NomadHostNetwork: o.Launch.NomadHostNetwork, NomadUser: o.Launch.NomadUser,
			Egress: o.Launch.KubeNetworkPolicy, Isolation: fleet.Isolation{Mode: o.Launch.TrustZones, Runtime: o.Launch.TrustZoneRuntime},
			PendingTimeout: o.Launch.PendingTimeout,
		},
		Version: version, Log: o.Log,
	}
}

// timing derives a session's clocks from those of the lease, so that whoever
// shortens one need not know the others. With the defaults (60 s, 10 s, 10 s) it
// gives link's own.
func timing(l cli.LeaseTimings) link.Timing {
	if l.TTL == 0 {
		return link.Timing{}
	}
	return link.Timing{
		Heartbeat: l.Heartbeat, LeaseTTL: l.TTL, LeaseMargin: l.FreezeMargin, StartAck: l.StartAck,
		HeartbeatTimeout: (l.TTL - l.FreezeMargin - l.Heartbeat) / 2,
		Ping:             l.TTL / 4,
		DeadPeer:         max(l.TTL*2/3, 2*l.Heartbeat+l.TTL/6),
	}
}

func rotateSecretsKey(ctx context.Context, o cli.CoordinatorOptions) (secret.Rotation, error) {
	return coordinator.RotateSecretsKey(ctx, coordinatorConfig(o))
}

// server is a coordinator with its listener.
type server struct {
	*coordinator.Coordinator
	listener net.Listener
	profiles func() // ends their socket
}

// open takes the port before the data directory: of two mistakes the port is the
// likelier and the cheaper one.
func open(ctx context.Context, o cli.CoordinatorOptions, config func(url string) coordinator.Config) (*server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = errors.New("another program listens there")
		}
		return nil, cli.Advise(fmt.Errorf("listen on %s: %w", o.Listen, err),
			"if that is a coordinator, use it; else choose another address, or 0 for a free port: --listen 127.0.0.1:0")
	}
	profiles, err := serveProfiles(ctx, o.DebugSocket)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if o.DebugSocket != "" {
		o.Log.Info("profiles are served", "socket", o.DebugSocket)
	}
	c, err := coordinator.Open(ctx, config(here(listener)))
	if err != nil {
		profiles()
		err = errors.Join(err, listener.Close())
		var held *sqlite.HeldError
		if errors.As(err, &held) {
			return nil, cli.Advise(fmt.Errorf("another coordinator uses %s: %w", o.DataDir, err),
				"use that one, or end it, or choose another directory with --data-dir")
		}
		if store.Unavailable(err) != nil {
			return nil, cli.Advise(fmt.Errorf("the data directory %s cannot be used: %w", o.DataDir, err), "make room on that disk, or choose another directory with --data-dir")
		}
		return nil, err
	}
	return &server{c, listener, profiles}, nil
}

func (s *server) url() string { return "http://" + s.listener.Addr().String() }

// here is the address of a listener for programs of this machine.
func here(l net.Listener) string {
	addr, ok := l.Addr().(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", addr.Port)
	}
	return "http://" + l.Addr().String()
}

// Close gives up a server that was not served.
func (s *server) Close() error {
	s.profiles()
	return errors.Join(s.Coordinator.Close(), s.listener.Close())
}

// bootstrap shows the first admin key, once, where keys are asked for.
func (s *server) bootstrap(ctx context.Context, o cli.CoordinatorOptions) error {
	if !o.RequireAuth {
		return nil
	}
	key, err := s.Bootstrap(ctx)
	if err != nil || key == "" {
		return err
	}
	return o.FirstKey(key)
}

// serve serves until ctx ends; hurry cuts the drain short.
func (s *server) serve(ctx context.Context, hurry <-chan struct{}) error {
	defer s.profiles()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, s.listener, drainGrace) }()
	select {
	case err := <-done:
		return err
	case <-hurry:
		return &cli.ExitError{Code: 130}
	}
}
