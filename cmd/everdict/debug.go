package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/cmd/everdict/cli"
)

// serveProfiles serves the profiles of this process on a Unix socket that its user alone
// may open, until stop is called. An empty path is no socket.
func serveProfiles(ctx context.Context, path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	const next = "choose a path in a directory of your own with --debug-socket; it may have about 100 bytes"
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		err = private.Check(dir)
	}
	if err != nil {
		return nil, cli.Advise(fmt.Errorf("serve profiles at %s: %w", path, err), next)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err = os.Remove(path); err == nil {
			l, err = (&net.ListenConfig{}).Listen(ctx, "unix", path)
		}
	}
	if err == nil {
		if err = os.Chmod(path, 0o600); err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, cli.Advise(fmt.Errorf("serve profiles: %w", err), next)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(l)
		close(done)
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// abandoned says that a socket is of a process that is gone.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
