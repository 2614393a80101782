package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
)

// ownCgroups returns this process's cgroup per v1 controller, and under "" the one of v2.
func ownCgroups() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				out[c] = f[2]
			}
		}
	}
	return out, nil
}

// locate returns the directory of this process's cgroup: of v2 for the empty controller, else of a v1 hierarchy.
func locate(mounts []mount, own map[string]string, controller string) (string, error) {
	path, ok := own[controller]
	if !ok {
		return "", fmt.Errorf("this process is in no cgroup %s hierarchy", controller)
	}
	for _, m := range mounts {
		if controller == "" && m.kind != "cgroup2" || controller != "" && (m.kind != "cgroup" || !contains(m.options, controller)) {
			continue
		}
		// A container's mount may show only the part of the hierarchy below its own cgroup.
		rel, err := filepath.Rel(m.root, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			rel = "."
		}
		return filepath.Join(m.point, rel), nil
	}
	return "", fmt.Errorf("the cgroup %s hierarchy is not mounted", controller)
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// cgroup1 is one v1 hierarchy of a machine that has no v2 controller for it.
type cgroup1 struct {
	name string
	home *os.File // see openTasks; of the cgroup in which the runner's own threads live
	dir  string   // <home>/everdict/<instance>
}

// newCgroup1 returns nil where the hierarchy cannot be used.
func newCgroup1(mounts []mount, own map[string]string, controller, instance string) *cgroup1 {
	home, err := locate(mounts, own, controller)
	if err != nil {
		return nil
	}
	g := &cgroup1{name: controller, dir: filepath.Join(home, "everdict", instance)}
	if mkdirs(g.dir) != nil {
		return nil
	}
	g.home, err = openTasks(home)
	if err == nil {
		err = unix.Access(filepath.Join(g.dir, "tasks"), unix.W_OK)
		if err != nil {
			_ = g.home.Close()
		}
	}
	if err != nil {
		_ = os.Remove(g.dir)
		return nil
	}
	return g
}

// openTasks opens the file by which threads are moved into a cgroup. The thread that starts commands cannot open it: it
// sees the hierarchies read-only.
func openTasks(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
}

// cgroup1Dir is one attempt's cgroup in a v1 hierarchy.
type cgroup1Dir struct {
	group *cgroup1
	dir   string
	tasks *os.File // see openTasks
}

func (d cgroup1Dir) limit(value int64) error {
	set := func(file string, v int64) error {
		return writeFile(filepath.Join(d.dir, file), strconv.FormatInt(v, 10))
	}
	switch d.group.name {
	case "memory":
		if err := set("memory.limit_in_bytes", value); err != nil {
			return err
		}
		// Memory and swap together; no file: swap is not accounted.
		if err := set("memory.memsw.limit_in_bytes", value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case "pids":
		return set("pids.max", value)
	case "cpu":
		return errors.Join(set("cpu.cfs_period_us", cpuPeriod), set("cpu.cfs_quota_us", value*cpuPeriod/1000))
	}
	return fmt.Errorf("unknown limit %s", d.group.name)
}

func (d cgroup1Dir) usage(u *sandbox.Usage) {
	switch d.group.name {
	case "memory":
		u.PeakMemory = optional(filepath.Join(d.dir, "memory.max_usage_in_bytes"))
		u.OOMKills = optionalField(filepath.Join(d.dir, "memory.oom_control"), "oom_kill")
	case "pids":
		u.PIDs = optional(filepath.Join(d.dir, "pids.current"))
		u.PeakPIDs = optional(filepath.Join(d.dir, "pids.peak"))
		u.PIDsHits = optionalField(filepath.Join(d.dir, "pids.events"), "max")
	}
}

// sweep ends the attempts of ended instances, and attempts of this one that no handle holds any more.
func (r *cgroupRoot) sweep(ctx context.Context, namespace string, keep, live func(string) bool) ([]sandbox.Swept, error) {
	var swept []sandbox.Swept
	var errs []error
	for i, root := range r.roots() {
		parent := filepath.Dir(root)
		instances, err := os.ReadDir(parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by another runner's sweep
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, inst := range instances {
			dir := filepath.Join(parent, inst.Name())
			mine := dir == root
			if !inst.IsDir() || !mine && !orphaned(inst.Name(), namespace) {
				continue
			}
			attempts, err := os.ReadDir(dir)
			if err != nil {
				continue // removed by another runner's sweep
			}
			for _, a := range attempts {
				if !a.IsDir() || mine && live(a.Name()) || keep(a.Name()) {
					continue
				}
				path := filepath.Join(dir, a.Name())
				if i == 0 { // the v2 hierarchy: the others hold the same processes
					n, _ := countThreads(path)
					if err := killCgroup(ctx, path); err != nil {
						errs = append(errs, fmt.Errorf("sweep %s: %w", a.Name(), err))
						continue
					}
					swept = append(swept, sandbox.Swept{Attempt: a.Name(), Kind: "cgroup", Processes: int(n)})
				}
				if err := removeCgroup(path); err != nil {
					errs = append(errs, fmt.Errorf("sweep %s: %w", a.Name(), err))
				}
			}
			if !mine {
				_ = os.Remove(dir) // stays while an attempt in it is kept
			}
		}
	}
	return swept, errors.Join(errs...)
}
