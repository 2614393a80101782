package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// leaveCgroup is what a job does to leave its cgroup: it writes its number into every other one that it can find.
const leaveCgroup = `tries=0
while [ $tries -lt 5 ] && grep -q '^0::.*/everdict/' /proc/$$/cgroup; do
  tries=$((tries + 1))
  for f in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs -o -maxdepth 2 -name tasks); do
    case $f in */everdict*) ;; *) echo $$ >"$f" ;; esac
  done 2>/dev/null
done
`

// branded waits until the command has the limit that marks it, which in a cgroup comes a moment after its start.
var branded = fmt.Sprintf("while grep -q 'msgqueue.* %d ' /proc/$$/limits; do sleep 0.01; done\n", ownQueue())

// P6, P3: a job that may write to the cgroup hierarchies moves out of its own, forgets its environment and its parent, and
// is ended with the sandbox all the same. One that has something hidden from it cannot even move.
func TestP6_JobLeavesItsCgroup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root, or who has a cgroup delegated, can move")
	}
	ways := map[string]string{
		"descends from the main process": leaveCgroup + `sh -c "$HOLD" & wait`,
		"has the marker":                 leaveCgroup + `(setsid sh -c "$HOLD" &)`,
		"has the limit":                  leaveCgroup + branded + `(env -i PATH="$PATH" setsid sh -c "$HOLD" &)`,
	}
	for _, hidden := range []bool{false, true} {
		for _, without := range []bool{false, true} {
			for name, script := range ways {
				t.Run(fmt.Sprintf("%s, hidden %v, without Landlock %v", name, hidden, without), func(t *testing.T) {
					t.Parallel()
					d := newDriver(t, Config{Enclosure: EnclosureCgroup, noLandlock: without})
					defer d.Close()
					spec := sandbox.Spec{Attempt: "leave-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin", "HOLD=" + holdOn}}
					if hidden {
						spec.Hide = []string{t.TempDir()}
					}
					h, err := d.Start(t.Context(), spec)
					if err != nil {
						t.Fatal(err)
					}
					defer h.Release(context.Background())
					for _, n := range h.Info().Notes {
						if strings.Contains(n, "leave its cgroup") {
							t.Error(n)
						}
					}
					joined, gone := holders(t, spec.Dir)
					if _, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", script}}); err != nil {
						t.Fatal(err)
					}
					joined(1)
					b, err := os.ReadFile(filepath.Join(spec.Dir, "where"))
					if err != nil {
						t.Fatal(err)
					}
					left := false // any of the hierarchies that the sandbox uses
					for line := range strings.Lines(string(b)) {
						f := strings.SplitN(strings.TrimSpace(line), ":", 3)
						left = left || f[1] == "" && !strings.Contains(f[2], "/leave-1/")
						for _, g := range d.machine.cgroup.v1 {
							left = left || g.name != "cpu" && f[1] == g.name && !strings.HasSuffix(f[2], "/leave-1")
						}
					}
					if left == hidden {
						t.Errorf("with read-only hierarchies %v the job is in\n%s", hidden, b)
					}
					if err := h.Kill(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := gone(5 * time.Second); err != nil {
						t.Errorf("after the kill it is alive: %v", err)
					}
				})
			}
		}
	}
}

// startElsewhere is a job of root's that starts a process in each cgroup that it finds, and prints where that worked.
func startElsewhere() {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		cmd := exec.Command("true")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		if cmd.Run() == nil {
			fmt.Println(path)
		}
		return nil
	})
}

