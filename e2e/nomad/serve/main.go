// Command serve runs the stand-in of a Nomad cluster until it is interrupted, to try
// things by hand:
//
//	go run ./e2e/nomad/serve -listen 127.0.0.1:4646 -token secret
//
// It is for tests: it keeps no job in any enclosure but the one that the job asks for,
// and has no more of Nomad than they need.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	docker "github.com/docker/docker/client"

	"github.com/everdict/everdict/e2e/nomad/standin"
)

func main() {
	var cfg standin.Config
	flag.StringVar(&cfg.Address, "listen", "127.0.0.1:4646", "address of the API")
	flag.StringVar(&cfg.Dir, "dir", "", "directory for state and allocations; empty: a new one, removed at the end")
	flag.StringVar(&cfg.Token, "token", "", "token with all rights; empty: ACLs are off")
	flag.StringVar(&cfg.Version, "version", "1.8.2", "version to be")
	flag.Parse()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serve(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func serve(cfg standin.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "everdict-nomad-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.Dir = dir
	}
	engine, err := docker.NewClientWithOpts(docker.FromEnv, docker.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	if _, err := engine.Ping(ctx); err == nil { // without an engine there is raw_exec
		cfg.Docker = engine
	}
	c, err := standin.Start(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.URL())
	<-ctx.Done()
	return nil
}
