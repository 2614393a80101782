package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// TestF51_P3_TheMachineSleeps: runner and job stand still for longer than the
// lease. When they wake, the job, whose run has gone to somebody else, is ended,
// and what it did is kept as evidence of a superseded attempt.
func TestF51_P3_TheMachineSleeps(t *testing.T) {
	t.Parallel()
	bin, address := binary(t), house.FreeAddress(t)
	house.Coordinator(t, bin, address, house.QuickFlags...)
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	start := func(label string) *house.Process {
		paired, err := c.Pair(ctx, &protocol.PairRequest{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		return house.RunnerProcess(t, bin, c.BaseURL(), paired.Token)
	}
	laptop := start("laptop")
	mine := filepath.Join(t.TempDir(), "ticks")
	req := house.Scripted(`run f=` + mine + `.$EVERDICT_ATTEMPT; while [ ! -e ` + mine + `.enough ]; do echo x >> $f; sleep 0.05; done`)
	run, err := c.Submit(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	one := fmt.Sprintf("%s.%s.1", mine, run.RunID)
	house.Eventually(t, "the job runs", func() bool { return size(one) > 0 })

	tree := descendants(t, laptop.Pid())
	laptop.Signal(syscall.SIGSTOP)
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // short-lived ones are gone
	}
	start("desktop")
	two := fmt.Sprintf("%s.%s.2", mine, run.RunID)
	house.Eventually(t, "the run has gone to the other machine", func() bool { return size(two) > 0 })

	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	laptop.Signal(syscall.SIGCONT)
	house.Eventually(t, "the superseded attempt is kept as late evidence", func() bool {
		attempts, err := c.Attempts(ctx, run.RunID)
		return err == nil && len(attempts) == 2 && attempts[0].LateAt != nil
	})
	standsStill(t, one)
	enough(t, mine)
	house.Eventually(t, "the run settles", func() bool {
		r, err := c.Run(ctx, run.RunID)
		return err == nil && r.Status == protocol.StatusSucceeded && r.Attempt == 2
	})
}

// TestF51_P3_CtrlZ: the terminal stops the runner alone; the job stands still with
// it all the same, and goes on with it.
func TestF51_P3_CtrlZ(t *testing.T) {
	t.Parallel()
	bin, address := binary(t), house.FreeAddress(t)
	house.Coordinator(t, bin, address)
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	paired, err := c.Pair(ctx, &protocol.PairRequest{Label: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	laptop := house.RunnerProcess(t, bin, c.BaseURL(), paired.Token)
	file := filepath.Join(t.TempDir(), "ticks")
	run, err := c.Submit(ctx, ticking(file))
	if err != nil {
		t.Fatal(err)
	}
	grows(t, file)
	laptop.Signal(syscall.SIGTSTP)
	isStopped(t, laptop)
	standsStill(t, file)
	laptop.Signal(syscall.SIGCONT)
	grows(t, file)
	enough(t, file)
	house.Eventually(t, "the run succeeds", func() bool {
		r, err := c.Run(ctx, run.RunID)
		return err == nil && r.Status == protocol.StatusSucceeded && r.Attempt == 1
	})
}

// isStopped waits until a runner's process is stopped.
func isStopped(t *testing.T, runner *house.Process) {
	t.Helper()
	house.Eventually(t, "the runner is stopped", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", runner.Pid()))
		return err == nil && strings.Contains(string(status), "State:\tT")
	})
}

// descendants are the processes below pid at this moment.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (comm) state ppid: comm can hold anything.
		i := strings.LastIndexByte(string(b), ')')
		var state string
		var child, parent int
		if _, err := fmt.Sscan(string(b[i+1:]), &state, &parent); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(b), &child); err != nil {
			continue
		}
		children[parent] = append(children[parent], child)
	}
	var all []int
	var walk func(int)
	walk = func(p int) {
		for _, child := range children[p] {
			all = append(all, child)
			walk(child)
		}
	}
	walk(pid)
	return all
}

