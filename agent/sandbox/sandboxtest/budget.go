//go:build unix

package sandboxtest

import (
	"errors"
	"math"

	"github.com/everdict/everdict/agent/sandbox"
)

var budgetCases = []testCase{
	{name: "F44_the slots share the machine", run: slotsShare},
	{name: "F15_a default share is enforced", run: shareEnforced},
	{name: "F15_more than the machine has is refused", run: moreThanThereIs},
}

// manySlots is so many that each one's share is small, and few enough that it is above the least.
const manySlots = 100

// slotsShare: what one sandbox gets by default is less with more slots, and all together leave room for the runner.
func slotsShare(b *bench) {
	one, many := b.start(), newBench(b.T, b.lane, manySlots).start()
	for _, name := range []string{"memory", "pids"} {
		whole, ok := limited(one, name)
		if !ok {
			if l, has := limited(many, name); has {
				b.Errorf("%s: with many slots a limit %+v, with one none", name, l)
			}
			b.Logf("nothing here limits %s", name)
			continue
		}
		share, _ := limited(many, name)
		if !whole.Default || whole.Slots != 1 || !share.Default || share.Slots != manySlots {
			b.Errorf("%s: limits %+v and %+v, wanted defaults over 1 and %d slots", name, whole, share, manySlots)
		}
		if share.Value >= whole.Value {
			b.Errorf("%s: one of %d slots has %d, the only one %d", name, manySlots, share.Value, whole.Value)
		}
		// The only slot's process limit is capped by what a job can use, so that the sum may well be above it.
		if name == "memory" && share.Value*manySlots > whole.Value {
			b.Errorf("%s: %d slots with %d each are more than the %d of a single one", name, manySlots, share.Value, whole.Value)
		}
	}
	declared := newBench(b.T, b.lane, manySlots)
	s := declared.spec()
	s.Resources = sandbox.Resources{MemoryMB: 2048, PIDs: 3000}
	h, err := declared.driver.Start(b.Context(), s)
	var not *sandbox.UnsupportedError
	if errors.As(err, &not) {
		b.Logf("refused as it must be: %v", err)
		return
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := h.Release(b.Context()); err != nil {
			b.Errorf("release: %v", err)
		}
	}()
	for name, want := range map[string]int64{"memory": 2048 << 20, "pids": 3000} {
		if l, ok := limited(h, name); !ok || l.Value != want || l.Default || l.Slots != 0 {
			b.Errorf("%s: limit %+v, %d was declared and stands", name, l, want)
		}
	}
}

// shareEnforced: a job that declares nothing meets its share, and not the end of the machine.
func shareEnforced(b *bench) {
	x := newBench(b.T, b.lane, 1000).start()
	memory, ok := limited(x, "memory")
	if !ok {
		b.Logf("nothing here limits memory")
		return
	}
	if memory.Value > 1<<30 {
		b.Fatalf("a share of %d MiB for one of 1000 slots is too much to fill in a test", memory.Value>>20)
	}
	x.run(sh("tail -n 1 /dev/zero >/dev/null; exit 0")) // keeps a line that never ends in memory
	u, err := x.Usage(b.Context())
	if err != nil || u.OOMKills == nil || *u.OOMKills < 1 {
		b.Errorf("usage %+v, %v: wanted the kernel's kill at %d MiB", u, err, memory.Value>>20)
	}
	if u.PeakMemory != nil && *u.PeakMemory > memory.Value {
		b.Errorf("peak memory %d beyond the share of %d", *u.PeakMemory, memory.Value)
	}
}

// moreThanThereIs: a limit that no machine has is none.
func moreThanThereIs(b *bench) {
	for name, r := range map[string]sandbox.Resources{
		"memory": {MemoryMB: math.MaxInt64 >> 20}, "cpu": {CPUMillis: math.MaxInt32},
	} {
		s := b.spec()
		s.Resources = r
		h, err := b.driver.Start(b.Context(), s)
		if err == nil {
			_ = h.Release(b.Context())
		}
		var not *sandbox.UnsupportedError
		if !errors.As(err, &not) || not.Wanted == "" || not.Reason == "" {
			b.Errorf("start with %s of %+v: %v, wanted a refusal", name, r, err)
		}
	}
}
