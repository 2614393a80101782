package process

import (
	"context"
	"os"
	"testing"

	"github.com/everdict/everdict/agent/sandbox"
)

// A sandbox knows its own processes, whatever those have done to their environment and parents, and no others.
func TestHolds(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, cfg Config) {
		d := newDriver(t, cfg)
		defer d.Close()
		hide := t.TempDir()
		start := func(attempt string) *handle {
			dir := t.TempDir()
			h, err := d.Start(t.Context(), sandbox.Spec{Attempt: attempt, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Hide: []string{hide}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Release(context.Background()) })
			joined, _ := holders(t, dir)
			if _, err := h.Exec(t.Context(), sandbox.Command{Args: []string{"sh", "-c", branded + `stay='exec 9>r; printf x >&9; while :; do sleep 0.05; done'
(env -i PATH="$PATH" setsid sh -c "$stay" &)
(setsid sh -c "$stay" &)
eval "$stay"`}}); err != nil {
				t.Fatal(err)
			}
			joined(3)
			return h.(*handle)
		}
		one, two := start("holds-1"), start("holds-2")
		trees := make(map[*tree]*handle)
		for _, h := range []*handle{one, two} {
			switch e := h.enc.(type) {
			case *cgroup:
				trees[e.marks] = h
			case *tree:
				trees[e] = h
			}
		}
		members, err := family.scan()
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[*handle]int)
		for _, p := range members {
			h := trees[p.mark.tree]
			if h == nil {
				continue
			}
			other := one
			if h == one {
				other = two
			}
			if other.Holds(p.pid) {
				t.Errorf("%s holds process %d of %s", other.spec.Attempt, p.pid, h.spec.Attempt)
			}
			if h.Holds(p.pid) {
				found[h]++
			} else if now, ok := statProc(p.pid); ok && !now.dead() { // else it was a sleep
				t.Errorf("%s does not hold its process %d", h.spec.Attempt, p.pid)
			}
		}
		if found[one] < 3 || found[two] < 3 {
			t.Errorf("%d and %d processes are held, of 3 and 3", found[one], found[two])
		}
		for _, pid := range []int{-1, 0, 1, os.Getpid(), os.Getppid()} {
			if one.Holds(pid) {
				t.Errorf("process %d is held", pid)
			}
		}
	})
}
