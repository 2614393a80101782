package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// handle is one live sandbox.
//
// gate serialises everything that must not overlap: the start of a command, freeze, thaw, kill and removal. mu guards
// the fields below it and is never held while waiting.
type handle struct {
	driver *Driver
	spec   sandbox.Spec
	engine *engine
	id     string // of the container
	user   string // that commands run as
	// runtime is the OCI runtime that runs it.
	runtime string
	env     []string
	info    sandbox.Info
	watch   *stopwatch.Stopwatch

	gate    chan struct{}
	release chan struct{} // held by the Release that works

	noticing sync.Mutex // held while the deadline is moved, or asked about

	mu        sync.Mutex
	link      *link // of the container's present life
	live      map[*command]struct{}
	holds     *hold.Holds
	paused    bool               // by the engine: a frozen one that was killed and started again has nothing to pause
	stopped   bool               // by SIGSTOP, before or instead
	deadline  *stopwatch.Reading // nil: none
	told      bool               // init has been told of a deadline
	interrupt context.CancelFunc
	ending    bool // the container is being killed by us: the end of its link is no loss
	loss      error
	lostDone  chan struct{} // not nil after a command was lost; closed when everything was killed for it
	kills     uint64        // how often everything was killed; odd while it is being done
	releasing bool
	released  bool
	base      counters // of the container's former lives
	last      counters // of its present one, as last read
	final     sandbox.Usage
}

func newHandle(d *Driver, spec sandbox.Spec) *handle {
	return &handle{driver: d, spec: spec, live: make(map[*command]struct{}),
		gate: make(chan struct{}, 1), release: make(chan struct{}, 1)}
}

// start makes the container and starts it. After an error nothing is left.
func (h *handle) start(ctx context.Context) error {
	e, err := h.driver.found(ctx)
	if err != nil {
		return err
	}
	h.engine = e
	img, err := e.ensure(ctx, h.driver.cfg, h.spec.Image, h.spec.Progress)
	if err != nil {
		return err
	}
	p, err := plan(h.driver.cfg, e, h.spec, img, h.driver.owner)
	if err != nil {
		return err
	}
	foreign := false
	if p.info.Emulated {
		if foreign, err = p.addForeign(h.driver.cfg, img.arch); err != nil {
			return err
		}
	}
	h.env, h.info, h.user, h.runtime = img.env, p.info, p.config.User, cmp.Or(p.host.Runtime, e.info.DefaultRuntime)
	h.watch = stopwatch.New(stopwatch.Now, false)
	h.holds = hold.New(h.watch)
	made, err := e.api.ContainerCreate(ctx, p.config, p.host, nil, nil, p.name)
	if err != nil {
		if cerrdefs.IsConflict(err) {
			return fmt.Errorf("docker: start %s: %w: %v", h.spec.Attempt, sandbox.ErrInUse, err)
		}
		// The engine may have made it all the same: its answer is what got lost.
		return errors.Join(fmt.Errorf("docker: start %s: create the container: %w", h.spec.Attempt, err), h.undo(ctx, p.name))
	}
	h.id = made.ID
	for _, w := range made.Warnings {
		h.info.Notes = append(h.info.Notes, "the engine warns: "+w)
	}
	if err := h.bringUp(ctx); err != nil {
		return errors.Join(startError(h.spec, err), h.undo(ctx, h.id))
	}
	err = h.enforced(ctx)
	if err == nil && foreign {
		err = h.tryForeign(ctx)
	}
	if err != nil {
		h.mu.Lock()
		h.ending = true
		l := h.link
		h.mu.Unlock()
		err = errors.Join(err, h.undo(ctx, h.id))
		l.close()
		return err
	}
	return nil
}

// startError tells what an engine refuses from what fails.
func startError(spec sandbox.Spec, err error) error {
	if spec.Resources.GPU > 0 && unavailableDevice(err) {
		return refuse("GPU count", fmt.Sprint(spec.Resources.GPU), err.Error())
	}
	return fmt.Errorf("docker: start %s: %w", spec.Attempt, err)
}

