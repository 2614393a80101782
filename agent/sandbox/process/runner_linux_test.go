package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process/userns"
)

// These tests start this test binary as a runner of its own, to look at it from outside: at its death, and at what
// its jobs can see of it.

const roleEnv = "EVERDICT_TEST_ROLE"

func init() {
	switch role := os.Getenv(roleEnv); role {
	case "":
	case "by handle":
		openByHandle(os.Getenv("EVERDICT_TEST_HANDLE"))
		os.Exit(0)
	case "tables":
		if err := tablesMain(os.Getenv("EVERDICT_TEST_DIR"), os.Getenv("EVERDICT_TEST_PID")); err != nil {
			fmt.Println("FAILED", err)
		}
		os.Exit(0)
	case "pry":
		pryOpen(os.Args[1:])
		os.Exit(0)
	case "start elsewhere":
		startElsewhere()
		os.Exit(0)
	case "through others":
		openThroughOthers(os.Getenv("EVERDICT_TEST_FILE"))
		os.Exit(0)
	case "seclude":
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		fmt.Println(userns.Inside(), Seclude(ctx, true))
		os.Exit(0)
	default:
		if err := runnerMain(role, os.Getenv("EVERDICT_TEST_KIND"), os.Getenv("EVERDICT_TEST_DIR")); err != nil {
			fmt.Println("FAILED", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// openByHandle is a job of root's that opens a file without its path.
func openByHandle(handle string) {
	var kind int32
	var b []byte
	if _, err := fmt.Sscanf(handle, "%d:%x", &kind, &b); err != nil {
		fmt.Println(err)
		return
	}
	fd, err := unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(kind, b), unix.O_RDONLY)
	if err == nil {
		n, _ := unix.Read(fd, b)
		fmt.Printf("%s\n", b[:n])
		return
	}
	fmt.Println(err)
}

// attemptOf is the attempt of a runner that a test looks at. Those of all ways run at the same time, and none may sweep
// what another one has left.
func attemptOf(role, kind string, noLandlock bool) string {
	return fmt.Sprintf("run_%s_%s_%v.1", role, kind, noLandlock)
}

// runnerMain is the life of the runner that a test looks at.
func runnerMain(role, kind, dir string) error {
	ctx := context.Background()
	if role == "elsewhere" {
		// In a mount namespace of its own the same files are to be seen by other paths, too.
		root := filepath.Dir(dir)
		for from, to := range map[string]string{root: "other", filepath.Join(root, "secrets"): "third"} {
			if err := unix.Mount(from, filepath.Join(root, to), "", unix.MS_BIND, ""); err != nil {
				return err
			}
		}
	}
	if err := HideSelf(); err != nil {
		return err
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || v != 0 {
		return fmt.Errorf("after HideSelf the process is dumpable: %d, %v", v, err)
	}
	noLandlock := os.Getenv(withoutLandlockEnv) == "true"
	d := New(Config{Enclosure: kind, noLandlock: noLandlock})
	h, err := d.Start(ctx, sandbox.Spec{Attempt: attemptOf(role, kind, noLandlock), Dir: dir, Env: []string{"PATH=/usr/bin:/bin"},
		Hide: []string{filepath.Join(dir, "..", "secrets")}})
	if err != nil {
		return err
	}
	switch role {
	case "spy":
		// What a curious job reads. It reads first and searches then: the search's own arguments hold the pattern.
		c := sandbox.Command{Args: []string{"sh", "-c", `all=$(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n')
echo "$all" | grep -a "rnr_$((40+` + number(kind) + `))"; echo files; cat ../secrets/* 2>/dev/null; ls ../secrets; cat /proc/self/fd/3 2>/dev/null; echo end`},
			Stdout: os.Stdout, Stderr: os.Stderr}
		p, err := h.Exec(ctx, c)
		if err != nil {
			return err
		}
		if _, err := p.Wait(); err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
		return d.Close()
	case "elsewhere":
		p, err := h.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", "cat ../secrets/credential ../other/secrets/credential ../third/credential; echo end"}, Stdout: os.Stdout})
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return errors.Join(err, h.Release(ctx), d.Close())
	case "stopped":
		return stoppedMain(d, h)
	case "unguarded":
		d.machine.guard.stop()
	}
	_, err = h.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", leaveBehind}})
	if err != nil {
		return err
	}
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin) // until the test kills it
	return err
}

// number tells the credentials of runners that are tested at the same time apart: a job is only kept from its own.
func number(kind string) string {
	if kind == EnclosureCgroup {
		return "2"
	}
	return "3"
}

// leaveBehind holds the pipe "r" of the workspace with a main process and two daemons.
const leaveBehind = `stay='trap "" INT TERM HUP; exec 9>r; printf x >&9; while :; do sleep 0.05; done'
(setsid sh -c "$stay" </dev/null >/dev/null 2>&1 &)
(setsid sh -c "(setsid sh -c '$stay' &)" &)
eval "$stay"`

// startRunner starts this binary as a runner and waits until its job runs.
func startRunner(t *testing.T, role, kind, dir string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role, "EVERDICT_TEST_KIND="+kind, "EVERDICT_TEST_DIR="+dir)...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("the runner said %q, %v", line, err)
	}
	return cmd
}

// holders opens the pipe of a workspace and returns a function that waits for the last holder's end.
func holders(t *testing.T, dir string) (joined func(n int), gone func(d time.Duration) error) {
	t.Helper()
	path := filepath.Join(dir, "r")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	joined = func(n int) {
		t.Helper()
		buf := make([]byte, 1)
		deadline := time.Now().Add(20 * time.Second)
		for n > 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d processes did not join", n)
			}
			_ = f.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			k, _ := f.Read(buf)
			n -= k
		}
	}
	gone = func(d time.Duration) error {
		_ = f.SetReadDeadline(time.Now().Add(d))
		for buf := make([]byte, 64); ; {
			if _, err := f.Read(buf); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return joined, gone
}

// kinds runs a test for each enclosure that this machine offers.
func kinds(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range []string{EnclosureCgroup, EnclosureReaper} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t, Config{Enclosure: kind})
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			f(t, kind)
		})
	}
}

