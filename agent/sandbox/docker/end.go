package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
)

// Kill implements sandbox.ComputeHandle.
func (h *handle) Kill(ctx context.Context) error {
	h.breakFreeze()
	if err := h.enterToEnd(ctx); err != nil {
		return fmt.Errorf("docker: kill %s: %w", h.spec.Attempt, err)
	}
	defer h.leave()
	if h.isReleasing() {
		return sandbox.ErrReleased
	}
	h.notice()
	if h.isFrozen() {
		// What holds it is ended, too: with a ctx that is over, nobody could use it any more.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
		defer cancel()
	}
	if err := h.end(ctx); err != nil {
		return fmt.Errorf("docker: kill %s: %w", h.spec.Attempt, err)
	}
	if err := h.free(ctx); err != nil {
		return fmt.Errorf("docker: kill %s: %w", h.spec.Attempt, err)
	}
	return nil
}

// free ends all that holds an empty sandbox. A deadline that has not passed stays. The gate is held.
func (h *handle) free(ctx context.Context) error {
	h.noticing.Lock()
	defer h.noticing.Unlock()
	h.mu.Lock()
	l, stopped, over, lost := h.link, h.stopped, h.holds.Has(hold.Deadline) || h.passed(), h.loss != nil
	if over {
		h.deadline = nil
	}
	h.stopped = false
	h.mu.Unlock()
	if stopped {
		_ = l.send(frameGoOn, 0, 0, nil) // over: there is nobody to go on
	}
	var err error
	if over && !lost {
		err = h.tell(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.Clear()
	return err
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
		c.dog.Killed()
	}
	return live
}

// end kills every process of a sandbox that goes on. The gate is held.
func (h *handle) end(ctx context.Context) error {
	live := h.claimLive()
	if h.isPaused() {
		return h.killWhole(ctx)
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
	silent, answered := stall()
	defer answered()
	select {
	case <-all:
	case <-l.dead:
		return nil
	case <-silent:
		err = errSilent
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
	defer cancel()
	h.lookFromOutside(ctx) // the counters go with the container
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
	if err := h.bringUp(ctx); err != nil {
		err = fmt.Errorf("start the killed container again: %w", err)
		h.mu.Lock()
		h.loss = err
		h.mu.Unlock()
		return err
	}
	h.noticing.Lock()
	defer h.noticing.Unlock()
	h.mu.Lock()
	bound := h.deadline != nil
	h.mu.Unlock()
	if bound {
		return h.tell(ctx)
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
	if err := h.enterToEnd(ctx); err != nil {
		return fmt.Errorf("docker: release %s: %w", h.spec.Attempt, err)
	}
	defer h.leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.EndWithin)
	defer cancel()
	h.claimLive()
	if !h.isPaused() {
		h.notice()
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
	h.holds.Clear() // an Exec that waits for it learns of the release
	h.mu.Unlock()
	h.driver.forget(h)
	return nil
}

// giveBack makes what the job left in the workspace the runner's, so that it can remove it, where commands run as
// another user (F22). It is an attempt: who then removes the workspace finds out what is left.
func (h *handle) giveBack(ctx context.Context, l *link) {
	uid, gid := os.Getuid(), os.Getgid()
	if runtime.GOOS != "linux" || h.engine.secured("rootless") || !isRoot(h.user) || uid == 0 || h.isPaused() {
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
const giveWithin = sandbox.EndWithin / 2
