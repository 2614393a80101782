package e2e

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everdict/everdict/agent"
	"github.com/everdict/everdict/agent/sandbox/docker"
	"github.com/everdict/everdict/e2e/house"
	"github.com/everdict/everdict/protocol"
)

// Images that e2e/docker.sh builds from Debian's packages: no registry is asked.
const (
	busybox = "test/busybox:1"
	debian  = "test/debian:1"
)

// containers gives a runner local Docker for jobs that name an image.
func containers(t testing.TB) func(*agent.Config) {
	t.Helper()
	driver := docker.New(docker.Config{StateDir: t.TempDir()})
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Errorf("close the docker driver: %v", err)
		}
	})
	return func(c *agent.Config) {
		c.Images = driver
		c.Capabilities = []string{protocol.CapGit, protocol.CapDocker}
	}
}

func inImage(image, script string) *protocol.RunRequest {
	req := house.Scripted(script)
	req.Case.Image = image
	return req
}

// ours are the containers of an attempt that the engine knows, running or not.
func ours(t testing.TB, run string) []string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-aq", "--filter", "name="+run).Output()
	if err != nil {
		t.Fatalf("docker ps: %v: run make deps", err)
	}
	return strings.Fields(string(out))
}

// gone waits until no container of a run is left.
func gone(t testing.TB, run string) {
	t.Helper()
	house.Eventually(t, "no container of "+run+" is left", func() bool { return len(ours(t, run)) == 0 })
}

