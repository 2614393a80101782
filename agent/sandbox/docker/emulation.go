package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/mount"

	"github.com/everdict/everdict/agent/sandbox"
)

// foreignPath is a program for the image's kind of machine, in a container of another kind.
const foreignPath = "/.everdict-foreign"

// foreignWithin bounds the emulated run of a program that does next to nothing.
const foreignWithin = 20 * time.Second

// addForeign mounts a program of ours that needs emulation, to find out whether there is any. Process 1 is the engine's
// own kind, so that the container itself would start without, and only the job's first command fail. False: we have no
// program for such a machine, and the job finds out.
func (p *planned) addForeign(cfg Config, arch string) (bool, error) {
	if _, err := programs.Open("init/ask_linux_" + arch); err != nil {
		return false, nil
	}
	program, err := lay(cfg.StateDir, "ask", arch)
	if err != nil {
		return false, err
	}
	p.host.Mounts = append(p.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: program, Target: foreignPath, ReadOnly: true})
	return true, nil
}

// tryForeign runs it. What the kernel cannot run here it will not run at another try.
func (h *handle) tryForeign(ctx context.Context) error {
	var said bytes.Buffer
	var exit sandbox.Exit
	p, err := h.Exec(ctx, sandbox.Command{Args: []string{foreignPath, "--help"}, Dir: "/", Stdout: &said, Stderr: &said, Timeout: foreignWithin})
	if err == nil {
		exit, err = p.Wait()
	}
	refused := func(why string) error {
		return &sandbox.ImageError{Image: h.spec.Image, Words: fmt.Sprintf("it is for %s, this engine runs linux/%s, and %s", h.info.Platform, h.engine.arch, why)}
	}
	switch {
	case errors.Is(err, syscall.ENOEXEC), errors.Is(err, sandbox.ErrNotFound): // not found is an interpreter outside of the container
		return refused("emulation is not set up on its machine (Linux: binfmt_misc with a static qemu-user; on Debian the packages " +
			"qemu-user-static and binfmt-support)")
	case err != nil:
		return fmt.Errorf("docker: start %s: try the emulation: %w", h.spec.Attempt, err)
	case exit.Reason == sandbox.ReasonNone && !exit.Success():
		return refused(fmt.Sprintf("emulation on its machine does not work: code %d %s: %.200s", exit.Code, exit.Signal, said.Bytes()))
	case !exit.Success():
		return fmt.Errorf("docker: start %s: try the emulation: ended by %s", h.spec.Attempt, exit.Reason)
	}
	return nil
}