// bringUp begins a life of the container: it is attached before it starts, so that nothing init says is missed.
func (h *handle) bringUp(ctx context.Context) error {
	api := h.engine.api
	conn, err := api.ContainerAttach(ctx, h.id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		// Podman prepares the container for it, so that what is wrong with the container is wrong with the attach; but
		// the words of an engine that refuses an attach do not get here. A start is refused for the same reason.
		if serr := api.ContainerStart(ctx, h.id, container.StartOptions{}); serr != nil {
			return fmt.Errorf("start the container: %w", serr)
		}
		return fmt.Errorf("attach: %w", err)
	}
	l := newLink(conn)
	l.onDeadline = h.onDeadline
	go l.run()
	if err := api.ContainerStart(ctx, h.id, container.StartOptions{}); err != nil {
		l.close()
		return fmt.Errorf("start the container: %w", err)
	}
	timer := time.NewTimer(startWithin)
	defer timer.Stop()
	select {
	case <-l.hello:
	case <-l.dead:
		err = fmt.Errorf("init: %w", l.err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("init has not spoken after %s", startWithin)
	}
	if err != nil {
		l.close()
		return err
	}
	h.mu.Lock()
	h.link, h.loss, h.ending, h.told = l, nil, false, false
	h.last = counters{}
	h.mu.Unlock()
	go h.attend(l)
	return nil
}

// attend notes when the container ends and nobody of us has ended it, with what the engine knows of it.
func (h *handle) attend(l *link) {
	<-l.done
	h.mu.Lock()
	lost := h.link == l && !h.ending && h.loss == nil
	if lost {
		h.loss = fmt.Errorf("docker: the container of %s has ended: %w", h.spec.Attempt, l.err)
	}
	h.mu.Unlock()
	if !lost {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	c, err := h.engine.api.ContainerInspect(ctx, h.id)
	if err != nil || c.State == nil || c.State.Running {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loss = fmt.Errorf("%w; process 1 exited with %d %s", h.loss, c.State.ExitCode, c.State.Error)
	if c.State.OOMKilled && (h.last.oom == nil || *h.last.oom == 0) {
		one := int64(1) // the engine knows of a kill, not of how many
		h.last.oom = &one
	}
}

// lossError is why there is no container to work with.
func (h *handle) lossError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.releasing:
		return sandbox.ErrReleased
	case h.loss != nil:
		return h.loss
	}
	select {
	case <-h.link.dead: // attend is about to find out
		return fmt.Errorf("docker: the container of %s has ended: %w", h.spec.Attempt, h.link.err)
	default:
		return fmt.Errorf("docker: the container of %s has ended", h.spec.Attempt)
	}
}

// undo removes what a failed start has made. It is looked for a moment longer when the engine did not answer, because
// the engine may be making it now; what still slips through carries its label and is swept.
func (h *handle) undo(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
	defer cancel()
	for try := 0; ; try++ {
		c, err := h.engine.api.ContainerInspect(ctx, name)
		if err == nil && c.Config.Labels[LabelRunner] != string(h.driver.owner) {
			return nil // another runner's, of the same name
		}
		if err == nil {
			err = h.engine.remove(ctx, c.ID)
		}
		if err == nil || !cerrdefs.IsNotFound(err) || h.id != "" {
			return ignoreMissing(err)
		}
		if try == 3 {
			return nil
		}
		select {
		case <-time.After(50 << try * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// remove ends a container and removes it with its anonymous volumes.
func (e *engine) remove(ctx context.Context, id string) error {
	err := e.tryRemove(ctx, id)
	if !cerrdefs.IsConflict(err) {
		return err
	}
	// Somebody else is removing it: it is over when it is not there any more.
	ok, fail := e.api.ContainerWait(ctx, id, container.WaitConditionRemoved)
	select {
	case <-ok:
		return nil
	case err := <-fail:
		return ignoreMissing(err)
	}
}

// tryRemove asks for it again while Podman says that the container's state is not the right one: it has killed it, and
// does not know yet that it has ended.
func (e *engine) tryRemove(ctx context.Context, id string) error {
	settle, cancel := context.WithTimeout(ctx, stallAfter)
	defer cancel()
	for {
		err := e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || !strings.Contains(err.Error(), "container state improper") {
			return err
		}
		select {
		case <-time.After(stallAfter / 100):
		case <-settle.Done():
			return err
		}
	}
}

func ignoreMissing(err error) error {
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Info implements sandbox.ComputeHandle.
func (h *handle) Info() sandbox.Info {
	i := h.info
	i.Limits, i.Hidden = slices.Clone(i.Limits), slices.Clone(i.Hidden)
	i.NotHidden, i.Notes = slices.Clone(i.NotHidden), slices.Clone(i.Notes)
	return i
}

// Exec implements sandbox.ComputeHandle.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := cmd.Validate(); err != nil {
		return nil, err
	}
	for {
		c, err := h.tryExec(ctx, cmd)
		// The deadline passed when the command was on its way: it starts when the sandbox goes on.
		if !errors.Is(err, errHeld) {
			return c, err
		}
	}
}

func (h *handle) tryExec(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := h.enterThawed(ctx); err != nil {
		return nil, err
	}
	defer h.leave()
	h.mu.Lock()
	l, loss := h.link, h.loss
	h.mu.Unlock()
	if loss != nil {
		return nil, loss
	}
	c := newCommand(h, l, cmd)
	env := merge(withAsk(merge([]string{defaultPath}, h.env)), h.spec.Env, cmd.Env, []string{sandbox.EnvAttempt + "=" + h.spec.Attempt})
	h.mu.Lock()
	h.live[c] = struct{}{}
	h.mu.Unlock()
	if err := c.start(ctx, workdir(h.spec.Dir, cmd.Dir), env); err != nil {
		h.dropLive(c)
		return nil, err
	}
	c.run()
	return c, nil
}

func (h *handle) dropLive(c *command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, c)
}

// enterThawed takes the gate at a moment when the sandbox is not frozen.
func (h *handle) enterThawed(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := h.enter(ctx); err != nil {
			return err
		}
		h.notice()
		h.mu.Lock()
		releasing, frozen, thawed := h.releasing, h.holds.Any(), h.holds.Thawed()
		h.mu.Unlock()
		if !releasing && !frozen {
			return nil
		}
		h.leave()
		if releasing {
			return sandbox.ErrReleased
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// enter takes the gate. Who holds it may be waiting for an engine that does not answer.
func (h *handle) enter(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// gateWithin is longer than anybody holds the gate whom an engine that works answers: the start of a command, or an end.
const gateWithin = startWithin + sandbox.EndWithin

// enterToEnd takes the gate for those who end something, which they do even when ctx is over.
func (h *handle) enterToEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gateWithin)
	defer cancel()
	if err := h.enter(ctx); err != nil {
		return fmt.Errorf("what is being done to the container does not end: %w", err)
	}
	return nil
}

func (h *handle) leave() { <-h.gate }

func (h *handle) isReleasing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.releasing
}
