package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/everdict/everdict/agent/sandbox"
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
	env    []string
	info   sandbox.Info
	watch  *stopwatch.Stopwatch

	gate    chan struct{}
	release chan struct{} // held by the Release that works

	mu        sync.Mutex
	link      *link // of the container's present life
	live      map[*command]struct{}
	frozen    bool
	paused    bool          // by the engine: a frozen one that was killed and started again has nothing to pause
	stopped   bool          // by SIGSTOP, before or instead
	thawed    chan struct{} // closed while not frozen
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
	thawed := make(chan struct{})
	close(thawed)
	return &handle{driver: d, spec: spec, live: make(map[*command]struct{}), thawed: thawed,
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
	h.env, h.info, h.user = img.env, p.info, p.config.User
	h.watch = stopwatch.New(stopwatch.Now, false)
	made, err := e.api.ContainerCreate(ctx, p.config, p.host, nil, nil, p.name)
	if err != nil {
		if cerrdefs.IsConflict(err) {
			return fmt.Errorf("docker: start %s: %w: %v", h.spec.Attempt, sandbox.ErrInUse, err)
		}
		// The engine may have made it all the same: its answer is what got lost.
		return errors.Join(fmt.Errorf("docker: start %s: create the container: %w", h.spec.Attempt, err), h.undo(ctx, p.name))
	}
	h.id = made.ID
	if err := h.live1(ctx); err != nil {
		return errors.Join(startError(h.spec, err), h.undo(ctx, h.id))
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

// live1 begins a life of the container: it is attached before it starts, so that nothing init says is missed.
func (h *handle) live1(ctx context.Context) error {
	api := h.engine.api
	conn, err := api.ContainerAttach(ctx, h.id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	l := newLink(conn)
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
	h.link, h.loss, h.ending = l, nil, false
	h.last = counters{}
	h.mu.Unlock()
	go h.attend(l)
	return nil
}

// attend notes when the container ends and nobody of us has ended it.
func (h *handle) attend(l *link) {
	<-l.done
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l && !h.ending && h.loss == nil {
		h.loss = fmt.Errorf("docker: the container of %s has ended: %w", h.spec.Attempt, l.err)
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
	return fmt.Errorf("docker: the container of %s has ended", h.spec.Attempt)
}

// undo removes what a failed start has made. It is looked for a moment longer when the engine did not answer, because
// the engine may be making it now; what still slips through carries its label and is swept.
func (h *handle) undo(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	for try := 0; ; try++ {
		err := h.engine.remove(ctx, name)
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
	err := e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
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
	env := merge(h.env, h.spec.Env, cmd.Env, []string{sandbox.EnvAttempt + "=" + h.spec.Attempt})
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
		select {
		case h.gate <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		h.mu.Lock()
		releasing, frozen, thawed := h.releasing, h.frozen, h.thawed
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

func (h *handle) leave() { <-h.gate }

// Freeze implements sandbox.ComputeHandle.
func (h *handle) Freeze(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer h.leave()
	pctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	h.mu.Lock()
	switch {
	case h.releasing:
		h.mu.Unlock()
		return sandbox.ErrReleased
	case h.frozen:
		h.mu.Unlock()
		return nil
	}
	h.interrupt = cancel
	h.mu.Unlock()
	h.look(pctx) // a frozen container's init answers no questions
	paused, stopped, err := h.pause(pctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
	if err != nil {
		return fmt.Errorf("docker: freeze %s: %w", h.spec.Attempt, err)
	}
	h.frozen, h.paused, h.stopped, h.thawed = true, paused, stopped, make(chan struct{})
	h.watch.Set(true)
	return nil
}

// pause stops every process. A cgroup v1 freezer gives up on what forks faster than it freezes: then init stops
// everything first, in one step of the kernel's, and what stands still is frozen. Should the engine refuse once more,
// standing still is enough: there is nobody left inside to send SIGCONT. After an error everything runs.
func (h *handle) pause(ctx context.Context) (paused, stopped bool, err error) {
	api := h.engine.api
	if err = api.ContainerPause(ctx, h.id); err == nil {
		return true, false, nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	// The engine may have done it all the same, or in part. Of what runs this is an error without meaning.
	_ = api.ContainerUnpause(undo, h.id)
	if ctx.Err() != nil {
		return false, false, context.Cause(ctx)
	}
	h.mu.Lock()
	l := h.link
	h.mu.Unlock()
	_ = l.send(frameStopAll, 0, 0, nil)
	if berr := l.barrier(ctx); berr != nil {
		_ = l.send(frameGoOn, 0, 0, nil)
		return false, false, errors.Join(err, berr)
	}
	if api.ContainerPause(ctx, h.id) == nil {
		return true, true, nil
	}
	_ = api.ContainerUnpause(undo, h.id)
	if ctx.Err() != nil {
		_ = l.send(frameGoOn, 0, 0, nil)
		return false, false, context.Cause(ctx)
	}
	return false, true, nil
}

// Thaw implements sandbox.ComputeHandle.
func (h *handle) Thaw(ctx context.Context) error {
	select {
	case h.gate <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer h.leave()
	h.mu.Lock()
	releasing, frozen, paused, stopped, l := h.releasing, h.frozen, h.paused, h.stopped, h.link
	h.mu.Unlock()
	switch {
	case releasing:
		return sandbox.ErrReleased
	case !frozen:
		return nil
	}
	// The watch goes on first: running time that is not counted would be a way around the timeout.
	h.watch.Set(false)
	if paused {
		ctx, cancel := context.WithTimeout(ctx, endWithin)
		defer cancel()
		if err := h.engine.api.ContainerUnpause(ctx, h.id); err != nil {
			h.watch.Set(true)
			return fmt.Errorf("docker: thaw %s: %w", h.spec.Attempt, err)
		}
	}
	if stopped {
		_ = l.send(frameGoOn, 0, 0, nil) // over: there is nobody to go on
	}
	h.markThawed()
	return nil
}

func (h *handle) markThawed() {
	h.watch.Set(false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		h.frozen, h.paused, h.stopped = false, false, false
		close(h.thawed)
	}
}

func (h *handle) isFrozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen
}

func (h *handle) isReleasing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.releasing
}

// Kill implements sandbox.ComputeHandle.
func (h *handle) Kill(ctx context.Context) error {
	h.breakFreeze()
	h.gate <- struct{}{}
	defer h.leave()
	if h.isReleasing() {
		return sandbox.ErrReleased
	}
	if err := h.end(ctx); err != nil {
		return fmt.Errorf("docker: kill %s: %w", h.spec.Attempt, err)
	}
	return nil
}

// breakFreeze makes a Freeze that is under way give up the gate.
func (h *handle) breakFreeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupt != nil {
		h.interrupt()
	}
}

// claimLive says of all commands that they are killed.
func (h *handle) claimLive() []*command {
	h.mu.Lock()
	live := slices.Collect(maps.Keys(h.live))
	h.mu.Unlock()
	for _, c := range live {
		c.claim(sandbox.ReasonKilled, nil)
	}
	return live
}

// end kills every process of a sandbox that goes on. The gate is held.
func (h *handle) end(ctx context.Context) error {
	live := h.claimLive()
	if h.isFrozen() {
		err := h.killWhole(ctx)
		if err == nil {
			h.markThawed()
		}
		return err
	}
	h.mu.Lock()
	l, loss := h.link, h.loss
	h.mu.Unlock()
	if loss != nil {
		return nil // with process 1 ended everybody else
	}
	h.countKill()
	defer h.countKill()
	all, err := l.killAll()
	timer := time.NewTimer(stallAfter)
	defer timer.Stop()
	select {
	case <-all:
	case <-l.dead:
		return nil
	case <-timer.C:
		err = errors.New("init does not answer")
	case <-ctx.Done():
		return context.Cause(ctx) // it has been told, and will do it
	}
	if err != nil {
		return h.restart(ctx)
	}
	for _, c := range live {
		select {
		case <-c.gone:
		case <-l.dead:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// killWhole kills the container and starts it again. The gate is held. A frozen sandbox counts as frozen still.
func (h *handle) killWhole(ctx context.Context) error {
	h.countKill()
	defer h.countKill()
	return h.restart(ctx)
}

func (h *handle) countKill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kills++
}

func (h *handle) restart(ctx context.Context) error {
	h.claimLive()
	// The kill is sent even when ctx has ended: it only bounds the wait, and that is bounded anyhow.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	h.mu.Lock()
	h.ending = true
	l := h.link
	h.base = h.base.plus(h.last)
	h.last = counters{}
	h.mu.Unlock()
	api := h.engine.api
	h.killFrozen(ctx)
	if err := api.ContainerKill(ctx, h.id, "SIGKILL"); err != nil && !cerrdefs.IsConflict(err) {
		return fmt.Errorf("kill the container: %w", err)
	}
	ok, fail := api.ContainerWait(ctx, h.id, container.WaitConditionNotRunning)
	select {
	case <-ok:
	case err := <-fail:
		return fmt.Errorf("wait for the container's end: %w", err)
	}
	l.close()
	if h.isReleasing() {
		return nil
	}
	h.mu.Lock()
	h.paused, h.stopped = false, false
	h.mu.Unlock()
	if err := h.live1(ctx); err != nil {
		err = fmt.Errorf("start the killed container again: %w", err)
		h.mu.Lock()
		h.loss = err
		h.mu.Unlock()
		return err
	}
	return nil
}

// lostCommand ends everything after a command whose supervisor was killed, by the job itself or for want of memory:
// what belonged to it cannot be told any more.
func (h *handle) lostCommand() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releasing || h.lostDone != nil || h.kills%2 == 1 {
		return // its end is ours, or is being seen to
	}
	done, kills := make(chan struct{}), h.kills
	h.lostDone = done
	go func() {
		h.gate <- struct{}{}
		defer h.leave()
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.lostDone = nil
			close(done)
		}()
		h.mu.Lock()
		over := h.releasing || h.kills != kills
		h.mu.Unlock()
		if over {
			return
		}
		if err := h.end(context.Background()); err != nil {
			h.mu.Lock()
			h.loss = errors.Join(h.loss, err)
			h.mu.Unlock()
		}
	}()
}

// awaitLost waits until everything has been killed for a lost command.
func (h *handle) awaitLost(ctx context.Context) error {
	h.mu.Lock()
	done := h.lostDone
	h.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release implements sandbox.ComputeHandle.
func (h *handle) Release(ctx context.Context) error {
	// Cleaning up after a run whose context was cancelled is what Release is for: it bounds itself.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	h.release <- struct{}{}
	defer func() { <-h.release }()
	h.mu.Lock()
	if h.released {
		h.mu.Unlock()
		return nil
	}
	h.releasing = true
	h.mu.Unlock()
	h.breakFreeze()
	h.gate <- struct{}{}
	defer h.leave()
	h.claimLive()
	if !h.isFrozen() {
		h.look(ctx)
	}
	h.mu.Lock()
	h.ending = true
	l := h.link
	h.mu.Unlock()
	h.killFrozen(ctx)
	h.giveBack(ctx, l)
	if err := ignoreMissing(h.engine.remove(ctx, h.id)); err != nil {
		return fmt.Errorf("docker: release %s: %w", h.spec.Attempt, err)
	}
	l.close()
	h.mu.Lock()
	h.final = h.base.plus(h.last).usage()
	h.final.PIDs = new(int64)
	_, h.final.Frozen, _, _ = h.watch.Read()
	h.released = true
	if !h.frozen {
		h.thawed = make(chan struct{})
		close(h.thawed)
	} else {
		close(h.thawed) // an Exec that waits for it learns of the release
		h.frozen = false
	}
	h.mu.Unlock()
	h.driver.forget(h)
	return nil
}

// giveBack makes what the job left in the workspace the runner's, so that it can remove it, where commands run as
// another user (F22). It is an attempt: who then removes the workspace finds out what is left.
func (h *handle) giveBack(ctx context.Context, l *link) {
	uid, gid := os.Getuid(), os.Getgid()
	if runtime.GOOS != "linux" || !isRoot(h.user) || uid == 0 || h.isFrozen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, giveWithin)
	defer cancel()
	if all, err := l.killAll(); err == nil { // nobody may be making files meanwhile
		select {
		case <-all:
		case <-l.dead:
		case <-ctx.Done():
		}
	}
	_ = l.give(ctx, h.spec.Dir, uid, gid)
}

// giveWithin leaves half of the time of a Release for the container: 100,000 files take about a second.
const giveWithin = endWithin / 2
