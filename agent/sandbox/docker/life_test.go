//go:build unix

package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/everdict/everdict/agent/sandbox"
)

func TestP12_SecretsReachTheCommandOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	const secret = "hunter2-of-the-environment"
	b := r.start(func(s *sandbox.Spec) { s.Env = append(s.Env, "TOKEN="+secret) })
	c := sh(`printf %s "$TOKEN $MORE"; sleep 1000`)
	c.Env = []string{"MORE=" + secret + "2"}
	var out lines
	c.Stdout = &out
	b.exec(c)
	until(t, "the command", func() bool { return out.String() == secret+" "+secret+"2" })
	id := r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID
	_, raw, err := r.e.api.ContainerInspectWithRaw(t.Context(), id, false)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte(secret)) {
		t.Errorf("docker inspect shows the secret: %s", raw)
	}
	// Not docker top: a rootless engine without cgroups has none.
	if list := strings.ReplaceAll(b.ok(`cat /proc/[0-9]*/cmdline`), "\x00", " "); strings.Contains(list, secret) || !strings.Contains(list, "sleep 1000") {
		t.Errorf("process list: %q", list)
	}
	// What init itself was given is not there to be read either, by a job of the same user.
	if out := b.ok(`cat /proc/1/environ /proc/$PPID/environ /proc/1/maps 2>&1 || true`); strings.Contains(out, secret) {
		t.Errorf("init's own memory or environment can be read: %q", out)
	}
}

func TestF14_AnswerOfTheCreateIsLost(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"/containers/create", "/start"} {
		t.Run(strings.Trim(what, "/"), func(t *testing.T) {
			t.Parallel()
			e := engineOf(t)
			proxy := newProxy(t, e.host, what)
			d := New(Config{Image: busybox, Host: proxy.host})
			defer d.Close()
			r := &rig{T: t, d: d, e: e}
			s := r.spec()
			if h, err := d.Start(t.Context(), s); err == nil {
				t.Fatalf("start over a connection that breaks succeeded: %v", h)
			}
			if !proxy.cut.Load() {
				t.Fatal("the proxy has not seen the request")
			}
			if left := e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) > 0 {
				t.Errorf("a container is left: %+v", left)
			}
			// The same attempt can be started where the engine answers.
			s.Attempt += "x"
			h, err := d.Start(t.Context(), s)
			if err != nil {
				t.Fatalf("start after the break: %v", err)
			}
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A runner that is killed leaves a container that ends by itself, running or frozen or never started, and that the
// next sweep removes at once.
func TestF14_KilledRunnerLeavesNothing(t *testing.T) {
	if mode := os.Getenv("EVERDICT_TEST_RUNNER"); mode != "" {
		doomedRunner(t, mode)
		return
	}
	t.Parallel()
	for _, mode := range []string{"running", "frozen", "created"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{})
			attempt := r.spec().Attempt
			cmd := exec.Command(os.Args[0], "-test.run", "^TestF14_KilledRunnerLeavesNothing$")
			cmd.Env = append(os.Environ(), "EVERDICT_TEST_RUNNER="+mode, "EVERDICT_TEST_ATTEMPT="+attempt, "EVERDICT_TEST_DIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "up" {
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			label := LabelAttempt + "=" + attempt
			// A runner beside this test may sweep at any moment: what is gone already is as it should be.
			if mode == "running" {
				until(t, "the container to end with its runner", func() bool {
					left := r.e.labelled(t, label)
					return len(left) == 0 || left[0].State == "exited"
				})
			}
			swept, err := r.d.Sweep(t.Context(), func(string) bool { return true })
			if err != nil || len(swept) != 0 {
				t.Errorf("sweep of what is kept: %+v, %v", swept, err)
			}
			swept, err = r.d.Sweep(t.Context(), func(a string) bool { return a != attempt })
			if err != nil {
				t.Errorf("sweep: %v", err)
			}
			for _, s := range swept {
				if s.Attempt != attempt || s.Kind != "container" {
					t.Errorf("the sweep took %+v, which was to be kept", s)
				}
			}
			if left := r.e.labelled(t, label); len(left) != 0 {
				t.Errorf("swept %+v, left %+v", swept, left)
			}
		})
	}
}

