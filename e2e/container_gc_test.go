package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/protocol"
)

// TestP6_F14_GCOfContainers: container, network and volume of a runner that is dead are shown and then removed; those of
// a living one, and those that are not ours, are neither.
func TestP6_F14_GCOfContainers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the owner's label is made up of what Linux says of a process")
	}
	if out, err := exec.Command("docker", "image", "inspect", "test/busybox:1").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: there is no engine with the test images; make deps starts one: %v %s", err, out)
	}
	engine := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	labels := func(attempt, owner string) []string {
		return []string{"--label", docker.LabelAttempt + "=" + attempt, "--label", docker.LabelRunner + "=" + owner}
	}
	keepTrack := func(kind, id string) string {
		t.Cleanup(func() {
			remove := []string{kind, "rm"}
			if kind == "container" {
				remove = append(remove, "-f")
			}
			_ = exec.Command("docker", append(remove, id)...).Run() // what gc has removed is gone
		})
		return id
	}
	create := func(labels []string) (container, network, volume string) {
		container = keepTrack("container", engine(append(append([]string{"run", "-d", "--pull", "never", "--network", "none"}, labels...), "test/busybox:1", "sleep", "600")...))
		network = keepTrack("network", engine(append(append([]string{"network", "create", "--internal"}, labels...), protocol.NewID("evdtest"))...))
		volume = keepTrack("volume", engine(append([]string{"volume", "create"}, labels...)...))
		return container, network, volume
	}
	living := protocol.NewID("run_") + ".1"
	c2, n2, v2 := create(labels(living, owner(t, os.Getpid())))
	c3, n3, v3 := create([]string{"--label", "somebody=else"})

	bin, dir := binary(t), t.TempDir()
	gc := func(args ...string) (report agent.GarbageReport) {
		t.Helper()
		cmd := exec.Command(bin, append([]string{"runner", "gc", "-o", "json", "--state-dir", dir + "/s", "--work-dir", dir + "/w"}, args...)...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "EVERDICT_") }), "XDG_CACHE_HOME="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gc: %v\n%s", err, out)
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("gc printed %q: %v", out, err)
		}
		return report
	}
	of := func(r agent.GarbageReport, attempt string) (kinds []string) {
		for _, g := range r.Items {
			if g.Attempt == attempt && g.Driver == docker.Name {
				kinds = append(kinds, g.Kind)
			}
		}
		return kinds
	}
	there := func(kind, id string) bool { return exec.Command("docker", kind, "inspect", id).Run() == nil }

	// Whoever else sweeps on this machine, other tests for example, takes what is dead as well: the owner dies just
	// before the look, and where somebody was faster, another one does.
	const tries = 5
	for try := 1; ; try++ {
		runner := exec.Command("sleep", "600")
		if err := runner.Start(); err != nil {
			t.Fatal(err)
		}
		dead := protocol.NewID("run_") + ".1"
		c, n, v := create(labels(dead, owner(t, runner.Process.Pid)))
		if err := runner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = runner.Wait()
		dry := gc("--dry-run")
		stayed := there("container", c) && there("network", n) && there("volume", v)
		if got := of(dry, living); got != nil {
			t.Errorf("the dry run shows %v of a living runner", got)
		}
		if shown := of(dry, dead); !stayed || !slices.Equal(shown, []string{agent.GarbageSandbox}) {
			if try < tries {
				continue
			}
			t.Fatalf("%d times the dry run did not show the dead runner's sandbox (now %v) or did not leave it (%t)", tries, shown, stayed)
		}
		r := gc()
		if there("container", c) || there("network", n) || there("volume", v) {
			t.Errorf("something of the dead runner is left; gc reports %+v", r)
		}
		break
	}
	for kind, ids := range map[string][]string{"container": {c2, c3}, "network": {n2, n3}, "volume": {v2, v3}} {
		for _, id := range ids {
			if !there(kind, id) {
				t.Errorf("gc removed a %s that is somebody's", kind)
			}
		}
	}
}

// owner is the label of a runner that is the process pid, as the docker sandbox makes it.
func owner(t *testing.T, pid int) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])[19] // in the kernel's ticks
	return fmt.Sprintf("%s/%s/%d/%s/test", host, strings.TrimSpace(string(boot)), pid, start)
}
