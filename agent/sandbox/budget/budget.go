// Package budget divides a machine among the slots of its runner: what a sandbox may have that declares nothing.
package budget

// Machine is what all sandboxes of a machine can have together. A zero field is not known, and has no share.
type Machine struct {
	Memory int64 // bytes
	PIDs   int64 // processes and threads
}

const (
	// mostPIDs is what the largest build or browser test needs; more is a runaway.
	mostPIDs = 4096
	// leastPIDs and leastMemory are what an agent's command line does not start below. A runner with so many slots
	// that their shares would be smaller promises more than the machine has.
	leastPIDs   = 64
	leastMemory = 64 << 20
	// The runner and the system keep an eighth, of memory at least what a runner and a container engine need, and
	// not more than a large machine's would use.
	reserved            = 8
	leastReservedMemory = 256 << 20
	mostReservedMemory  = 4 << 30
)

// Share is what one of so many slots gets. Fewer than one slot count as one.
func (m Machine) Share(slots int) Machine {
	n := int64(max(slots, 1))
	var s Machine
	if m.Memory > 0 {
		reserve := min(max(m.Memory/reserved, leastReservedMemory), mostReservedMemory)
		s.Memory = max((m.Memory-reserve)/n, leastMemory)
		s.Memory -= s.Memory % (1 << 20) // the record names MiB
	}
	if m.PIDs > 0 {
		s.PIDs = min(max((m.PIDs-m.PIDs/reserved)/n, leastPIDs), mostPIDs)
	}
	return s
}

// Within is the smaller of two bounds in each field, where a zero field bounds nothing.
func (m Machine) Within(bound Machine) Machine {
	return Machine{Memory: smaller(m.Memory, bound.Memory), PIDs: smaller(m.PIDs, bound.PIDs)}
}

func smaller(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// KernelPIDs is how many threads a Linux kernel allows by default on a machine with so much memory and so many CPUs:
// one per 128 KiB, and as many as it has numbers for.
func KernelPIDs(memory int64, cpus int) int64 {
	if memory <= 0 {
		return 0
	}
	return min(memory/(128<<10), int64(max(32768, 1024*cpus)))
}
