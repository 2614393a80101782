package standin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/strslice"
	docker "github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/hashicorp/nomad/api"
)

// process is a task that runs.
type process interface {
	done() <-chan struct{}
	end() ending // after done
	signal(syscall.Signal)
}

// ending is how a task ended.
type ending struct {
	code, signal int
	oom          bool
	message      string
}

// command is a task that is to run.
type command struct {
	task           *api.Task
	alloc          *api.Allocation
	env            []string
	insert         func(string) string
	dir, shared    string
	stdout, stderr string
}

// text is a string of the task's config.
func (c *command) text(key string) string {
	s, _ := c.task.Config[key].(string)
	return c.insert(s)
}

// list is a list of strings of the task's config.
func (c *command) list(key string) (all []string) {
	items, _ := c.task.Config[key].([]any)
	for _, i := range items {
		all = append(all, c.insert(fmt.Sprint(i)))
	}
	return all
}

func (c *command) logs() (out, err *os.File, _ error) {
	if out, e := os.Create(c.stdout); e != nil {
		return nil, nil, e
	} else if err, e = os.Create(c.stderr); e != nil {
		return nil, nil, errors.Join(e, out.Close())
	} else {
		return out, err, nil
	}
}

// exited is a process of the host, in a session of its own.
type exited struct {
	cmd    *exec.Cmd
	closed chan struct{}
	how    ending
}

func (c *command) rawExec() (process, error) {
	out, errs, err := c.logs()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	defer errs.Close()
	cmd := exec.Command(c.text("command"), c.list("args")...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, c.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("file %s not found under path", cmd.Path)
		}
		return nil, fmt.Errorf("failed to launch command with executor: rpc error: code = Unknown desc = %w", err)
	}
	p := &exited{cmd: cmd, closed: make(chan struct{})}
	go func() {
		defer close(p.closed)
		_ = cmd.Wait()
		// What it left in its group goes with it.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		p.how.code = status.ExitStatus()
		if status.Signaled() {
			p.how.code, p.how.signal = 128+int(status.Signal()), int(status.Signal())
		}
	}()
	return p, nil
}

func (p *exited) done() <-chan struct{} { return p.closed }
func (p *exited) end() ending           { return p.how }
func (p *exited) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended
	if s == syscall.SIGKILL {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// contained is a container of the local engine.
type contained struct {
	engine *docker.Client
	id     string
	closed chan struct{}
	how    ending
}

// Label of every container of a stand-in.
const Label = "everdict.test.nomad"

func (c *command) docker(engine *docker.Client, runtimes map[string]string, mhzPerCore int) (process, error) {
	ctx := context.Background()
	image := c.text("image")
	if _, err := engine.ImageInspect(ctx, image); errdefs.IsNotFound(err) {
		// No registry is asked: as if one had answered.
		return nil, fmt.Errorf("Failed to pull `%s`: API error (404): manifest for %s not found: manifest unknown: manifest unknown", image, image)
	} else if err != nil {
		return nil, fmt.Errorf("Failed to find docker auth for repo %q: %w", image, err)
	}
	runtime := c.text("runtime")
	switch as, allowed := runtimes[runtime]; {
	case allowed:
		runtime = as
	case runtime != "" && runtime != "runc" && runtime != "nvidia":
		return nil, fmt.Errorf("requested runtime %q is not allowed", runtime)
	}
	r := c.task.Resources
	host := &container.HostConfig{
		Binds:       []string{c.shared + ":/alloc", c.dir + "/local:/local", c.dir + "/secrets:/secrets"},
		NetworkMode: container.NetworkMode(c.text("network_mode")), Runtime: runtime,
		CapDrop: strslice.StrSlice(c.list("cap_drop")), SecurityOpt: c.list("security_opt"),
	}
	host.Memory = int64(*r.MemoryMB) << 20
	host.MemorySwap = host.Memory
	mhz := deref(r.CPU)
	if mhz == 0 {
		mhz = deref(r.Cores) * mhzPerCore
	}
	host.CPUShares = int64(max(2, mhz))
	if hard, _ := c.task.Config["cpu_hard_limit"].(bool); hard {
		host.CPUPeriod, host.CPUQuota = 100_000, max(1000, int64(mhz)*100_000/int64(mhzPerCore))
	}
	cfg := &container.Config{Image: image, Env: c.env, User: c.task.User, Labels: map[string]string{Label: c.alloc.ID, "com.hashicorp.nomad.alloc_id": c.alloc.ID}}
	if entry := c.list("entrypoint"); entry != nil {
		cfg.Entrypoint = entry
	}
	if args := c.list("args"); args != nil {
		cfg.Cmd = args
	}
	made, err := engine.ContainerCreate(ctx, cfg, host, nil, nil, c.task.Name+"-"+c.alloc.ID)
	if err != nil {
		return nil, fmt.Errorf("Failed to create container configuration for image %q: %w", image, err)
	}
	p := &contained{engine: engine, id: made.ID, closed: make(chan struct{})}
	if err := engine.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		p.remove()
		return nil, fmt.Errorf("Failed to start container %s: API error (400): %w", made.ID, err)
	}
	out, errs, err := c.logs()
	if err != nil {
		p.remove()
		return nil, err
	}
	go func() {
		defer close(p.closed)
		defer p.remove()
		defer out.Close()
		defer errs.Close()
		if logs, err := engine.ContainerLogs(ctx, p.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true}); err == nil {
			_, _ = stdcopy.StdCopy(out, errs, logs)
			logs.Close()
		}
		p.wait(ctx)
	}()
	return p, nil
}

func (p *contained) wait(ctx context.Context) {
	ended, failed := p.engine.ContainerWait(ctx, p.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		p.how = ending{code: 1, message: err.Error()}
		return
	}
	info, err := p.engine.ContainerInspect(ctx, p.id)
	if err != nil {
		p.how = ending{code: 1, message: err.Error()}
		return
	}
	p.how = ending{code: info.State.ExitCode, oom: info.State.OOMKilled}
	switch {
	case p.how.oom: // https://github.com/hashicorp/nomad/pull/3459
		p.how.message = "OOM Killed"
	case p.how.code != 0:
		p.how.message = fmt.Sprintf("Docker container exited with non-zero exit code: %d", p.how.code)
	}
}

func (p *contained) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = p.engine.ContainerRemove(ctx, p.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

func (p *contained) done() <-chan struct{} { return p.closed }
func (p *contained) end() ending           { return p.how }
func (p *contained) signal(s syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = p.engine.ContainerKill(ctx, p.id, fmt.Sprint(int(s))) // it may have ended
}
