//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/hold"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// handle is one live sandbox.
//
// gate serialises everything that must not overlap: the fork of a command, freeze, thaw, kill and removal. mu
// guards the fields below it and is never held while waiting.
type handle struct {
	driver *Driver
	spec   sandbox.Spec
	m      *machine
	enc    enclosure
	spawn  *spawner
	info   sandbox.Info
	watch  *stopwatch.Stopwatch

	gate    chan struct{}
	release chan struct{} // held by the Release that works

	noticing sync.Mutex // held while the guard's freeze is taken over

	mu     sync.Mutex
	live   map[*command]struct{} // commands whose main process has not been reaped
	drains map[*stream]struct{}  // outputs that a descendant still holds open
	holds  *hold.Holds
	// adopted is what was stopped for a deadline and the enclosure has not been told of.
	adopted   []proc
	interrupt context.CancelFunc
	releasing bool
	released  bool
	final     sandbox.Usage // valid when released
}

// start makes the enclosure and takes a spawner. After an error nothing is left.
func (h *handle) start(m *machine) error {
	enc, limits, err := m.enclose(h.spec)
	if err != nil {
		return err
	}
	sp, err := m.spawners.get(h.spec.Hide, h.spec.Dir)
	if err != nil {
		return errors.Join(fmt.Errorf("process: start %s: %w", h.spec.Attempt, err), enc.remove())
	}
	h.m, h.enc, h.spawn = m, enc, sp
	h.drains = make(map[*stream]struct{})
	h.watch = stopwatch.New(m.now, false)
	h.holds = hold.New(h.watch)
	h.info = m.info()
	h.info.Limits = limits
	h.info.Hidden, h.info.NotHidden = sp.cover.hidden, sp.cover.notHidden
	h.info.Notes = append(h.info.Notes, sp.cover.notes...)
	return nil
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
	dir, err := workdir(h.spec.Dir, cmd.Dir)
	if err != nil {
		return nil, err
	}
	seq := h.m.seq.Add(1)
	env := environment(h.spec.Env, cmd.Env, []string{
		sandbox.EnvAttempt + "=" + h.spec.Attempt,
		sandbox.EnvMarker + "=" + h.m.marker(seq),
	})
	path, err := lookup(cmd.Args[0], dir, env)
	if err != nil {
		return nil, err
	}
	c, files, err := newCommand(h, cmd)
	if err != nil {
		return nil, err
	}
	if err := h.enterToStart(ctx, seq); err != nil {
		c.abandon(files)
		return nil, err
	}
	defer h.leave()
	defer func() { _ = h.m.starts(h.spec.Attempt, "") }() // should the deadline have passed, the next call notices
	attr := &os.ProcAttr{Dir: dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{
		// A session of its own takes the runner's terminal away from the command, and gives it a process group.
		Setsid: true,
	}}
	c.cell, err = h.enc.newCell(seq)
	if err == nil {
		c.cell.attr(path, attr.Sys)
		c.proc, err = h.spawn.start(ctx, spawnRequest{cell: c.cell, path: path, args: cmd.Args, attr: attr})
		if err != nil {
			c.cell.ended(nil)
		}
	}
	if err != nil {
		c.abandon(files)
		if errors.Is(err, fs.ErrNotExist) { // the interpreter of a script, or a file that has just gone
			err = errors.Join(sandbox.ErrNotFound, err)
		}
		return nil, fmt.Errorf("process: exec %q: %w", cmd.Args[0], err)
	}
	h.mu.Lock()
	h.live[c] = struct{}{}
	h.mu.Unlock()
	c.run(files)
	return c, nil
}

// enterToStart takes the gate, and keeps the guard from freezing what does not run yet.
func (h *handle) enterToStart(ctx context.Context, seq uint64) error {
	for {
		if err := h.enterThawed(ctx); err != nil {
			return err
		}
		err := h.m.starts(h.spec.Attempt, cellName(seq))
		switch {
		case err == nil && !h.isFrozen():
			return nil
		case err == nil: // noticed by somebody else meanwhile
			err = errFired
			_ = h.m.starts(h.spec.Attempt, "")
		}
		h.leave()
		if !errors.Is(err, errFired) {
			return fmt.Errorf("process: start in %s: %w", h.spec.Attempt, err)
		}
	}
}

// cellName names the part of an enclosure that holds one command.
func cellName(seq uint64) string { return "c" + strconv.FormatUint(seq, 10) }

// enterThawed takes the gate at a moment when the sandbox is not frozen: a process that is forked into a frozen
// cgroup never reaches its exec, and the forking thread would hang with it.
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

