package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeProfiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "debug.sock")
	stop, err := serveProfiles(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want one that its user alone may open", info, err)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := c.Get("http://everdict/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), "TestServeProfiles") {
		t.Errorf("goroutines: %s, %v:\n%s", resp.Status, err, b)
	}
	if _, err := serveProfiles(t.Context(), path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second one on the same path: %v", err)
	}
	stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// A coordinator that was killed leaves its socket; what is no socket is left alone.
func TestServeProfilesWhereSomethingIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left := filepath.Join(dir, "left.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	stop, err := serveProfiles(t.Context(), left)
	if err != nil {
		t.Fatalf("on a socket that was left: %v", err)
	}
	stop()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serveProfiles(t.Context(), file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := serveProfiles(t.Context(), filepath.Join(dir, "open.sock")); err == nil {
		t.Error("a socket was made in a directory that others can write to")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file: %q, %v", b, err)
	}
	stop, err = serveProfiles(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
