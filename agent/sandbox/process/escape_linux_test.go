package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// leaveCgroup is what a job does to leave its cgroup: it writes its number into every other one that it can find.
const leaveCgroup = `for f in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs -o -maxdepth 2 -name tasks); do
  case $f in */everdict*) ;; *) echo $$ >"$f" ;; esac
done 2>/dev/null
`

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
		"has the limit":                  leaveCgroup + `(env -i PATH="$PATH" setsid sh -c "$HOLD" &)`,
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
