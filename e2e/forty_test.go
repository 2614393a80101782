package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// forty is how many runs begin and end together.
const forty = 40

// fortyAtOnce starts forty runs in containers, cancels them together, and returns what
// passed from the first cancel until nothing of them was left.
func fortyAtOnce(t testing.TB, h *house.House) time.Duration {
	t.Helper()
	var ids []string
	for range forty {
		ids = append(ids, h.Submit(inImage(busybox, "fork sleep 1000\nhang")))
	}
	for _, id := range ids {
		h.Running(id)
	}
	house.Eventually(t, "two processes of each run", func() bool { return len(processesOf(t, ids)) >= 2*forty })
	var wg sync.WaitGroup
	begin := time.Now()
	for _, id := range ids {
		wg.Go(func() {
			if _, err := h.Client.Cancel(context.Background(), id); err != nil {
				t.Errorf("cancel %s: %v", id, err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if f := h.Settled(id).Failure; f == nil || f.Reason != protocol.ReasonCancelled {
			t.Errorf("%s: got %+v, want cancelled", id, f)
		}
	}
	if left := processesOf(t, ids); len(left) > 0 {
		t.Errorf("all runs are settled, and the processes %v are left", left)
	}
	// A run settles when its sandbox has been released, so that one look is enough as a rule and keeps the engine from
	// no work. What it still lists then has to be gone in the time that is returned.
	for _, kind := range []string{"container", "network", "volume"} {
		house.Eventually(t, "no "+kind+" is left", func() bool { return len(labelled(t, kind, ids)) == 0 })
	}
	return time.Since(begin)
}

// processesOf are the processes of runs, in containers or not, by what they inherit.
func processesOf(t testing.TB, runs []string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		environ, _ := os.ReadFile(path) // one that has ended has none
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			attempt, ok := strings.CutPrefix(string(kv), sandbox.EnvAttempt+"=")
			if run, _, _ := strings.Cut(attempt, "."); ok && slices.Contains(runs, run) {
				pids = append(pids, filepath.Base(filepath.Dir(path)))
			}
		}
	}
	return pids
}

// labelled are the engine's objects of one kind that carry the label of one of the runs.
func labelled(t testing.TB, kind string, runs []string) (found []string) {
	t.Helper()
	args := []string{kind, "ls", "--filter", "label=" + docker.LabelAttempt, "--format", "{{.Label \"" + docker.LabelAttempt + "\"}}"}
	if kind == "container" {
		args = append(args, "--all")
	}
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatalf("docker %s: %v: run make deps", strings.Join(args, " "), err)
	}
	for _, attempt := range strings.Fields(string(out)) {
		if run, _, _ := strings.Cut(attempt, "."); slices.Contains(runs, run) {
			found = append(found, attempt)
		}
	}
	return found
}

// TestF19_P6_FortyAtOnce: forty containers started together and cancelled together,
// three times over, leave nothing 10 s later.
func TestF19_P6_FortyAtOnce(t *testing.T) {
	h := house.New(t)
	h.Runner("laptop", containers(t), func(c *agent.Config) { c.Slots = forty })
	for round := range 3 {
		took := fortyAtOnce(t, h)
		t.Logf("round %d: nothing was left after %s", round, took)
		if took <= sandbox.EndWithin {
			continue
		}
		// On a machine where others work as well it may be the engine that has no time.
		if bare := fortyBare(t); bare < sandbox.EndWithin/2 {
			t.Errorf("round %d: it took %s until nothing was left, %s are allowed; the engine alone takes %s", round, took, sandbox.EndWithin, bare)
		} else {
			t.Logf("round %d: the engine alone takes %s now", round, bare)
		}
	}
}

// BenchmarkForty measures from the cancel of forty runs until nothing of them is left,
// beside one `docker rm -f` of forty bare containers that do the same.
func BenchmarkForty(b *testing.B) {
	h := house.New(b)
	h.Runner("bench", containers(b), func(c *agent.Config) { c.Slots = forty })
	var ours, bare durations
	for b.Loop() {
		ours.add(fortyAtOnce(b, h))
		bare.add(fortyBare(b))
	}
	b.ReportMetric(ours.median(), "gone-ms")
	b.ReportMetric(ours.quantile(100), "gone-max-ms")
	b.ReportMetric(bare.median(), "docker-rm-ms")
	b.ReportMetric(bare.quantile(100), "docker-rm-max-ms")
}

// fortyBare is how long the engine itself takes to remove as many containers.
func fortyBare(b testing.TB) time.Duration {
	b.Helper()
	ids := make([]string, forty)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			out, err := exec.Command("docker", "run", "-d", "--pull", "never", busybox, "sh", "-c", "trap '' TERM INT; (setsid sleep 1000 &); while :; do sleep 1; done").Output()
			if err != nil {
				b.Errorf("docker run: %v", err)
			}
			ids[i] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	begin := time.Now()
	if out, err := exec.Command("docker", append([]string{"rm", "-f"}, ids...)...).CombinedOutput(); err != nil {
		b.Fatalf("docker rm: %v: %s", err, out)
	}
	return time.Since(begin)
}
