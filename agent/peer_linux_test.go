package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The end of a connection is told from that of what comes over it.
func TestAwaitClose(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ask") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	synctest.Test(t, func(t *testing.T) {
		wait := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			awaitClose(ctx, here)
			return ctx.Err()
		}
		if wait(time.Minute) == nil {
			t.Error("an open connection seems closed")
		}
		if err := there.(*net.UnixConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if wait(time.Minute) == nil {
			t.Error("a half that is closed seems to be the whole")
		}
		if err := there.Close(); err != nil {
			t.Error(err)
		}
		if wait(time.Minute) != nil {
			t.Error("a closed connection seems open")
		}
	})
}