func doomedRunner(t *testing.T, mode string) {
	d := New(Config{Image: busybox})
	s := sandbox.Spec{Attempt: os.Getenv("EVERDICT_TEST_ATTEMPT"), Dir: os.Getenv("EVERDICT_TEST_DIR"), Env: []string{"PATH=/bin"}}
	if mode == "created" { // killed between create and start
		e, err := connect(t.Context(), d.cfg)
		if err != nil {
			t.Fatal(err)
		}
		img, err := e.ensure(t.Context(), d.cfg, busybox, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan(d.cfg, e, s, img, d.owner)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.api.ContainerCreate(t.Context(), p.config, p.host, nil, nil, p.name); err != nil {
			t.Fatal(err)
		}
	} else {
		h, err := d.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Exec(t.Context(), sh(`trap "" TERM; while :; do sleep 1; done`)); err != nil {
			t.Fatal(err)
		}
		if mode == "frozen" {
			if err := h.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Println("up")
	select {}
}

func TestF14_SweepHeedsTheGrace(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	old := New(Config{Image: busybox, SweepGrace: time.Nanosecond})
	defer old.Close()
	s := r.spec()
	img, err := r.e.ensure(t.Context(), r.d.cfg, busybox, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan(r.d.cfg, r.e, s, img, owner("another-host/boot/1/1/x"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := r.e.api.ContainerCreate(t.Context(), p.config, p.host, nil, nil, p.name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.e.remove(context.Background(), made.ID)
	net, err := r.e.api.NetworkCreate(t.Context(), p.name, network.CreateOptions{Labels: p.config.Labels})
	if err != nil {
		t.Fatal(err)
	}
	defer r.e.api.NetworkRemove(context.Background(), net.ID)
	keepOthers := func(a string) bool { return a != s.Attempt }
	// Of a runner on another machine nothing is known: it may be about to start the container.
	if _, err := r.d.Sweep(t.Context(), keepOthers); err != nil || len(r.e.labelled(t, LabelAttempt+"="+s.Attempt)) != 1 {
		t.Errorf("sweep within the grace: %v, or it took the container", err)
	}
	swept, err := old.Sweep(t.Context(), keepOthers)
	if err != nil || len(swept) != 2 || swept[0].Kind != "container" || swept[1].Kind != "network" {
		t.Errorf("sweep past the grace: %+v, %v, wanted the container and the network", swept, err)
	}
}

// stubborn is shell code that does not end by itself, and leaves a process in a session of its own.
const stubborn = `trap "" TERM INT; (setsid sleep 1000 &); while :; do sleep 1; done`

// removeForty is how long the engine itself takes to remove forty containers.
func removeForty(t *testing.T) time.Duration {
	t.Helper()
	ids := make([]string, 40)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			out, err := exec.Command("docker", "run", "-d", "--pull", "never", busybox, "sh", "-c", stubborn).Output()
			if err != nil {
				t.Errorf("docker run: %v", err)
			}
			ids[i] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	begin := time.Now()
	if out, err := exec.Command("docker", append([]string{"rm", "-f"}, ids...)...).CombinedOutput(); err != nil {
		t.Fatalf("docker rm: %v: %s", err, out)
	}
	return time.Since(begin)
}

func TestF19_FortyAtOnceCancelledAtOnce(t *testing.T) {
	r := newRig(t, Config{})
	mine := LabelRunner + "=" + string(r.d.owner)
	networks := func() int {
		list, err := r.e.api.NetworkList(t.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", mine))})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for round := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg, up sync.WaitGroup
		up.Add(40)
		released := make(chan error, 40)
		for range 40 {
			spec := r.spec()
			wg.Go(func() {
				h, err := r.d.Start(ctx, spec)
				if err != nil {
					up.Done()
					released <- err
					return
				}
				_, err = h.Exec(ctx, sh(stubborn))
				up.Done()
				<-ctx.Done()
				end := h.Release(ctx)
				if errors.Is(end, context.DeadlineExceeded) {
					end = h.Release(ctx) // the engine had no time: whether it should have had is seen below
				}
				released <- errors.Join(err, end)
			})
		}
		up.Wait()
		cancel()
		begin := time.Now()
		wg.Wait()
		for range 40 {
			if err := <-released; err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		took := time.Since(begin)
		t.Logf("round %d: 40 sandboxes were released in %s", round, took)
		if left := r.e.labelled(t, mine); len(left) != 0 {
			t.Errorf("round %d: %d containers are left", round, len(left))
		}
		if n := networks(); n != 0 {
			t.Errorf("round %d: %d networks are left", round, n)
		}
		if took <= sandbox.EndWithin {
			continue
		}
		// On a machine where others work as well it may be the engine that has no time.
		if bare := removeForty(t); bare < sandbox.EndWithin/2 {
			t.Errorf("round %d: %s are allowed; the engine alone takes %s", round, sandbox.EndWithin, bare)
		} else {
			t.Logf("round %d: the engine alone takes %s now", round, bare)
		}
	}
}

func TestP6_StartIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	for _, after := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 200 * time.Millisecond} {
		s := r.spec()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		h, err := r.d.Start(ctx, s)
		cancel()
		if err == nil {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if left := r.e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
			t.Errorf("a start that was cancelled after %s (%v) left %+v", after, err, left)
		}
	}
}

func TestHardening(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start()
	var c container.InspectResponse
	c, raw, err := r.e.api.ContainerInspectWithRaw(t.Context(), r.e.labelled(t, LabelAttempt+"="+b.spec.Attempt)[0].ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(raw) || c.HostConfig.Privileged || !strings.Contains(fmt.Sprint(c.HostConfig.SecurityOpt), "no-new-privileges") || len(c.Mounts) != 3 {
		t.Errorf("container: %+v", c.HostConfig)
	}
	status := b.ok("cat /proc/self/status")
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("a command's status lacks %q: %s", want, status)
		}
	}
	// CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7, NET_BIND_SERVICE 10
	want := "CapEff:\t00000000000004fb"
	if os.Getuid() != 0 && !r.e.secured("rootless") {
		want = "CapEff:\t0000000000000000"
	}
	if !strings.Contains(status, want) {
		t.Errorf("capabilities of a command, wanted %s: %s", want, status)
	}
	if out := b.ok("ls /var/run/docker.sock /run/docker.sock 2>/dev/null; ls -d /work /home 2>/dev/null; true"); out != "" {
		t.Errorf("the host shows: %s", out)
	}
	if exit := b.wait(b.exec(sh("mknod /dev/x b 1 1 || mount -t tmpfs none /mnt || echo x >/.everdict-init"))); exit.Success() {
		t.Error("a command made a device, a mount, or overwrote init")
	}
	// Nobody inside can speak in init's name, or listen to it: its descriptors are out of reach for its own user, too.
	if out := b.ok(`for p in 1 $PPID; do readlink /proc/$p/fd/1; (echo forged >/proc/$p/fd/1) && echo open; cat /proc/$p/mem /proc/$p/fd/0; done 2>/dev/null; true`); out != "" {
		t.Errorf("init's descriptors can be reached: %q", out)
	}
	none := r.start(func(s *sandbox.Spec) { s.Network = sandbox.NetworkNone })
	if out := none.ok("ls /sys/class/net"); out != "lo\n" {
		t.Errorf("network none has %q", out)
	}
	nobody := newRig(t, Config{User: "65534:65534", ReadonlyRoot: true}).start()
	if out := nobody.ok("id -u; grep CapEff /proc/self/status; echo x >/tmp/x && cat /tmp/x; for d in /etc /run /var/tmp; do (echo x >$d/x) 2>/dev/null || echo refused; done"); out != "65534\nCapEff:\t0000000000000000\nx\nrefused\nrefused\nrefused\n" {
		t.Errorf("as nobody on a read-only root: %q", out)
	}
}

func TestHiddenInsideTheWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	b := r.start(func(s *sandbox.Spec) {
		if err := os.Mkdir(s.Dir+"/private", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"/private/key", "/token", "/seen"} {
			if err := os.WriteFile(s.Dir+f, []byte("secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.Hide = []string{s.Dir + "/private", s.Dir + "/token", "/nowhere/else"}
	})
	if out := b.ok("ls private; cat token seen"); out != "secret\n" {
		t.Errorf("what is hidden shows: %q, wanted what is not, once", out)
	}
	if got := b.Info().Hidden; !slices.Equal(got, b.spec.Hide) {
		t.Errorf("info says that %q is hidden", got)
	}
}

func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		spec func(*sandbox.Spec)
		what string
	}{
		"unknown runtime":  {cfg: Config{Runtime: "runsc-not-here"}, what: "runtime"},
		"a GPU":            {spec: func(s *sandbox.Spec) { s.Resources.GPU = 1 }, what: "GPU count"},
		"too many CPUs":    {spec: func(s *sandbox.Spec) { s.Resources.CPUMillis = 1_000_000 }, what: "CPU limit"},
		"too little CPU":   {spec: func(s *sandbox.Spec) { s.Resources.CPUMillis = 1 }, what: "CPU limit"},
		"too little space": {spec: func(s *sandbox.Spec) { s.Resources.MemoryMB = 1 }, what: "memory limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.cfg)
			s := r.spec()
			if c.spec != nil {
				c.spec(&s)
			}
			_, err := r.d.Start(t.Context(), s)
			var not *sandbox.UnsupportedError
			if !errors.As(err, &not) || not.What != c.what || not.Wanted == "" || not.Reason == "" || not.Driver != Name {
				t.Errorf("start: %v, wanted a refusal of %q", err, c.what)
			}
			if left := r.e.labelled(t, LabelAttempt+"="+s.Attempt); len(left) != 0 {
				t.Errorf("a refused start left %+v", left)
			}
		})
	}
	d := New(Config{})
	defer d.Close()
	var not *sandbox.UnsupportedError
	if _, err := d.Start(t.Context(), (&rig{T: t}).spec()); !errors.As(err, &not) {
		t.Errorf("a spec without an image: %v", err)
	}
}
