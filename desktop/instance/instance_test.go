package instance

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// short is a directory whose path leaves room for a socket's name.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "inst")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestOneOfMany(t *testing.T) {
	t.Parallel()
	path := filepath.Join(short(t), "run", "control.sock")
	var wg sync.WaitGroup
	got := make(chan *Instance, 20)
	for range 20 {
		wg.Go(func() {
			i, err := Acquire(path)
			if err == nil {
				got <- i
			} else if !errors.Is(err, ErrRunning) {
				t.Errorf("acquire: %v, want ErrRunning", err)
			}
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Fatalf("%d of 20 became the app, want 1", len(got))
	}
	first := <-got
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the second cannot reach the first: %v", err)
	}
	conn.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after the end: %v", err)
	}
	next, err := Acquire(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(short(t), "control.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close() // as kill -9 leaves it
	i, err := Acquire(path)
	if err != nil {
		t.Fatalf("a dead app's socket: %v", err)
	}
	defer i.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("nobody answers at the new socket: %v", err)
	}
	conn.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestDirectoryIsForTheUserAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(short(t), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if i, err := Acquire(filepath.Join(dir, "control.sock")); err == nil {
		i.Close()
		t.Error("a directory that others can write to was taken")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	i, err := Acquire(filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, want 0700", info.Mode())
	}
	link := filepath.Join(short(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if i, err := Acquire(filepath.Join(link, "control.sock")); err == nil {
		i.Close()
		t.Error("a symbolic link as directory was taken: somebody else could have made it")
	}
}
