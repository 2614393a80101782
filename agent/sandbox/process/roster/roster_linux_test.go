package roster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoster(t *testing.T, dir string) *Roster {
	t.Helper()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestAdd(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a, b, link := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "link")
	if err := errors.Join(os.Mkdir(a, 0o700), os.WriteFile(b, nil, 0o600), os.Symlink("a", link)); err != nil {
		t.Fatal(err)
	}
	r := newRoster(t, filepath.Join(root, "deep", "roster"))
	v, err := r.Version()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{b, a, link, a} {
		if err := r.Add(p); err != nil {
			t.Errorf("add %s: %v", p, err)
		}
	}
	// The same for who opens it later.
	if got, err := newRoster(t, r.Dir()).Paths(); err != nil || !slices.Equal(got, []string{a, b}) {
		t.Errorf("listed: %q, %v, want a and b, without the link", got, err)
	}
	if now, err := r.Version(); err != nil || now.Equal(v) {
		t.Errorf("the version is still %v, %v", now, err)
	}
	if err := r.Add(filepath.Join(root, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what does not exist: %v", err)
	}
	if err := errors.Join(os.Remove(b), r.Add(a)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Paths(); err != nil || !slices.Equal(got, []string{a}) {
		t.Errorf("after b is gone: %q, %v", got, err)
	}
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"a file":  {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"a link":  {func(dir string) error { return os.Symlink(filepath.Dir(dir), dir) }, "not a directory"},
		"open":    {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) }, "open to other users"},
		"another": {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)) }, "belongs to user 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "roster")
			if err := c.make(dir); errors.Is(err, unix.EPERM) {
				t.Skip("only root can give a directory away")
			} else if err != nil {
				t.Fatal(err)
			}
			if r, err := Open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", r, err, c.want)
			}
		})
	}
}

func TestTell(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than a socket's address may be
	r := newRoster(t, dir)
	var looks atomic.Int64
	listen := func(name string, answer ...error) *Listener {
		t.Helper()
		l, err := newRoster(t, dir).Listen(name, func() []error {
			looks.Add(1)
			return answer
		})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := r.Tell(t.Context()); err != nil {
		t.Errorf("nobody there: %v", err)
	}
	one, two := listen("one"), listen("two", errors.New("busy\nthere"))
	err := r.Tell(t.Context())
	if err == nil || !strings.Contains(err.Error(), "busy there") || strings.Contains(err.Error(), "\n") || looks.Load() != 2 {
		t.Errorf("two others, one of which cannot hide something: %v, looks %d", err, looks.Load())
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Tell(t.Context()); err != nil || looks.Load() != 3 {
		t.Errorf("one other: %v, looks %d", err, looks.Load())
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := r.names(""); err != nil || len(names) != 0 {
		t.Errorf("after all have gone there is %q, %v", names, err)
	}
}

func TestTell_TheDeadAndTheStopped(t *testing.T) {
	t.Parallel()
	r := newRoster(t, filepath.Join(t.TempDir(), "roster"))
	raw := func(name string) *net.UnixListener {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.address(socketPrefix + name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	stopped := raw("stopped")
	defer stopped.Close()
	if err := raw("dead").Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := r.Tell(ctx)
	if err == nil || !strings.Contains(err.Error(), "(stopped)") || strings.Contains(err.Error(), "(dead)") {
		t.Errorf("one is dead and one does not answer: %v", err)
	}
	if names, err := r.names(socketPrefix); err != nil || !slices.Equal(names, []string{socketPrefix + "stopped"}) {
		t.Errorf("left: %q, %v", names, err)
	}
}
