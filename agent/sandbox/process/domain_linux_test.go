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

// openThroughOthers is a job of root's that opens what other processes show of their mounts, as their user, and reads a
// file through it, as root again. It prints what it read, and whether there were processes of root's and of nobody's.
func openThroughOthers(file string) {
	runtime.LockOSThread() // the user is the thread's
	all, err := procs()
	if err != nil {
		fmt.Println(err)
		return
	}
	tried := make(map[uint32]bool)
	for _, p := range all {
		dir := fmt.Sprintf("/proc/%d", p.pid)
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != 0 && st.Uid != nobody {
			continue
		}
		tried[st.Uid] = true
		for _, way := range []string{"root", "cwd"} {
			err1 := become(int(st.Uid))
			fd, err := unix.Open(filepath.Join(dir, way), unix.O_PATH|unix.O_CLOEXEC, 0)
			if err := errors.Join(err1, become(0)); err != nil {
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
				fmt.Printf("%d %s: %s\n", st.Uid, way, b[:n])
			}
		}
	}
	fmt.Println("tried", tried[0], tried[nobody])
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

func TestF27_HiddenFilesCannotBeReachedThroughOthers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	ways(t, func(t *testing.T, cfg Config) {
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
		d := newDriver(t, cfg)
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "another-1", Dir: t.TempDir(), Hide: []string{hide},
			Env: []string{"PATH=/usr/bin:/bin", roleEnv + "=through others", "EVERDICT_TEST_FILE=" + secret}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		// A job of root's from which something else is hidden has no right that this one lacks.
		other, err := d.Start(t.Context(), sandbox.Spec{Attempt: "another-2", Dir: t.TempDir(), Hide: []string{t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Release(context.Background())
		if _, err := other.Exec(t.Context(), sandbox.Command{Args: []string{"/bin/sleep", "1000"}}); err != nil {
			t.Fatal(err)
		}
		says(t, cfg, h)
		// In a namespace of its own there is nobody whom it could try but its like.
		want := fmt.Sprintf("tried true %v\n", !cfg.noLandlock && lacking(askLandlock) == nil)
		if got := output(t, h, os.Args[0]); got != want {
			t.Errorf("through the processes of others a job of root's read %q, want %q", got, want)
		}
	})
}

// says checks what the record says of how jobs are kept apart.
func says(t *testing.T, cfg Config, h sandbox.ComputeHandle) {
	t.Helper()
	notes := strings.Join(h.Info().Notes, "\n")
	without := cfg.noLandlock || lacking(askLandlock) != nil
	if strings.Contains(notes, "PID namespace") != without || strings.Contains(notes, "becomes another user") {
		t.Errorf("without Landlock: %v, and the notes are %q", without, notes)
	}
}

func TestP3_AJobCannotSignalItsRunner(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this is not root")
	}
	ways(t, func(t *testing.T, cfg Config) {
		d := newDriver(t, cfg)
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "signal-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Hide: []string{t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		says(t, cfg, h)
		// One command leaves a daemon, and the next finds it as it would without a cover.
		output(t, h, `(setsid sh -c 'echo $$ >new; mv new daemon; exec sleep 1000' </dev/null >/dev/null 2>&1 &); while [ ! -e daemon ]; do sleep 0.01; done`)
		script := fmt.Sprintf(`for p in %d %d "$(cat daemon)"; do kill -s 0 $p 2>/dev/null && echo yes || echo no; done`, os.Getpid(), d.machine.guard.cmd.Process.Pid)
		if got := output(t, h, script); got != "no\nno\nyes\n" {
			t.Errorf("may a job signal its runner, the guard, and what a job has started: %q", got)
		}
	})
}

func TestLacking(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version, mended uintptr
		errno, second   unix.Errno
		want            string
	}{
		"all there":        {version: 7, mended: 7},
		"not built in":     {errno: unix.ENOSYS, want: "no Landlock"},
		"switched off":     {errno: unix.EOPNOTSUPP, want: "switched off"},
		"too old":          {version: 5, want: "no scopes"},
		"of unknown flaws": {version: 6, second: unix.EINVAL, want: "threads"},
		"not mended":       {version: 6, mended: 5, want: "threads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := lacking(func(what uintptr) (uintptr, unix.Errno) {
				if what == unix.LANDLOCK_CREATE_RULESET_VERSION {
					return c.version, c.errno
				}
				return c.mended, c.second
			})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