// P3, F44: to start a process in another cgroup takes no right to write there, so a job sees none but its runner's. It
// finds its own by the usual path, with what it may use.
func TestP3_JobStartsNothingInAnotherCgroup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root, or who has a cgroup delegated, can start something elsewhere")
	}
	for _, without := range []bool{false, true} {
		d := newDriver(t, Config{Enclosure: EnclosureCgroup, noLandlock: without})
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "elsewhere-1", Dir: t.TempDir(), Hide: []string{t.TempDir()},
			Env: []string{"PATH=/usr/bin:/bin", roleEnv + "=start elsewhere"}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		for _, n := range h.Info().Notes {
			if strings.Contains(n, "leave its cgroup") {
				t.Error(n)
			}
		}
		own := filepath.Join(d.machine.cgroup.dir, "elsewhere-1")
		got := strings.Fields(output(t, h, os.Args[0]))
		if !slices.ContainsFunc(got, func(dir string) bool { return strings.HasPrefix(dir, own+"/") }) {
			t.Errorf("of its own cgroup the job sees nothing: %q", got)
		}
		for _, dir := range got {
			if _, ok := below(d.machine.cgroup.dir, dir); !ok {
				t.Errorf("a job has started a process in %s", dir)
			}
		}
		if got := output(t, h, "cat "+own+"/cgroup.events; touch "+own+"/x 2>&1; mkdir "+filepath.Dir(d.machine.cgroup.dir)+"/x 2>&1"); strings.Count(got, "Read-only") != 2 || !strings.Contains(got, "populated 1") {
			t.Errorf("the job reads its cgroup as %q", got)
		}
	}
}

// A command that is stopped takes with it who has left its cgroup, and nobody else's.
func TestP6_StoppedCommandLeavesItsCgroup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root, or who has a cgroup delegated, can move")
	}
	d := newDriver(t, Config{Enclosure: EnclosureCgroup})
	defer d.Close()
	dir := t.TempDir()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "leave-2", Dir: dir, Env: []string{"PATH=/usr/bin:/bin", "HOLD=" + holdOn}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	var gone []func(time.Duration) error
	var dirs []string
	var started []sandbox.Process
	for i := range 2 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		joined, g := holders(t, sub)
		gone, dirs = append(gone, g), append(dirs, sub)
		p, err := h.Exec(t.Context(), sandbox.Command{Dir: filepath.Base(sub), Args: []string{"sh", "-c", leaveCgroup + `(setsid sh -c "$HOLD" &); sleep 1000`}})
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, p)
		joined(1)
	}
	if _, err := started[0].Stop(t.Context(), sandbox.Ladder{}); err != nil {
		t.Fatal(err)
	}
	if err := gone[0](5 * time.Second); err != nil {
		t.Errorf("after the stop it is alive: %v", err)
	}
	counts(t, dirs[1])
}

// holdOn is a process that says where it is, holds the pipe "r" for as long as it lives, and counts.
const holdOn = `trap "" INT TERM HUP; exec 9>r; cat /proc/self/cgroup >where; printf x >&9; while [ -p r ]; do printf . >>count; sleep 0.02; done`

// counts waits until the process of holdOn in dir has counted on.
func counts(t *testing.T, dir string) {
	t.Helper()
	size := func() int64 {
		st, err := os.Stat(filepath.Join(dir, "count"))
		if err != nil {
			return 0
		}
		return st.Size()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	from := size()
	if err := poll(ctx, func() (bool, error) { return size() > from, nil }); err != nil {
		t.Errorf("the process in %s does not run on: %v", dir, err)
	}
}

// loseMarks is what a job does to lose all marks: it lowers its limit, cleans the environment and leaves its parent.
const loseMarks = `prlimit --pid $$ --msgqueue=1000:1000 && (env -i PATH="$PATH" setsid sh -c "$HOLD" </dev/null >/dev/null 2>&1 &)`

// startStray starts a sandbox with a process that has lost all marks.
func startStray(t *testing.T, d *Driver, attempt, script string, hide ...string) (h sandbox.ComputeHandle, dir string, gone func(time.Duration) error) {
	t.Helper()
	dir = t.TempDir()
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: attempt, Dir: dir, Env: []string{"PATH=/usr/bin:/bin", "HOLD=" + holdOn}, Hide: hide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Release(context.Background()) })
	joined, gone := holders(t, dir)
	if out := output(t, h, script); out != "" {
		t.Fatal(out)
	}
	joined(1)
	return h, dir, gone
}

