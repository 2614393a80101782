package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/budget"
)

// A runner in a service or a container has what its cgroups allow, not the machine.
func TestCapacityOfTheCgroupsAbove(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for dir, files := range map[string]map[string]string{
		"":                         {"memory.max": "max\n", "pids.max": "5000\n"},
		"slice":                    {"memory.max": "8589934592\n", "pids.max": "max\n"},
		"slice/runner":             {"memory.max": "17179869184\n"},
		"slice/runner/everdict":    {},
		"slice/runner/everdict/i1": {"memory.max": "4096\n"}, // its own: what is above it counts
	} {
		files["cgroup.procs"] = ""
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(top, dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := above(filepath.Join(top, "slice/runner/everdict/i1"), "memory.max", "pids.max")
	if want := (budget.Machine{Memory: 8 << 30, PIDs: 5000}); got != want {
		t.Errorf("got %+v, want the smallest of each, %+v", got, want)
	}
	if got := above(filepath.Join(top, "nowhere", "at", "all"), "memory.max", "pids.max"); got != (budget.Machine{}) {
		t.Errorf("without a cgroup: got %+v, want no bound", got)
	}
}

// Jobs stand behind the runner where both want a CPU, by every means that the machine has.
func TestJobsStandBehindTheRunner(t *testing.T) {
	t.Parallel()
	d := newDriver(t, Config{})
	defer d.Close()
	own, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "nice-1", Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(context.Background())
	want := strconv.Itoa(min(20-own+jobNice, 19))
	if got := strings.TrimSpace(output(t, h, "nice; setsid nice")); got != want+"\n"+want {
		t.Errorf("nice of a command and of a session that it makes: got %q, want %s each", got, want)
	}
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid()); err != nil || now != own {
		t.Errorf("the runner's own priority went from %d to %d, %v", own, now, err)
	}
	if os.Geteuid() == 0 { // for others the kernel does it ten times a second only
		if _, err := os.Stat("/proc/self/autogroup"); err == nil {
			// The command runs before its session is put back: it looks until then.
			got := output(t, h, `i=0; while [ $i -lt 1000 ]; do i=$((i+1)); read g </proc/self/autogroup; case $g in *"nice `+strconv.Itoa(jobNice)+`") break;; esac; sleep 0.01; done; echo "$g"`)
			if !strings.HasSuffix(strings.TrimSpace(got), "nice "+strconv.Itoa(jobNice)) {
				t.Errorf("session of a command: got %q", got)
			}
		}
	}
	if r := d.machine.cgroup; r != nil && slices.Contains(r.controllers, "cpu") {
		if got := strings.TrimSpace(readString(filepath.Join(filepath.Dir(r.dir), "cpu.weight"))); got != strconv.Itoa(jobsWeight) {
			t.Errorf("weight of all jobs: got %q, want %d", got, jobsWeight)
		}
	}
}

// Many small processes of a job are together more than a machine has, and each is less than the runner.
func TestF44_JobsGoBeforeTheRunnerWhenMemoryRunsOut(t *testing.T) {
	t.Parallel()
	own, err := readInt("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	kinds(t, func(t *testing.T, kind string) {
		d := newDriver(t, Config{Enclosure: kind})
		defer d.Close()
		h, err := d.Start(t.Context(), sandbox.Spec{Attempt: "badness." + kind, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		// It is said of a process that runs already, which looks until then.
		want := strconv.FormatInt(min(own+jobsFirst, 1000), 10)
		script := `i=0; while [ $i -lt 1000 ]; do i=$((i+1)); read b </proc/self/oom_score_adj; [ "$b" = ` + want + ` ] && break; sleep 0.01; done; (cat /proc/self/oom_score_adj)`
		if got := output(t, h, script); got != want+"\n" {
			t.Errorf("a child of a command has badness %q, wanted %q", got, want)
		}
	})
}
