package budget

import "testing"

const (
	mib = 1 << 20
	gib = 1 << 30
)

func TestShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		m     Machine
		slots int
		want  Machine
	}{
		{"one slot", Machine{24 * gib, 32768}, 1, Machine{21 * gib, 4096}},
		{"no slots are one", Machine{24 * gib, 32768}, 0, Machine{21 * gib, 4096}},
		{"forty slots", Machine{24 * gib, 32768}, 40, Machine{537 * mib, 716}},
		{"a large machine keeps 4 GiB", Machine{1024 * gib, 4194304}, 100, Machine{10444 * mib, 4096}},
		{"a small machine keeps 256 MiB", Machine{1 * gib, 7800}, 4, Machine{192 * mib, 1706}},
		{"no share below the least", Machine{2 * gib, 15000}, 1000, Machine{64 * mib, 64}},
		{"less than the reserve", Machine{128 * mib, 100}, 2, Machine{64 * mib, 64}},
		{"nothing is known", Machine{}, 4, Machine{}},
		{"only memory is known", Machine{Memory: 8 * gib}, 2, Machine{Memory: 3584 * mib}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.m.Share(c.slots)
			if got != c.want {
				t.Errorf("%+v over %d slots: got %+v, want %+v", c.m, c.slots, got, c.want)
			}
		})
	}
}

// Whatever the machine, the shares of all slots fit into it beside the runner, unless they are the least.
func TestSharesFit(t *testing.T) {
	t.Parallel()
	for memory := int64(512 * mib); memory <= 512*gib; memory += memory / 3 {
		for slots := 1; slots <= 1000; slots += 1 + slots/4 {
			m := Machine{Memory: memory, PIDs: KernelPIDs(memory, 4)}
			s := m.Share(slots)
			if s.Memory > leastMemory && s.Memory*int64(slots) > m.Memory-leastReservedMemory {
				t.Errorf("%d slots with %d bytes each of %d", slots, s.Memory, m.Memory)
			}
			if s.PIDs > leastPIDs && s.PIDs*int64(slots) > m.PIDs-m.PIDs/reserved {
				t.Errorf("%d slots with %d processes each of %d", slots, s.PIDs, m.PIDs)
			}
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want Machine }{
		{Machine{8, 8}, Machine{4, 16}, Machine{4, 8}},
		{Machine{8, 8}, Machine{}, Machine{8, 8}},
		{Machine{}, Machine{4, 0}, Machine{4, 0}},
	} {
		if got := c.a.Within(c.b); got != c.want {
			t.Errorf("%+v within %+v: got %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}

func TestKernelPIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		memory int64
		cpus   int
		want   int64
	}{{1 * gib, 2, 8192}, {24 * gib, 2, 32768}, {256 * gib, 64, 65536}, {0, 2, 0}} {
		if got := KernelPIDs(c.memory, c.cpus); got != c.want {
			t.Errorf("%d bytes and %d CPUs: got %d, want %d", c.memory, c.cpus, got, c.want)
		}
	}
}