// ways runs a test for each enclosure, with jobs kept apart by Landlock, if the kernel has it, and by a PID namespace.
func ways(t *testing.T, f func(t *testing.T, cfg Config)) {
	kinds(t, func(t *testing.T, kind string) {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("without Landlock %v", without), func(t *testing.T) {
				t.Parallel()
				f(t, Config{Enclosure: kind, noLandlock: without})
			})
		}
	})
}

// withoutLandlockEnv has a runner of a test believe that the kernel has no Landlock.
const withoutLandlockEnv = "EVERDICT_TEST_WITHOUT_LANDLOCK"

func withoutLandlock(cfg Config) string {
	return fmt.Sprintf("%s=%v", withoutLandlockEnv, cfg.noLandlock)
}

func TestP3_P6_JobsDieWithAKilledRunner(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, cfg Config) {
		dir := t.TempDir()
		joined, gone := holders(t, dir)
		runner := startRunner(t, "guarded", cfg.Enclosure, dir, withoutLandlock(cfg))
		joined(3)
		if err := runner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := gone(10 * time.Second); err != nil {
			t.Errorf("10 s after kill -9 of the runner its job is alive: %v", err)
		}
		// What the guard cannot do is to remove the empty cgroups: the next runner's sweep does.
		_ = runner.Wait()
		d := newDriver(t, cfg)
		defer d.Close()
		if _, err := d.Sweep(t.Context(), func(a string) bool { return a != attemptOf("guarded", cfg.Enclosure, cfg.noLandlock) }); err != nil {
			t.Errorf("sweep: %v", err)
		}
		if root := d.machine.cgroup; root != nil {
			left, err := filepath.Glob(filepath.Join(filepath.Dir(root.dir), fmt.Sprintf("*-%d-*", runner.Process.Pid)))
			if err != nil || len(left) != 0 {
				t.Errorf("after the sweep %q is left, %v", left, err)
			}
		}
	})
}

func TestP6_SweepEndsWhatADeadRunnerLeft(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, kind string) {
		dir := t.TempDir()
		joined, gone := holders(t, dir)
		runner := startRunner(t, "unguarded", kind, dir)
		joined(3)
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		left := attemptOf("unguarded", kind, false)
		only := func(attempt string) bool { return attempt != left }
		sweep := func(keep func(string) bool) (mine []sandbox.Swept) {
			t.Helper()
			swept, err := d.Sweep(t.Context(), keep)
			if err != nil {
				t.Errorf("sweep: %v", err)
			}
			for _, s := range swept {
				if s.Attempt == left {
					mine = append(mine, s)
				}
			}
			return mine
		}
		if got := sweep(func(string) bool { return true }); got != nil {
			t.Errorf("a sweep that keeps everything ended %+v", got)
		}
		if err := runner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = runner.Wait()
		if got := sweep(func(string) bool { return true }); got != nil {
			t.Errorf("a sweep that keeps everything ended %+v", got)
		}
		if got := sweep(only); len(got) == 0 {
			t.Error("the sweep does not tell what it has ended")
		}
		if err := gone(time.Second); err != nil {
			t.Errorf("after the sweep the dead runner's job is alive: %v", err)
		}
		if got := sweep(only); got != nil {
			t.Errorf("a second sweep found %+v", got)
		}
	})
}

func TestF27_JobCannotReadTheRunnersCredential(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, cfg Config) {
		kind := cfg.Enclosure
		root := t.TempDir()
		dir, secrets := filepath.Join(root, "work"), filepath.Join(root, "secrets")
		for _, p := range []string{dir, secrets} {
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		token := "rnr_4" + number(kind)
		if err := os.WriteFile(filepath.Join(secrets, "credential"), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleEnv+"=spy", "EVERDICT_TEST_KIND="+kind, "EVERDICT_TEST_DIR="+dir, "TOKEN="+token, withoutLandlock(cfg))
		// Whoever starts a runner may have something open.
		inherited, err := os.Open(filepath.Join(secrets, "credential"))
		if err != nil {
			t.Fatal(err)
		}
		defer inherited.Close()
		cmd.ExtraFiles = []*os.File{inherited}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("runner: %v\n%s", err, out)
		}
		proc, files, ok := strings.Cut(string(out), "files\n")
		if !ok || proc != "" {
			t.Errorf("the job saw of the runner in /proc: %q", proc)
		}
		// Without privileges files cannot be hidden, and Info says so: TestF27_HideIsHonest.
		if privileged(t) && (strings.Contains(files, token) || strings.Contains(files, "credential\n") || !strings.HasSuffix(files, "end\n")) {
			t.Errorf("the job saw of the runner's files: %q", files)
		}
	})
}

