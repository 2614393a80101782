//go:build unix

package docker

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/everdict/everdict/agent/sandbox"
)

var quick = sandbox.Ladder{{Signal: syscall.SIGTERM, Grace: 20 * time.Millisecond, Tree: true}}

func TestF11_TimeoutEndsWhatRunsInside(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	c := sh(`trap "" TERM; (setsid sh -c 'while :; do echo late >>late.txt; sleep 0.01; done' &); while :; do echo late >>late.txt; sleep 0.01; done`)
	c.Timeout, c.Ladder = time.Second, quick
	exit := b.wait(b.exec(c))
	if exit.Reason != sandbox.ReasonTimeout || exit.Fired == nil || exit.Fired.Configured != c.Timeout {
		t.Errorf("%+v: wanted the timeout with its configured value", exit)
	}
	at := b.size("late.txt")
	b.ok("sleep 0.3") // a grader looks twice
	if now := b.size("late.txt"); at == 0 || now != at {
		t.Errorf("late.txt had %d bytes when the timeout was told, %d later", at, now)
	}
	until(t, "process 1 to be alone", func() bool { u := b.usage(); return u.PIDs != nil && *u.PIDs == 1 })
}

func TestF15_OutOfMemoryIsNotACancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	limited := func(s *sandbox.Spec) { s.Resources.MemoryMB = 64 }
	b := r.start(limited)
	// The main process itself dies: tail keeps a line that never ends in memory.
	exit := b.wait(b.exec(sh("exec tail -n 1 /dev/zero")))
	u := b.usage()
	if exit.Signal != "SIGKILL" || exit.Reason != sandbox.ReasonNone || u.OOMKills == nil || *u.OOMKills == 0 {
		t.Errorf("%+v, %+v: wanted a SIGKILL of the kernel's and an OOM kill counted", exit, u)
	}
	if u.PeakMemory == nil || *u.PeakMemory > 64<<20 || *u.PeakMemory < 60<<20 {
		t.Errorf("peak memory %v, wanted just under 64 MiB", u.PeakMemory)
	}
	b = r.start(limited)
	p := b.exec(sh(`trap "" TERM INT; echo up >up; while :; do sleep 0.01; done`))
	until(t, "the command", func() bool { return b.size("up") > 0 })
	exit, err := p.Stop(t.Context(), quick)
	if u := b.usage(); err != nil || exit.Signal != "SIGKILL" || exit.Reason != sandbox.ReasonStopped || *u.OOMKills != 0 {
		t.Errorf("%+v, %v, %+v: wanted a stop, and no OOM kill", exit, err, u)
	}
}

func TestF44_ProcessLimitIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start(func(s *sandbox.Spec) { s.Resources.PIDs = 512 })
	p := b.exec(sh(`i=0; while [ $i -lt 600 ]; do sleep 1000 & i=$((i+1)); done; date; exit 0`))
	until(t, "a refused fork", func() bool { u := b.usage(); return u.PIDsHits != nil && *u.PIDsHits > 0 })
	u := b.usage()
	if u.PeakPIDs == nil || *u.PeakPIDs < 500 || *u.PeakPIDs > 512 {
		t.Errorf("%+v: wanted a peak at the limit of 512", u)
	}
	// What runs can be stopped while there is no process to be had.
	if _, err := p.Stop(t.Context(), quick); err != nil {
		t.Errorf("stop under an exhausted limit: %v", err)
	}
	if out := b.ok("echo again"); out != "again\n" {
		t.Errorf("exec after the stop printed %q", out)
	}
	var def sandbox.Limit
	for _, l := range r.start().Info().Limits {
		if l.Name == "pids" {
			def = l
		}
	}
	if !def.Default || def.Value < 256 || def.Value > 4096 || def.By != Name {
		t.Errorf("default limit of processes is %+v", def)
	}
}

