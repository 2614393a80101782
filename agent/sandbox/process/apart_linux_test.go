package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
)

// tries is what a hostile job of root's does to see what is hidden, as root and as another user. It prints what it has
// got at, each with the number of finds. The secret's text is nowhere in it. PIDS are processes outside.
const tries = `
w=rnr_; w=${w}secret; nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
n=0
found() { n=$((n + 1)); c=$(cat "$2" 2>/dev/null | tr '\0' '\n' | grep -ac "$w"); [ "$c" = 0 ] || echo "$1: $c"; }
mkdir p b
for as in "" "$nobody"; do
  $as sh -c 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline' >got 2>/dev/null; found "environ $as" got
  $as sh -c 'for p in /proc/[0-9]*; do echo $p/root$SECRET $p/cwd$SECRET $p/task/*/root$SECRET; done | xargs cat' >got 2>/dev/null; found "through processes $as" got
  $as sh -c 'for p in $PIDS; do cat /proc/$p/root$SECRET /proc/$p/fd/0 /proc/$p/environ; done' >got 2>/dev/null; found "through processes by number $as" got
  for p in $PIDS; do
    $as kill -s 0 "$p" 2>/dev/null && echo "signal $as: $p"
    $as nsenter -t "$p" -m cat $SECRET
    $as nsenter -t "$p" -p -m cat $SECRET
  done >got 2>/dev/null; found "nsenter $as" got
  $as cat $SECRET >got 2>/dev/null; found "path $as" got
  $as env EVERDICT_TEST_ROLE=pry "$SELF" $PIDS
done
[ -z "$MOUNTS" ] || {
mount -t proc proc p 2>/dev/null && echo mounted proc
cat p/[0-9]*/root$SECRET >got 2>/dev/null; found "another proc" got
mount --bind "$(dirname $SECRET)" b 2>/dev/null && echo mounted
cat b/* >got 2>/dev/null; found bind got
umount "$(dirname $SECRET)" 2>/dev/null && echo uncovered
umount -l /proc 2>/dev/null && echo uncovered proc
unshare -m sh -c "umount $(dirname $SECRET); umount /proc; cat $SECRET /proc/*/root$SECRET" >got 2>/dev/null; found "namespace of mounts" got
unshare -Urmpf --mount-proc sh -c "umount $(dirname $SECRET); umount /proc; cat $SECRET /proc/*/root$SECRET" >got 2>/dev/null; found "namespace of users" got
}
rm got; echo tried $n
`

// pryOpen is a part of it that no shell can do: to trace processes, and to take from them what they have open.
func pryOpen(pids []string) {
	runtime.LockOSThread()
	for _, s := range pids {
		pid, err := strconv.Atoi(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		if err := unix.PtraceSeize(pid); err == nil {
			fmt.Println("traced", pid)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if got, err := unix.PidfdGetfd(fd, 0, 0); err == nil {
			b := make([]byte, 100)
			n, _ := unix.Pread(got, b, 0)
			fmt.Printf("taken from %d: %s\n", pid, b[:n])
		}
		if err := unix.Setns(fd, unix.CLONE_NEWNS); err == nil {
			fmt.Println("joined", pid)
		}
	}
}

// outsider starts a process of a user's that has the secret in its environment and open, and sees everything.
func outsider(t *testing.T, uid int, secret string) int {
	t.Helper()
	f, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir, cmd.Stdin, cmd.Env = "/", f, []string{"TOKEN=rnr_" + "secret"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// openDir makes a directory into which everybody may come: what hides the files in it is what is tested.
func openDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func putSecret(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("rnr_"+"secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestF27_P12_AHostileJobOfRootsSeesNothing(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this is not root")
	}
	ways(t, func(t *testing.T, cfg Config) {
		hide := openDir(t, "hidden")
		secret := putSecret(t, hide)
		self := filepath.Join(openDir(t, "self"), "test")
		if out, err := exec.Command("cp", os.Args[0], self).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		pids := fmt.Sprint(outsider(t, 0, secret), " ", outsider(t, nobody, secret), " ", os.Getpid())
		// mounts: it tries what would change the mounts of this machine if nothing kept it from that.
		try := func(cfg Config, attempt, mounts string) string {
			d := newDriver(t, cfg)
			defer d.Close()
			h, err := d.Start(t.Context(), sandbox.Spec{Attempt: attempt, Dir: openDir(t, "work"), Hide: []string{hide},
				Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SECRET=" + secret, "SELF=" + self, "PIDS=" + pids, "MOUNTS=" + mounts}})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release(context.Background())
			if !cfg.NoMask {
				says(t, cfg, h)
			}
			return output(t, h, tries)
		}
		if got := try(cfg, "hostile-1", "yes"); got != "tried 14\n" {
			t.Errorf("a job of root's got at:\n%s", got)
		}
		// The tries are good ones: nothing keeps this job from succeeding.
		cfg.NoMask = true
		got := try(cfg, "hostile-2", "")
		for _, want := range []string{"environ : ", "through processes : ", "through processes setpriv", "path : ", "traced ", "taken from ", "tried 10"} {
			if !strings.Contains(got, want) {
				t.Errorf("a job from which nothing is hidden did not come to %q:\n%s", want, got)
			}
		}
	})
}
