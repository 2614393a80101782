package docker

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/agent/sandbox/docker/endpoint"
)

const (
	// probeWithin bounds the first question to an engine: a socket whose engine hangs must not hang the runner (F36).
	probeWithin = 3 * time.Second
	// describeWithin bounds the others. Podman looks at every container for them, and waits for those that are being
	// started.
	describeWithin = 20 * time.Second
)

// engine is an engine that answered.
type engine struct {
	api  *client.Client
	host string
	base string // of the API's URLs
	info system.Info
	arch string // Go's name of the engine's architecture
	init string // the host path of our init for it
	ask  string // and of the everdict that its containers have
	// podman: it is Podman, whose API is Docker's but for what podman.go says.
	podman bool
}

// connect finds the engine, asks it what it can do, and lays out our programs for it.
func connect(ctx context.Context, cfg Config) (*engine, error) {
	host, base, opts, err := address(ctx, cfg)
	if err != nil {
		return nil, err
	}
	api, err := client.NewClientWithOpts(append(opts, client.WithHost(host), client.WithAPIVersionNegotiation())...)
	if err != nil {
		return nil, fmt.Errorf("docker: engine at %s: %w", host, err)
	}
	e := &engine{api: api, host: host, base: base}
	if err := e.describe(ctx); err != nil {
		_ = api.Close()
		return nil, fmt.Errorf("docker: engine at %s: %w", host, err)
	}
	if e.info.OSType != "linux" {
		_ = api.Close()
		return nil, fmt.Errorf("docker: engine at %s runs %s containers; sandboxes need linux", host, e.info.OSType)
	}
	for name, path := range map[string]*string{"init": &e.init, "ask": &e.ask} {
		if *path, err = lay(cfg.StateDir, name, e.arch); err != nil {
			_ = api.Close()
			return nil, err
		}
	}
	return e, nil
}

// describe asks an engine what it is.
func (e *engine) describe(ctx context.Context) (err error) {
	bound := probeWithin
	ask := func(what func(context.Context) error) {
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err = what(ctx); err != nil && ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", bound)
		}
		bound = describeWithin
	}
	var version types.Version
	ask(func(ctx context.Context) error { _, err := e.api.Ping(ctx); return err })
	ask(func(ctx context.Context) (err error) { e.info, err = e.api.Info(ctx); return err })
	ask(func(ctx context.Context) (err error) { version, err = e.api.ServerVersion(ctx); return err })
	ask(func(ctx context.Context) error { return e.askPodman(ctx, version) })
	e.arch = architecture(e.info.Architecture)
	return err
}

// address is where the engine is: as configured, else as the docker command finds it.
func address(ctx context.Context, cfg Config) (host, base string, opts []client.Opt, err error) {
	if cfg.Host != "" {
		return cfg.Host, endpoint.Candidate{Host: cfg.Host}.URL(), []client.Opt{client.WithTLSClientConfigFromEnv()}, nil
	}
	found := endpoint.Find(ctx, endpoint.This(nil))
	if err := found.Err(); err != nil {
		return "", "", nil, fmt.Errorf("docker: %w", err)
	}
	http, err := found.Chosen.Client()
	if err != nil {
		return "", "", nil, fmt.Errorf("docker: %w", err)
	}
	return found.Chosen.Host, found.Chosen.URL(), []client.Opt{client.WithHTTPClient(http)}, nil
}

// architecture turns the kernel's name of a machine into Go's, which images use.
func architecture(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

//go:generate sh init/build.sh
//go:embed init/init_linux_amd64 init/init_linux_arm64 init/ask_linux_amd64 init/ask_linux_arm64
var programs embed.FS

// lay writes one of our programs where the engine can mount it, under a name that holds its digest: runners of different
// versions do not disturb each other.
func lay(dir, name, arch string) (string, error) {
	program, err := programs.ReadFile("init/" + name + "_linux_" + arch)
	if err != nil {
		return "", fmt.Errorf("docker: the engine runs on %s, for which there is no %s", arch, name)
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil { // a service without a home
			if cache, err = private.Dir(); err != nil {
				return "", fmt.Errorf("docker: lay out %s: %w", name, err)
			}
		}
		dir = filepath.Join(cache, "everdict", "docker")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("docker: lay out %s: %w", name, err)
	}
	sum := sha256.Sum256(program)
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:6]))
	if have, err := os.ReadFile(path); err == nil && sha256.Sum256(have) == sum {
		return path, nil
	}
	// Another runner may be doing the same: the rename is atomic, and both write the same.
	tmp, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return "", fmt.Errorf("docker: lay out %s: %w", name, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(program)
	if err == nil {
		err = tmp.Chmod(0o555)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("docker: lay out %s: %w", name, err)
	}
	return path, nil
}