func TestP6_JobKillsWhatItCanReach(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"everything":                `kill -9 -1; sleep 1000`,
		"its supervisor":            `kill -9 $PPID; sleep 1000`,
		"process 1":                 `kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 $PPID; sleep 1000`,
		"its supervisor, from afar": `(setsid sh -c 'sleep 0.05; kill -9 '$PPID'; while :; do echo x >>escaped; sleep 0.01; done' &); sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRig(t, Config{}).start()
			p := b.exec(sh(script))
			if exit := b.wait(p); exit.Signal != "SIGKILL" || exit.Success() {
				t.Errorf("%+v: wanted SIGKILL", exit)
			}
			if _, err := p.Stop(t.Context(), nil); err != nil {
				t.Errorf("stop: %v", err)
			}
			if u := b.usage(); u.PIDs == nil || *u.PIDs != 1 {
				t.Errorf("%+v: wanted only process 1 in the container", u)
			}
			if out := b.ok("echo grader"); out != "grader\n" {
				t.Errorf("the sandbox is not usable any more: %q", out)
			}
		})
	}
}

func TestP6_StalledInitEndsWithTheContainer(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	b.ok("echo kept >/kept; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
	before := b.usage()
	p := b.exec(sh(`trap "" TERM; echo up >up; while :; do sleep 0.01; done`))
	until(t, "the command", func() bool { return b.size("up") > 0 })
	other := b.exec(sh("sleep 1000"))
	c, err := r.e.api.ContainerInspect(t.Context(), r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.State.Pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process 1 from outside: %v", err)
	}
	begin := time.Now()
	exit, err := p.Stop(t.Context(), quick)
	if err != nil || exit.Signal != "SIGKILL" || exit.Reason != sandbox.ReasonStopped {
		t.Errorf("%+v, %v: wanted a stop with SIGKILL", exit, err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("stop took %s", took)
	}
	if exit := b.wait(other); exit.Reason != sandbox.ReasonKilled {
		t.Errorf("the other command: %+v, wanted killed", exit)
	}
	if out := b.ok("cat /kept"); out != "kept\n" {
		t.Errorf("what the job had written to the image's disk is gone: %q", out)
	}
	if u := b.usage(); *u.CPU <= *before.CPU {
		t.Errorf("%+v after the kill, %+v before: counters went back", u, before)
	}
}

// What ran into its process limit is known by that, also when init is too busy to say so before it is ended.
func TestF44_LimitIsNamedThoughInitIsStalled(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start(func(s *sandbox.Spec) { s.Resources.PIDs = 32 })
	p := b.exec(sh(`trap "" TERM; i=0; while [ $i -lt 40 ]; do (sleep 1000 &) 2>/dev/null; i=$((i+1)); done; echo up >up; while :; do sleep 1; done`))
	c, err := r.e.api.ContainerInspect(t.Context(), r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the limit is met", func() bool { u := b.usage(); return u.PIDsHits != nil && *u.PIDsHits > 0 })
	h := b.ComputeHandle.(*handle)
	h.mu.Lock()
	h.last = counters{} // as if nobody had looked before
	h.mu.Unlock()
	if err := syscall.Kill(c.State.Pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process 1 from outside: %v", err)
	}
	if _, err := p.Stop(t.Context(), quick); err != nil {
		t.Fatal(err)
	}
	if u := b.usage(); u.PIDsHits == nil || *u.PIDsHits == 0 || u.PeakPIDs == nil || *u.PeakPIDs != 32 {
		t.Errorf("%+v: wanted the limit that was met", u)
	}
}

func TestP6_KilledWholeStartsAgain(t *testing.T) {
	t.Parallel()
	b := newRig(t, Config{}).start()
	b.ok("echo kept >/kept")
	p := b.exec(sh(`echo up >up; while :; do sleep 0.01; done`))
	until(t, "the command", func() bool { return b.size("up") > 0 })
	if err := b.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := b.usage() // as it froze
	if err := b.Kill(t.Context()); err != nil {
		t.Fatalf("kill of a frozen sandbox: %v", err)
	}
	if exit := b.wait(p); exit.Reason != sandbox.ReasonKilled || exit.Signal != "SIGKILL" {
		t.Errorf("%+v: wanted killed", exit)
	}
	if out := b.ok("cat /kept"); out != "kept\n" {
		t.Errorf("what the job had written to the image's disk is gone: %q", out)
	}
	if u := b.usage(); *u.CPU < *before.CPU || u.Frozen <= 0 {
		t.Errorf("%+v after the kill, %+v before: counters went back", u, before)
	}
}

func TestP3_StopOfAFrozenCommandLetsNothingRun(t *testing.T) {
	t.Parallel()
	b := newRig(t, Config{}).start()
	count := `while :; do printf . >>count; done`
	p := b.exec(sh(`(setsid sh -c '` + count + `' &); ` + count))
	b.exec(sh(count))
	until(t, "the counters", func() bool { return b.size("count") > 100 })
	if err := b.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := b.size("count")
	if _, err := p.Stop(t.Context(), nil); err != nil {
		t.Errorf("stop: %v", err)
	}
	if now := b.size("count"); now != at {
		t.Errorf("a frozen sandbox counted on from %d to %d while a command was stopped", at, now)
	}
	if err := b.Thaw(t.Context()); err != nil {
		t.Errorf("thaw: %v", err)
	}
	b.ok("true")
	if now := b.size("count"); now != at {
		t.Errorf("after the thaw somebody counted on from %d to %d", at, now)
	}
}

// TestThawOfWhatAnotherLetRun: somebody unpauses a frozen container by hand; the thaw finds nothing left to do.
func TestThawOfWhatAnotherLetRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	b.exec(sh(`while :; do printf . >>count; done`))
	until(t, "the counter", func() bool { return b.size("count") > 0 })
	if err := b.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID
	if err := r.e.api.ContainerUnpause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := b.Thaw(t.Context()); err != nil {
		t.Errorf("thaw: %v", err)
	}
	b.ok("true")
	at := b.size("count")
	until(t, "the counter to go on", func() bool { return b.size("count") > at })
}

func TestP8_ContainerTakenAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	p := b.exec(sh("sleep 1000"))
	id := r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID
	if err := r.e.api.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("the command of a removed container does not end")
	}
	exit, err := p.Wait()
	if err == nil || exit.Success() || exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v: wanted an error that says that the container has ended", exit, err)
	}
	if _, err := b.Exec(t.Context(), sh("true")); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("exec in a removed container: %v", err)
	}
	if err := b.Kill(t.Context()); err != nil {
		t.Errorf("kill of what is gone: %v", err)
	}
	if err := b.Release(context.Background()); err != nil {
		t.Errorf("release of what is gone: %v", err)
	}
}