// P6: what has lost all marks is ended with its sandbox. No other sandbox may live meanwhile, so these do not run beside
// others.
func TestP6_JobLosesItsMarks(t *testing.T) {
	losesMarks(t, map[string]string{
		"lowers its limit":     loseMarks,
		"has another's marker": strings.Replace(loseMarks, "env -i", "env -i "+sandbox.EnvMarker+"=1-2-3-4.5", 1),
	})
}

// A job of root's can put its limit back, if root may do that on this machine. Here it never gets one.
func TestP6_JobHasNoLimit(t *testing.T) {
	if !privileged(t) {
		t.Skip("who has no mount namespace is known by the limit alone")
	}
	defer func(f func() uint64) { ownQueue = f }(ownQueue)
	ownQueue = func() uint64 { return 0 }
	losesMarks(t, map[string]string{"no limit": strings.TrimPrefix(loseMarks, "prlimit --pid $$ --msgqueue=1000:1000 && ")})
}

func losesMarks(t *testing.T, scripts map[string]string) {
	for name, script := range scripts {
		for _, kind := range []string{EnclosureCgroup, EnclosureReaper} {
			for _, without := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, without Landlock %v", name, kind, without), func(t *testing.T) {
					d := newDriver(t, Config{Enclosure: kind, noLandlock: without})
					defer d.Close()
					var hide []string
					if kind == EnclosureReaper { // else it could not leave
						hide = []string{t.TempDir()}
					}
					h, _, gone := startStray(t, d, "stray-1", leaveCgroup+script, hide...)
					if err := h.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := gone(5 * time.Second); err != nil {
						t.Errorf("after the release it is alive: %v", err)
					}
				})
			}
		}
	}
}

// What might be a neighbour's is left to it, and ends with the last sandbox that it can be of.
func TestP6_StrayOfOneOfTwo(t *testing.T) {
	d := newDriver(t, Config{Enclosure: EnclosureReaper})
	defer d.Close()
	neighbour, err := d.Start(t.Context(), sandbox.Spec{Attempt: "neighbour-1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer neighbour.Release(context.Background())
	h, dir, gone := startStray(t, d, "stray-2", loseMarks)
	// What was started in the same tick might be its own.
	for from := bootTicks(); bootTicks() == from; {
		runtime.Gosched()
	}
	later, err := d.Start(t.Context(), sandbox.Spec{Attempt: "later-1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Release(context.Background())
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, dir)
	if err := neighbour.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := gone(5 * time.Second); err != nil {
		t.Errorf("after the release of all that lived at its start it is alive: %v", err)
	}
}

// Programs of the runner's own, and what they leave behind, are nobody's jobs. Neither are the jobs of another runner that
// this process has started, whatever limits they have.
func TestP6_ForeignProcessesLive(t *testing.T) {
	for _, kind := range []string{EnclosureCgroup, EnclosureReaper} {
		t.Run(kind, func(t *testing.T) {
			d := newDriver(t, Config{Enclosure: kind})
			defer d.Close()
			h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "mine-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release(context.Background())
			if out := output(t, h, "true"); out != "" {
				t.Fatal(out)
			}
			daemon, marked := t.TempDir(), t.TempDir()
			joined, gone := holders(t, daemon)
			alsoJoined, alsoGone := holders(t, marked)
			// A daemon that a tool of the runner's leaves, and below a process that lives one with the limit of a command.
			tool := exec.Command("sh", "-c", `cd "$1" && (setsid sh -c "$HOLD" &)`, "sh", daemon)
			runner := exec.Command("sh", "-c", `cd "$1" && prlimit --msgqueue=$2:$2 sh -c "$HOLD"; exit`, "sh", marked, fmt.Sprint(queueValue(sequence.Load())))
			for _, c := range []*exec.Cmd{tool, runner} {
				c.Env = []string{"PATH=/usr/bin:/bin", "HOLD=" + holdOn}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			if err := tool.Wait(); err != nil {
				t.Fatal(err)
			}
			joined(1)
			alsoJoined(1)
			if err := h.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts(t, daemon)
			counts(t, marked)
			for _, dir := range []string{daemon, marked} { // both end with their pipes
				if err := os.Remove(filepath.Join(dir, "r")); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(gone(20*time.Second), alsoGone(20*time.Second), runner.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
}