// TestDockerMainPath: an image on the case runs the same job in a container, with
// the same evidence, and the record says in what.
func TestDockerMainPath(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	req := &protocol.RunRequest{
		Harness: protocol.HarnessRef{ID: "scripted", Version: "latest"},
		Case: protocol.Case{
			ID: "c1", Image: debian, Env: protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{"a.txt": "one\n"}}},
			Task:    "Create ok.txt containing the text done",
			Graders: []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":"python3 -c \"print(open('ok.txt').read())\" && git status --short | grep ok.txt"}`)}},
		},
	}
	id := h.Submit(req)
	run := h.Settled(id)
	if run.Verdict == nil || !*run.Verdict {
		t.Fatalf("run: got %s, scores %+v, failure %+v", run.Status, run.Scores, run.Failure)
	}
	e := run.Result.Execution
	if e.Driver != docker.Name || e.Image != debian || !strings.HasPrefix(e.ImageDigest, "sha256:") || !strings.HasPrefix(e.Platform, "linux/") || e.ActsAsYou {
		t.Errorf("execution: got %+v, want docker with the image's digest and platform", e)
	}
	if e.Limits["pids"] == nil {
		t.Errorf("limits: got %v, want the pids limit that applied", e.Limits)
	}
	if !strings.Contains(run.Result.Snapshot.Diff, "+done") {
		t.Errorf("diff: got %q", run.Result.Snapshot.Diff)
	}
	gone(t, id)
}

// TestF15_OOM: a run that is killed for its memory says so, also when only a child
// died, with the limit and what was measured; a cancelled one that ignores signals
// is cancelled, whatever its exit code.
func TestF15_P8_OOMAndCancelAreToldApart(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	eat := inImage(debian, `run python3 -c "b=bytearray(300<<20)"`)
	eat.Case.Resources = &protocol.Resources{MemoryMB: 64}
	oom := h.Submit(eat)
	f := h.Settled(oom).Failure
	if f == nil || f.Reason != protocol.ReasonOOM || f.Class != protocol.ClassInfra || f.Limit == nil || f.Limit.Configured != 64 {
		t.Errorf("a child beyond the memory limit: got %+v, want infra/oom with its limit", f)
	}
	deaf := h.Submit(inImage(busybox, "hang"))
	h.Running(deaf)
	if _, err := h.Client.Cancel(context.Background(), deaf); err != nil {
		t.Fatal(err)
	}
	if f := h.Settled(deaf).Failure; f == nil || f.Reason != protocol.ReasonCancelled {
		t.Errorf("a cancelled run: got %+v, want cancelled", f)
	}
	gone(t, oom)
	gone(t, deaf)
}

// TestF16_Images: permanent trouble with an image fails in seconds, as a mistake
// in the configuration and with the engine's words.
func TestF16_ImpossibleImages(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	id := h.Submit(inImage("UPPER::bad", "say hello"))
	if f := h.Settled(id).Failure; f == nil || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonImage || !strings.Contains(f.Message, "UPPER::bad") {
		t.Errorf("a name that is none: got %+v, want config/image", f)
	}
}

// TestF44_PIDs: a run whose forks hit the limit is not judged as if nothing had
// been, and the runner lives on.
func TestF44_ForkBomb(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	req := inImage(busybox, "run i=0; while [ $i -lt 20000 ]; do sleep 60 & i=$((i+1)); done")
	req.Case.TimeoutSec = 60
	id := h.Submit(req)
	f := h.Settled(id).Failure
	if f == nil || f.Reason != protocol.ReasonPIDsExhausted || f.Limit == nil || f.Limit.Configured == 0 {
		t.Errorf("a fork bomb: got %+v, want pids_exhausted with its limit", f)
	}
	gone(t, id)
	if run := h.Settled(h.Submit(inImage(busybox, "say still here"))); run.Status != protocol.StatusSucceeded {
		t.Errorf("the next run: got %s %+v", run.Status, run.Failure)
	}
}

// TestF11_TimeoutInAContainer: a timeout ends what runs inside, not only who asked
// for it: nothing is written once the work is judged.
func TestF11_TimeoutEndsWhatRunsInside(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	req := inImage(busybox, "fork while :; do date >> late.txt; sleep 0.05; done\nhang")
	req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
	req.Case.TimeoutSec = 2
	req.Case.Graders = []protocol.GraderSpec{{ID: "command", Config: []byte(
		`{"cmd":"a=$(wc -c < late.txt); sleep 1; b=$(wc -c < late.txt); echo $a $b; test $a = $b","metric":"still"}`)}}
	run := h.Settled(h.Submit(req))
	if f := run.Failure; f == nil || f.Reason != protocol.ReasonTimeout {
		t.Fatalf("failure: got %+v, want a timeout", f)
	}
	if len(run.Scores) != 1 || run.Scores[0].Pass == nil || !*run.Scores[0].Pass {
		t.Errorf("the file grew while it was judged: %+v", run.Scores)
	}
}

// TestNetworkNone: a case without network gets none.
func TestNetworkNoneInAContainer(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	h.Runner("laptop", containers(t))
	req := inImage(busybox, "run ls /sys/class/net > seen")
	req.Case.Network = &protocol.Network{Mode: protocol.NetworkNone}
	req.Case.Graders = []protocol.GraderSpec{{ID: "tests-pass", Config: []byte(`{"cmd":"test \"$(cat seen)\" = lo"}`)}}
	if run := h.Settled(h.Submit(req)); run.Verdict == nil || !*run.Verdict {
		t.Errorf("network none: got %+v %+v", run.Scores, run.Failure)
	}
	process := house.Scripted("say hello")
	process.Case.Network = &protocol.Network{Mode: protocol.NetworkNone}
	if f := h.Settled(h.Submit(process)).Failure; f == nil || f.Class != protocol.ClassConfig || f.Reason != protocol.ReasonUnsupportedByRunner {
		t.Errorf("network none without a container: got %+v, want that it is refused", f)
	}
}

// TestP3_FreezeInAContainer: the coordinator's absence freezes a container as it
// freezes a process.
func TestP3_F1_ContainerFreezesWithItsLease(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	h.Runner("laptop", containers(t))
	id := h.Submit(inImage(busybox, "run while [ ! -e enough ]; do echo x; sleep 0.05; done"))
	h.Running(id)
	logged := func() int64 {
		run, err := h.Client.Log(context.Background(), id, protocol.LogQuery{})
		if err != nil {
			return 0
		}
		return run.Bytes
	}
	house.Eventually(t, "the job works", func() bool { return logged() > 20 })
	h.Stop()
	house.Eventually(t, "the container is paused", func() bool {
		out, err := exec.Command("docker", "ps", "-q", "--filter", "name="+id, "--filter", "status=paused").Output()
		return err == nil && len(strings.Fields(string(out))) == 1
	})
	h.Start()
	before := logged()
	house.Eventually(t, "the container goes on", func() bool { return logged() > before })
	if _, err := h.Client.Cancel(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	h.Settled(id)
	gone(t, id)
}

// TestF22_P10_WhatRootLeft: files of other users and read-only trees are cleaned
// up, and what changed is in the diff.
func TestF22_P10_ReadOnlyTreesAndLinksOut(t *testing.T) {
	t.Parallel()
	h := house.New(t)
	r := h.Runner("laptop", containers(t))
	req := inImage(busybox, "run mkdir -p d && echo x > d/f && chmod 555 d && ln -s /etc out && ln -s ../../.. up && echo done > ok.txt")
	req.Case.Env = protocol.EnvSpec{Kind: protocol.EnvRepo, Source: &protocol.RepoSource{Files: map[string]string{}}}
	for range 2 {
		run := h.Settled(h.Submit(req))
		if run.Status != protocol.StatusSucceeded {
			t.Fatalf("run: got %s %+v", run.Status, run.Failure)
		}
		body, err := h.Client.Diff(context.Background(), run.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		diff, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"b/d/f", "b/ok.txt", "b/out", "new file mode 120000"} {
			if !strings.Contains(string(diff), want) {
				t.Errorf("diff lacks %s:\n%s", want, diff)
			}
		}
		house.Eventually(t, "the workspace is removed", func() bool {
			left, err := filepath.Glob(filepath.Join(r.Config.WorkDir, "work", "*"))
			return err == nil && len(left) == 0
		})
	}
}

// TestF14_RunnerKilledWithContainers: containers of a runner that was killed end
// with it.
func TestF14_P6_RunnerKilledUnderItsContainers(t *testing.T) {
	t.Parallel()
	h := house.New(t, house.Quick)
	paired := h.Pair("laptop")
	runner := house.RunnerProcess(t, binary(t), h.URL(), paired.Token)
	id := h.Submit(inImage(busybox, "fork sleep 1000\nhang"))
	h.Running(id)
	house.Eventually(t, "the container runs", func() bool { return len(ours(t, id)) == 1 })
	runner.Kill()
	house.Eventually(t, "nothing of it runs", func() bool {
		out, err := exec.Command("docker", "ps", "-q", "--filter", "name="+id, "--filter", "status=running").Output()
		return err == nil && len(strings.Fields(string(out))) == 0
	})
	if _, err := h.Client.Cancel(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	h.Settled(id)
}
