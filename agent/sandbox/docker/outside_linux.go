package docker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killFrozen sends the processes of a frozen container their end from outside, where the engine runs on this machine
// and the runner may. The engine kills a frozen container by killing its process 1 and thawing it; with a cgroup v1
// freezer the others would run for a moment before they follow, which a lease that has been given away does not allow
// (P3). Where the runner may not, that moment remains.
func (h *handle) killFrozen(ctx context.Context) {
	h.mu.Lock()
	paused := h.paused
	h.mu.Unlock()
	if !paused || os.Geteuid() != 0 {
		return
	}
	dir, ok := h.groups(ctx)["freezer"]
	if !ok {
		return
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		if n, err := strconv.Atoi(pid); err == nil && n > 1 {
			_ = syscall.Kill(n, syscall.SIGKILL) // frozen, it cannot have ended: its number is its own
		}
	}
}

// lookFromOutside reads the counters where the engine runs on this machine, of a container whose init may be too busy to
// answer: among thousands of processes it is one.
func (h *handle) lookFromOutside(ctx context.Context) {
	groups := h.groups(ctx)
	var c counters
	for _, q := range h.questions() {
		controller, file, v1 := strings.Cut(strings.TrimPrefix(q.path, cgroupRoot), "/")
		if !v1 {
			controller, file = "", controller
		}
		if dir, ok := groups[controller]; ok {
			if content, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				q.read(string(content), &c)
			}
		}
	}
	if c.hits == nil && c.oom == nil {
		return // nothing is known from there; what was read last stays
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(c)
}

// groups are the directories of the container's cgroups by controller, that of cgroup v2 by "". They are empty where the
// engine does not run on this machine.
func (h *handle) groups(ctx context.Context) map[string]string {
	if !strings.HasPrefix(h.engine.host, "unix://") {
		return nil
	}
	c, err := h.engine.api.ContainerInspect(ctx, h.id)
	if err != nil || c.State == nil || c.State.Pid <= 0 {
		return nil
	}
	lines, err := os.ReadFile("/proc/" + strconv.Itoa(c.State.Pid) + "/cgroup")
	if err != nil {
		return nil
	}
	dirs := make(map[string]string)
	for line := range strings.Lines(string(lines)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// The container's id in the path says that the number is of a process on this machine, and of this container.
		if len(f) != 3 || !strings.Contains(f[2], h.id) {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			dirs[controller] = filepath.Join(cgroupRoot, controller, f[2])
		}
	}
	return dirs
}
