package process

import (
	"context"
	"errors"
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
// got at, each with the number of finds. The secret's text is nowhere in it, nor in its arguments, which everybody sees. PIDS are processes outside.
const tries = `
w=rnr_; echo "${w}secret" >what; nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
n=0
found() { n=$((n + 1)); c=$(cat "$2" 2>/dev/null | tr '\0' '\n' | grep -acf what); [ "$c" = 0 ] || echo "$1: $c"; }
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

// tablesMain is a runner in a mount namespace of its own, where the process table is mounted at other places, too, and
// something over parts of it, as container engines do. It prints what its jobs see of that.
func tablesMain(dir, victim string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	mounts := []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"", "/", "", unix.MS_SHARED | unix.MS_REC}, // as systemd leaves it: later mounts reach the jobs
		{"proc", at("chroot"), "proc", 0},
		{"/proc/" + victim, at("one"), "", unix.MS_BIND},
		{"/proc/sys", "/proc/sys", "", unix.MS_BIND},
		{"", "/proc/sys", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{"none", "/proc/bus", "tmpfs", 0},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	ctx := context.Background()
	d := New(Config{noLandlock: true})
	h, err := d.Start(ctx, sandbox.Spec{Attempt: "tables-1", Dir: at("work"), Hide: []string{at("secrets")},
		Env: []string{"PATH=/usr/bin:/bin", "SECRET=" + at("secrets/secret"), "PID=" + victim}})
	if err != nil {
		return err
	}
	run := func(script string) error {
		p, err := h.Exec(ctx, sandbox.Command{Args: []string{"sh", "-c", script}, Stdout: os.Stdout, Stderr: os.Stdout})
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}
	const nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups "
	// Both processes see what lies at the other places; the one of the first command does so for as long as it lives.
	look := nobody + `sh -c 'cat ../*/root$SECRET ../*/[0-9]*/root$SECRET ../*/[0-9]*/cwd$SECRET' 2>/dev/null; `
	err = run(look + `ls /proc/bus; test -w /proc/sys/vm/swappiness && echo writable; echo chroot $(cat ../chroot/1/comm); ` +
		`test -e ../chroot/$PID && echo the machine; test -e ../one/root && echo one; echo first`)
	if err == nil {
		err = unix.Mount("proc", at("late"), "proc", 0, "")
	}
	if err == nil {
		err = unix.Mount(dir, at("again"), "", unix.MS_BIND, "")
	}
	if err == nil {
		err = run(look + `cat ../late/1/comm; cat ../again/secrets/secret 2>/dev/null; echo second`)
	}
	return errors.Join(err, h.Release(ctx), d.Close())
}

func TestF27_EveryProcessTableIsTheJobsOwn(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := openDir(t, "tables")
	for _, p := range []string{"work", "secrets", "chroot", "one", "late", "again"} {
		if err := os.Mkdir(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	victim := outsider(t, nobody, putSecret(t, filepath.Join(dir, "secrets")))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=tables", "EVERDICT_TEST_DIR="+dir, fmt.Sprint("EVERDICT_TEST_PID=", victim))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if want := "chroot everdict-init\nfirst\neverdict-init\nsecond\n"; err != nil || string(out) != want {
		t.Errorf("the job saw %q, %v, want %q", out, err, want)
	}
}

func TestOrphansInANamespaceAreCollected(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("others need no PID namespace")
	}
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind, noLandlock: true})
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "orphans-2", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Hide: []string{t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		if got := output(t, h, `for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'exec 2>&- >&-; while [ ! -e go ]; do sleep 0.01; done' & ); done; echo left`); got != "left\n" {
			t.Fatal(got)
		}
		first := h.(*handle).spawn.mask.(*mountMask).first.Pid()
		orphans := func() (alive, dead int) {
			all, err := procs()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				switch {
				case p.ppid != first:
				case p.dead():
					dead++
				default:
					alive++
				}
			}
			return alive, dead
		}
		eventually(t, "number 1 has nine children", func() bool { alive, _ := orphans(); return alive == 9 })
		output(t, h, "touch go")
		eventually(t, "they are gone", func() bool { alive, dead := orphans(); return alive+dead == 0 })
	})
}

// Number 1 can be ended from outside. Everything that it held ends with it, and the next sandbox gets another.
func TestTheEndOfANamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("others need no PID namespace")
	}
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind, noLandlock: true})
		defer d.Close()
		spec := sandbox.Spec{Attempt: "end-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Hide: []string{t.TempDir()}}
		h, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		p, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		first := h.(*handle).spawn.mask.(*mountMask).first
		if err := first.Kill(); err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit.Signal != "SIGKILL" {
			t.Errorf("the command ended with %+v, %v", exit, err)
		}
		eventually(t, "the end is noticed", first.Ended)
		if _, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "PID namespace of the commands has ended") {
			t.Errorf("another command there: %v", err)
		}
		spec.Attempt = "end-2"
		next, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Release(context.Background())
		if got := output(t, next, "echo on"); got != "on\n" {
			t.Errorf("in the next sandbox a command said %q", got)
		}
	})
}

// A job of one runner is running when another runner of the same user begins to keep a secret.
func TestF27_P12_FilesOfAnotherRunnerAreHidden(t *testing.T) {
	t.Parallel()
	if !privileged(t) {
		t.Skip("this machine cannot hide paths")
	}
	ways(t, func(t *testing.T, cfg Config) {
		root := t.TempDir()
		at := func(name string) string { return filepath.Join(root, name) }
		work, other, list := at("work"), at("other"), at("list")
		for _, dir := range []string{work, other, at("own"), at("bind")} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(other, "before"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Roster = list
		start := func(d *Driver, attempt, dir string) sandbox.ComputeHandle {
			t.Helper()
			h, err := d.Start(t.Context(), sandbox.Spec{Attempt: attempt, Dir: dir, Hide: []string{at("own")}, Env: []string{"PATH=/usr/bin:/bin", "ROOT=" + root}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { h.Release(context.Background()) })
			return h
		}
		d := newDriver(t, cfg)
		defer d.Close()
		h := start(d, "one-1", work)
		p, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c",
			`while [ ! -e stop ]; do ls "$ROOT/other" "$ROOT/list" >>seen 2>/dev/null; cat "$ROOT"/other/credential >>seen 2>/dev/null; echo . >>rounds; done`}})
		if err != nil {
			t.Fatal(err)
		}
		size := func(name string) int64 {
			st, err := os.Stat(filepath.Join(work, name))
			if err != nil {
				return 0
			}
			return st.Size()
		}
		more := func(what string) {
			t.Helper()
			from := size("rounds")
			eventually(t, what, func() bool { return size("rounds") > from+20 })
		}
		more("the job looks")
		if err := Enlist(t.Context(), list, other); err != nil {
			t.Fatal(err)
		}
		more("what had the directory open has ended") // for that nothing is covered
		if err := os.WriteFile(filepath.Join(other, "credential"), []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		more("the job looks on")
		if err := os.WriteFile(filepath.Join(work, "stop"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		seen := readString(filepath.Join(work, "seen"))
		if !strings.Contains(seen, "before\n") {
			t.Error("the job did not see the directory while it was nobody's")
		}
		for _, secret := range []string{"secret", "credential", "path-", "runner-"} {
			if strings.Contains(seen, secret) {
				t.Errorf("the running job saw %q", secret)
			}
		}
		// It stays hidden without its runner, in a runner that comes later, and after it was made anew.
		later := newDriver(t, cfg)
		defer later.Close()
		look := `cat "$ROOT"/other/* "$ROOT"/list/* 2>/dev/null; ls "$ROOT/list"; (: >"$ROOT/list/path-x") 2>/dev/null && echo written; echo end`
		for attempt, d := range map[string]*Driver{"one-2": d, "later-1": later} {
			if got := output(t, start(d, attempt, work), look); got != "end\n" {
				t.Errorf("%s saw %q", attempt, got)
			}
		}
		if err := errors.Join(os.RemoveAll(other), os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "credential"), []byte("secret\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := output(t, h, look); got != "end\n" {
			t.Errorf("made anew: %q", got)
		}
		// A workspace is not hidden from its own job, and whoever lists it is told.
		if err := Enlist(t.Context(), list, root); err == nil || !strings.Contains(err.Error(), "the workspace "+work+" lies in it") {
			t.Errorf("to list what a workspace lies in: %v", err)
		}
		if got := output(t, h, "echo on >on; cat on"); got != "on\n" {
			t.Errorf("in its workspace the job said %q", got)
		}
		inside := filepath.Join(other, "work")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		within := start(d, "one-3", inside)
		if got := output(t, within, "echo on >on; cat on"); got != "on\n" {
			t.Errorf("in a workspace within what is listed the job said %q", got)
		}
		if notes := strings.Join(within.Info().Notes, "\n"); !strings.Contains(notes, other+", which is another runner's, is visible to jobs: the workspace "+inside+" lies in it") {
			t.Errorf("the record says %q", notes)
		}
	})
}

func TestRosterThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, Config{Roster: file})
	defer d.Close()
	if info, err := d.Probe(); err != nil || !strings.Contains(strings.Join(info.Notes, "\n"), "what other runners of this user keep is visible to jobs: ") {
		t.Errorf("the record says %q, %v", info.Notes, err)
	}
	if err := Enlist(t.Context(), file, t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("to list something there: %v", err)
	}
}
