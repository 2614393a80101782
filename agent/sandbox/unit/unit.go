// Package unit is the sandbox of a runner that an orchestrator has started for one job,
// or for one after the other: the runner's own container is the enclosure. Commands are
// processes in it; its image is the job's, and the limits that the job declares are the
// orchestrator's to enforce. Between two jobs a Container is emptied.
package unit

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/everdict/everdict/agent/sandbox"
)

// Driver runs jobs in the container that the runner is in. What the orchestrator does
// not enforce is refused by Processes, as on any machine.
type Driver struct {
	// Processes is the process sandbox.
	sandbox.Driver
	// Image of the container, as the job names it; empty: the runner's own.
	Image string
	// By names the orchestrator in the limits of a sandbox.
	By string
	// NoNetwork says that the orchestrator holds the container to a network of the
	// coordinator alone, which is what "none" means here.
	NoNetwork bool
	// Cgroup is where the container's own control group is seen. Default
	// /sys/fs/cgroup.
	Cgroup string
}

var _ sandbox.Driver = (*Driver)(nil)

// Start implements sandbox.Driver.
func (d *Driver) Start(ctx context.Context, spec sandbox.Spec) (sandbox.ComputeHandle, error) {
	declared := spec.Resources
	spec.Resources = sandbox.Resources{PIDs: declared.PIDs}
	if d.NoNetwork && spec.Network == sandbox.NetworkNone {
		spec.Network = ""
	}
	if spec.Image == d.Image {
		spec.Image = ""
	}
	inner, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	h := &handle{ComputeHandle: inner, driver: d, info: inner.Info()}
	h.info.Image = d.Image
	for _, l := range []sandbox.Limit{
		{Name: "memory", Value: declared.MemoryMB << 20}, {Name: "cpu", Value: declared.CPUMillis}, {Name: "gpu", Value: int64(declared.GPU)},
	} {
		if l.Value > 0 {
			l.By = d.By
			h.info.Limits = append(h.info.Limits, l)
		}
	}
	h.before, _ = d.oomKills()
	return h, nil
}

type handle struct {
	sandbox.ComputeHandle
	driver *Driver
	info   sandbox.Info
	before int64
}

// Info implements sandbox.ComputeHandle.
func (h *handle) Info() sandbox.Info { return h.info }

// Usage implements sandbox.ComputeHandle. The kernel kills one process at the
// container's limit, often not the runner: the container's own count says that it did.
func (h *handle) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := h.ComputeHandle.Usage(ctx)
	if err != nil || u.OOMKills != nil {
		return u, err
	}
	if now, ok := h.driver.oomKills(); ok {
		n := now - h.before
		u.OOMKills = &n
	}
	return u, nil
}

// oomKills counts the processes of the container that the kernel has killed for its
// memory limit; false if the machine does not say.
func (d *Driver) oomKills() (int64, bool) {
	root := d.Cgroup
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	for _, file := range []string{"memory.events", "memory/memory.oom_control"} { // cgroup v2, v1
		if n, ok := field(filepath.Join(root, file), "oom_kill"); ok {
			return n, true
		}
	}
	return 0, false
}

// field reads "name N" from a file of such lines.
func field(path, name string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, _ := strings.Cut(lines.Text(), " "); key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
