package process

import (
	"os"
	"path/filepath"

	"github.com/everdict/everdict/agent/sandbox/budget"
)

// capacity is what the cgroups in which the runner itself lives allow: of a service or a container that is less than
// the machine.
func (r *cgroupRoot) capacity() budget.Machine {
	m := above(r.dir, "memory.max", "pids.max")
	for _, g := range r.v1 {
		m = m.Within(above(g.dir, "memory.limit_in_bytes", "pids.max"))
	}
	return m
}

// above is the smallest of the bounds of the cgroups above dir. A file that says "max", or is not there, bounds nothing.
func above(dir, memory, pids string) budget.Machine {
	var m budget.Machine
	for {
		dir = filepath.Dir(dir)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			return m // above the hierarchy, or above what a container sees of it
		}
		var here budget.Machine
		if v := optional(filepath.Join(dir, memory)); v != nil {
			here.Memory = *v
		}
		if v := optional(filepath.Join(dir, pids)); v != nil {
			here.PIDs = *v
		}
		m = m.Within(here)
	}
}
