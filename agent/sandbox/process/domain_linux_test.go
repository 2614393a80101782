package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
)

// nobody is a user whose processes are not the runner's.
const nobody = 65534

// openThroughAnother is a job of root's that becomes nobody, to open what processes of nobody show of their mounts, and
// then root again, to read a file through it. It prints how many processes it tried, and what it read.
func openThroughAnother(file string) {
	runtime.LockOSThread() // the user is the thread's
	all, err := procs()
	if err != nil {
		fmt.Println(err)
		return
	}
	tried := 0
	for _, p := range all {
		dir := fmt.Sprintf("/proc/%d", p.pid)
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != nobody {
			continue
		}
		tried++
		for _, way := range []string{"root", "cwd"} {
			if err := become(nobody); err != nil {
				fmt.Println(err)
				return
			}
			fd, err := unix.Open(filepath.Join(dir, way), unix.O_PATH|unix.O_CLOEXEC, 0)
			if err := become(0); err != nil {
				fmt.Println(err)
				return
			}
			if err != nil {
				continue
			}
			b := make([]byte, 100)
			f, err := unix.Openat(fd, strings.TrimPrefix(file, "/"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				n, _ := unix.Read(f, b)
				fmt.Printf("%s: %s\n", way, b[:n])
			}
		}
	}
	fmt.Println("tried", tried > 0)
}

// become changes the user and the group of the calling thread, and leaves a way back.
func become(id int) error {
	change := func(call uintptr) error {
		if _, _, errno := unix.RawSyscall(call, ^uintptr(0), uintptr(id), ^uintptr(0)); errno != 0 {
			return errno
		}
		return nil
	}
	if id == 0 {
		return errors.Join(change(unix.SYS_SETRESUID), change(unix.SYS_SETRESGID))
	}
	return errors.Join(change(unix.SYS_SETRESGID), change(unix.SYS_SETRESUID))
}

// startNobody starts a process of nobody's that sees everything that is mounted.
func startNobody(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func TestF27_HiddenFilesCannotBeReachedThroughAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	kinds(t, func(t *testing.T, kind string) {
		startNobody(t)
		// Not t.TempDir: what another user cannot enter it does not show either.
		hide, err := os.MkdirTemp("", "hidden")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(hide) })
		secret := filepath.Join(hide, "secret")
		if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "another-1." + kind, Dir: t.TempDir(), Hide: []string{hide},
			Env: []string{"PATH=/usr/bin:/bin", roleEnv + "=by another user", "EVERDICT_TEST_FILE=" + secret}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		if got := output(t, h, os.Args[0]); got != "tried true\n" {
			t.Errorf("a job of root's that became another user read %q", got)
		}
	})
}
