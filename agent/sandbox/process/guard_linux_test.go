package process

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The number of a guard that was ended may belong to others while no new one can be started.
func TestAGuardThatWasEndedIsNotSignalled(t *testing.T) {
	t.Parallel()
	g, err := startGuard(nil, "guard-test")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard has ended", func() bool { return !g.works() })
	instance := g.instance
	g.instance = strings.Repeat("x", 1<<20) // no command line is that long
	for range 2 {
		if err := g.arm("attempt", time.Hour); !errors.Is(err, unix.E2BIG) {
			t.Fatalf("arm while no guard can be started: %v, want %v", err, unix.E2BIG)
		}
		if g.cmd != nil {
			t.Fatalf("the guard still signals group %d, which has ended", g.cmd.Process.Pid)
		}
	}
	g.stop()
	g.instance = instance
	if err := g.arm("attempt", time.Hour); err != nil || !g.works() {
		t.Errorf("arm when a guard can be started again: %v, works %v", err, g.works())
	}
	g.stop()
}