// privileged reports whether this process may make mount namespaces.
func privileged(t *testing.T) bool {
	t.Helper()
	d := newDriver(t, Config{})
	defer d.Close()
	hide := t.TempDir()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "probe-hide", Dir: t.TempDir(), Hide: []string{hide}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	return len(h.Info().Hidden) == 1
}

// output runs a script and returns what it printed.
func output(t testing.TB, h sandbox.ComputeHandle, script string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("exec %q: %v", script, err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatalf("wait: %v", err)
	}
	return out.String()
}

func TestF27_HiddenFilesStayHidden(t *testing.T) {
	t.Parallel()
	if !privileged(t) {
		t.Skip("this machine cannot hide paths")
	}
	d := newDriver(t, Config{})
	defer d.Close()
	root := t.TempDir()
	file, later, link, dir := filepath.Join(root, "file"), filepath.Join(root, "later"), filepath.Join(root, "link"), filepath.Join(root, "dir")
	put := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file)
	put(filepath.Join(root, "target"))
	if err := errors.Join(os.Symlink("target", link), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(dir, "inside"))
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "hide-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin", "ROOT=" + root},
		Hide: []string{file, later, link, dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	if i := h.Info(); len(i.Hidden) != 4 || len(i.NotHidden) != 0 {
		t.Errorf("info says hidden %q, not hidden %+v", i.Hidden, i.NotHidden)
	}
	look := `cat "$ROOT"/file "$ROOT"/later "$ROOT"/link "$ROOT"/target "$ROOT"/dir/inside 2>/dev/null; ls "$ROOT/dir"; echo end`
	if got := output(t, h, look); got != "end\n" {
		t.Errorf("the job read %q", got)
	}
	// The credential is rotated by a rename, and the later file comes into being: both before the next command.
	put(filepath.Join(root, "new"))
	if err := os.Rename(filepath.Join(root, "new"), file); err != nil {
		t.Fatal(err)
	}
	put(later)
	put(filepath.Join(dir, "inside2"))
	if got := output(t, h, look); got != "end\n" {
		t.Errorf("after the rotation the job read %q", got)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "secret" {
		t.Errorf("the runner itself reads %q, %v", b, err)
	}
	_, err = d.Start(t.Context(), sandbox.Spec{Attempt: "hide-2", Dir: filepath.Join(dir), Hide: []string{root}})
	var bad *sandbox.SpecError
	if !errors.As(err, &bad) {
		t.Errorf("a workspace inside a hidden path: %v, wanted *SpecError", err)
	}
}

func TestF27_HiddenWhereverItIsMounted(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	root := t.TempDir()
	for _, p := range []string{"work", "secrets", "other", "third"} {
		if err := os.Mkdir(filepath.Join(root, p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "secrets", "credential"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=elsewhere", "EVERDICT_TEST_DIR="+filepath.Join(root, "work"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "end\n" {
		t.Errorf("by the paths of three mounts a job read %q, %v", out, err)
	}
}

func TestF27_HiddenFilesCannotBeOpenedByHandle(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may open by handle")
	}
	d := newDriver(t, Config{})
	defer d.Close()
	dir, self := t.TempDir(), os.Args[0]
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, secret, 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "handle-1", Dir: t.TempDir(), Hide: []string{dir},
		Env: []string{"PATH=/usr/bin:/bin", roleEnv + "=by handle", fmt.Sprintf("EVERDICT_TEST_HANDLE=%d:%x", handle.Type(), handle.Bytes())}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	if got := output(t, h, self); got != "operation not permitted\n" {
		t.Errorf("by its handle a job opened a hidden file: %q", got)
	}
}

// A fresh image would not know that it is to end.
func TestSeclude_NotAfterTheEnd(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "seclude")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self := filepath.Join(dir, "test")
	if out, err := exec.Command("cp", os.Args[0], self).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(self, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"=seclude")
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "false context canceled\n" {
		t.Errorf("after the end of its context Seclude came to %q, %v", out, err)
	}
}

func TestF27_HideIsHonest(t *testing.T) {
	t.Parallel()
	d := newDriver(t, Config{NoMask: true})
	defer d.Close()
	hide := t.TempDir()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "honest-1", Dir: t.TempDir(), Hide: []string{hide}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	if i := h.Info(); len(i.Hidden) != 0 || len(i.NotHidden) != 1 || i.NotHidden[0].Path != hide || i.NotHidden[0].Reason == "" || !i.ActsAsUser {
		t.Errorf("info %+v: wanted the path that is not hidden, with the reason", i)
	}
}