func (h *handle) leave() { <-h.gate }

// Freeze implements sandbox.ComputeHandle.
func (h *handle) Freeze(ctx context.Context) error {
	h.notice()
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	bound, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	h.mu.Lock()
	switch {
	case h.releasing:
		h.mu.Unlock()
		return sandbox.ErrReleased
	case h.holds.Has(hold.Freeze):
		h.mu.Unlock()
		return nil
	}
	h.interrupt = cancel
	h.mu.Unlock()
	// Also when the deadline has frozen it: a shell may have missed what a reading of the whole table finds.
	err := h.enc.freeze(bound)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interrupt = nil
	if err != nil && ctx.Err() == nil && errors.Is(bound.Err(), context.Canceled) {
		err = sandbox.ErrBrokenOff
	}
	if err != nil {
		h.holds.Clear() // the failed freeze has undone a deadline's, too
		return fmt.Errorf("process: freeze %s: %w", h.spec.Attempt, err)
	}
	h.holds.Take(hold.Freeze)
	return nil
}

// Thaw implements sandbox.ComputeHandle.
func (h *handle) Thaw(ctx context.Context) error {
	if h.isReleasing() {
		return sandbox.ErrReleased
	}
	err := h.letGo(ctx, hold.Freeze)
	if err != nil && !errors.Is(err, sandbox.ErrReleased) {
		return fmt.Errorf("process: thaw %s: %w", h.spec.Attempt, err)
	}
	return err
}

// dropDrain forgets an output whose copying is over.
func (h *handle) dropDrain(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.drains, s)
}

// Usage implements sandbox.ComputeHandle.
func (h *handle) Usage(context.Context) (sandbox.Usage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.final, nil
	}
	return h.measure(), nil
}

func (h *handle) measure() sandbox.Usage {
	var u sandbox.Usage
	h.enc.usage(&u)
	_, u.Frozen, _, _ = h.watch.Read()
	return u
}

// Kill implements sandbox.ComputeHandle.
func (h *handle) Kill(ctx context.Context) error {
	h.breakFreeze()
	h.gate <- struct{}{} // whatever ctx says: the end is sent even when it is over, and a Freeze gives the gate up
	defer h.leave()
	h.mu.Lock()
	releasing := h.releasing
	h.mu.Unlock()
	if releasing {
		return sandbox.ErrReleased
	}
	return h.end(ctx)
}

// breakFreeze makes a Freeze that is under way give up the gate.
func (h *handle) breakFreeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupt != nil {
		h.interrupt()
	}
}

// end kills every process and waits until the main ones are reaped. The gate is held.
func (h *handle) end(ctx context.Context) error {
	h.notice()
	h.adopt()
	h.mu.Lock()
	live := slices.Collect(maps.Keys(h.live))
	h.mu.Unlock()
	for _, c := range live {
		c.dog.Killed()
	}
	ctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	if err := h.enc.kill(ctx); err != nil {
		return fmt.Errorf("process: kill %s: %w", h.spec.Attempt, err)
	}
	if h.isFrozen() {
		if err := h.enc.thaw(); err != nil {
			return fmt.Errorf("process: kill %s: %w", h.spec.Attempt, err)
		}
		h.mu.Lock()
		h.holds.Clear()
		h.mu.Unlock()
	}
	for _, c := range live {
		select {
		case <-c.dog.Gone():
		case <-ctx.Done():
			return fmt.Errorf("process: kill %s: main process %d is not reaped: %w", h.spec.Attempt, c.Pid(), context.Cause(ctx))
		}
	}
	h.enc.vacate(ctx)
	return nil
}

// Release implements sandbox.ComputeHandle.
func (h *handle) Release(ctx context.Context) error {
	// Cleaning up after a run whose context was cancelled is what Release is for: it bounds itself.
	ctx = context.WithoutCancel(ctx)
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
	h.m.disarm(h.spec.Attempt)
	if err := h.end(ctx); err != nil {
		return err
	}
	final := h.measure()
	if err := h.enc.remove(); err != nil {
		return fmt.Errorf("process: release %s: %w", h.spec.Attempt, err)
	}
	h.m.spawners.put(h.spawn, h.spec.Dir)
	h.m.forget(h.spec.Attempt)
	h.mu.Lock()
	h.released, h.final = true, final
	drains := slices.Collect(maps.Keys(h.drains))
	h.mu.Unlock()
	for _, s := range drains {
		s.close() // what escaped and still holds a pipe must not hold a goroutine
	}
	h.driver.forget(h)
	return nil
}
