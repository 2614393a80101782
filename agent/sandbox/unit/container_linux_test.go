package unit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asFirst is set in a process that a test has started as the first of a PID namespace.
const asFirst = "EVERDICT_TEST_FIRST"

func TestMain(m *testing.M) {
	if os.Getenv(asFirst) == "" {
		os.Exit(m.Run())
	}
	if err := first(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("empty")
}

// first leaves what a job may leave, and removes it.
func first() error {
	for _, script := range []string{"setsid sleep 1001 & setsid setsid sleep 1002 & trap '' TERM HUP; sleep 1003 & wait", "next() { (sleep 0.001; next) & }; next; sleep 1004"} {
		if err := exec.Command("sh", "-c", script).Start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := killOthers(ctx); err != nil {
		return err
	}
	if err := unix.Kill(-1, 0); !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("something is left in the namespace: %v", err)
	}
	before, err := readState()
	if err != nil {
		return err
	}
	if left, err := sysvLeft("shm"); err != nil || left {
		return fmt.Errorf("shared memory in a new namespace: %v, %v", left, err)
	}
	if _, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); err != nil {
		return err
	}
	if left, err := sysvLeft("shm"); err != nil || !left {
		return fmt.Errorf("shared memory that was made: %v, %v; want it seen", left, err)
	}
	limit := unix.Rlimit{Cur: 100, Max: 100}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if now, err := readState(); err != nil || now == before {
		return fmt.Errorf("a limit that was changed is not seen: %v", err)
	}
	return nil
}

func TestWhatAJobLeavesInTheKernel(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asFirst+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "empty\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEmptyDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	outside := filepath.Join(t.TempDir(), "kept")
	err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "f"), nil, 0), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(dir, "link")), os.Chmod(deep, 0), os.Chmod(filepath.Dir(deep), 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := emptyDir(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("what a link pointed to is gone: %v", err)
	}
	if err := emptyDir(t.Context(), filepath.Join(dir, "none")); err != nil {
		t.Errorf("one that is not there: %v", err)
	}
}

// A process of a machine is not alone in it, and is not used again.
func TestOpenContainerOfAMachine(t *testing.T) {
	t.Parallel()
	if _, err := OpenContainer(t.TempDir()); err == nil || !strings.Contains(err.Error(), "first process") {
		t.Errorf("%v, want it refused", err)
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`/a`: "/a", `/a\040b\134`: `/a b\`, `/\04`: `/\04`} {
		if got := unescape(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