// TestF32_P3_TheRunnerAloneIsStopped: somebody stops the runner's process and not
// its job. The job stands still before the run goes to somebody else, and does not
// take another step when the runner wakes.
func TestF32_P3_TheRunnerAloneIsStopped(t *testing.T) {
	t.Parallel()
	bin, address := binary(t), house.FreeAddress(t)
	house.Coordinator(t, bin, address, house.QuickFlags...)
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	start := func(label string) *house.Process {
		paired, err := c.Pair(ctx, &protocol.PairRequest{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		return house.RunnerProcess(t, bin, c.BaseURL(), paired.Token)
	}
	first := start("first")
	mine := filepath.Join(t.TempDir(), "ticks")
	run, err := c.Submit(ctx, house.Scripted(`run f=`+mine+`.$EVERDICT_ATTEMPT; while [ ! -e `+mine+`.enough ]; do echo x >> $f; sleep 0.05; done`))
	if err != nil {
		t.Fatal(err)
	}
	one, two := fmt.Sprintf("%s.%s.1", mine, run.RunID), fmt.Sprintf("%s.%s.2", mine, run.RunID)
	grows(t, one)

	first.Signal(syscall.SIGSTOP)
	start("second")
	house.Eventually(t, "the run has gone to the other runner", func() bool { return size(two) > 0 })
	done := size(one)
	grows(t, two)
	standsStill(t, one)
	if now := size(one); now != done {
		t.Errorf("the first attempt went on while the second ran: from %d to %d bytes", done, now)
	}

	first.Signal(syscall.SIGCONT)
	house.Eventually(t, "the superseded attempt is kept as late evidence", func() bool {
		attempts, err := c.Attempts(ctx, run.RunID)
		return err == nil && len(attempts) == 2 && attempts[0].LateAt != nil
	})
	if now := size(one); now != done {
		t.Errorf("the first attempt went on when its runner did: from %d to %d bytes", done, now)
	}
	enough(t, mine)
	house.Eventually(t, "the run settles", func() bool {
		r, err := c.Run(ctx, run.RunID)
		return err == nil && r.Status == protocol.StatusSucceeded && r.Attempt == 2
	})
}

// TestP3_F32_TheRunnerOfAContainerIsStopped: as above, with the job in a container, which
// nobody but its own process 1 can hold still while the runner is stopped.
func TestP3_F32_TheRunnerOfAContainerIsStopped(t *testing.T) {
	t.Parallel()
	bin, address := binary(t), house.FreeAddress(t)
	house.Coordinator(t, bin, address, house.QuickFlags...)
	c, err := client.New(client.Config{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	house.Eventually(t, "the coordinator is ready", func() bool { return c.Ready(ctx) == nil })
	start := func(label string) *house.Process {
		paired, err := c.Pair(ctx, &protocol.PairRequest{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		return house.RunnerProcess(t, bin, c.BaseURL(), paired.Token)
	}
	first := start("first")
	// Of what a container writes the workspace alone is seen from here.
	run, err := c.Submit(ctx, inImage(busybox, `run while [ ! -e enough ]; do echo x >> ticks; sleep 0.05; done`))
	if err != nil {
		t.Fatal(err)
	}
	ticks := func(attempt int) string {
		var file string
		house.Eventually(t, fmt.Sprintf("attempt %d has a container that works", attempt), func() bool {
			found, err := filepath.Glob(filepath.Join(mounted(t, fmt.Sprintf("%s.%d", run.RunID, attempt)), "*", "ticks"))
			if err != nil || len(found) != 1 {
				return false
			}
			file = found[0]
			return size(file) > 0
		})
		return file
	}
	one := ticks(1)
	grows(t, one)

	first.Signal(syscall.SIGSTOP)
	start("second")
	two := ticks(2)
	done := size(one)
	grows(t, two)
	standsStill(t, one)
	if now := size(one); now != done {
		t.Errorf("the first attempt went on while the second ran: from %d to %d bytes", done, now)
	}

	// What the first attempt writes from here on is looked for through the open file: its workspace goes with it.
	f, err := os.Open(one)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first.Signal(syscall.SIGCONT)
	house.Eventually(t, "the superseded attempt is kept as late evidence", func() bool {
		attempts, err := c.Attempts(ctx, run.RunID)
		return err == nil && len(attempts) == 2 && attempts[0].LateAt != nil
	})
	house.Eventually(t, "the first container is gone", func() bool { return len(ours(t, run.RunID+".1")) == 0 })
	if st, err := f.Stat(); err != nil || st.Size() != done {
		t.Errorf("the first attempt went on when its runner did: from %d to %d bytes, %v", done, st.Size(), err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(two), "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	house.Eventually(t, "the run settles", func() bool {
		r, err := c.Run(ctx, run.RunID)
		return err == nil && r.Status == protocol.StatusSucceeded && r.Attempt == 2
	})
	gone(t, run.RunID)
}

// mounted is the workspace of an attempt's container on the host; nowhere when there is no such container.
func mounted(t *testing.T, attempt string) string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-a", "--no-trunc", "--filter", "name=everdict-"+attempt, "--format", "{{.ID}}").Output()
	if err != nil {
		t.Fatalf("docker ps: %v: run make deps", err)
	}
	id := strings.TrimSpace(string(out))
	if id == "" {
		return "/nowhere"
	}
	const source = `{{range .Mounts}}{{if .RW}}{{.Source}}{{end}}{{end}}`
	dir, err := exec.Command("docker", "inspect", "--format", source, id).Output()
	if err != nil {
		return "/nowhere" // it has ended
	}
	return strings.TrimSpace(string(dir))
}
