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
	if !paused || os.Geteuid() != 0 || !strings.HasPrefix(h.engine.host, "unix://") {
		return
	}
	c, err := h.engine.api.ContainerInspect(ctx, h.id)
	if err != nil || c.State == nil || c.State.Pid <= 0 {
		return
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(c.State.Pid) + "/cgroup")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// The container's id in the path says that the number is of a process on this machine, and of this container.
		if len(f) != 3 || f[1] != "freezer" || !strings.Contains(f[2], h.id) {
			continue
		}
		procs, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/freezer", f[2], "cgroup.procs"))
		if err != nil {
			return
		}
		for pid := range strings.FieldsSeq(string(procs)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = syscall.Kill(n, syscall.SIGKILL) // frozen, it cannot have ended: its number is its own
			}
		}
	}
}
