package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/everdict/everdict/agent/sandbox"
)

// Signal implements sandbox.Process.
func (c *command) Signal(sig syscall.Signal) error { return c.signal(sig, false) }

func (c *command) signal(sig syscall.Signal, tree bool) error {
	c.signals.Lock()
	defer c.signals.Unlock()
	select {
	case <-c.dog.Gone():
		if !tree {
			return sandbox.ErrEnded
		}
	default:
	}
	select { // an answer that nobody waited for
	case <-c.answered:
	default:
	}
	var flag byte
	if tree {
		flag = 1
	}
	if err := c.link.sendNumber(frameSignal, flag, c.id, linuxSignal(sig)); err != nil {
		return sandbox.ErrEnded
	}
	if c.h.isPaused() {
		return nil // it is answered, and felt, after the thaw
	}
	silent, end := stall()
	defer end()
	select {
	case e := <-c.answered:
		if e == syscall.Errno(3) { // ESRCH of Linux
			return sandbox.ErrEnded
		}
		if e != 0 {
			return fmt.Errorf("docker: signal %s: %w", signalName(linuxSignal(sig)), e)
		}
		return nil
	case <-c.gone:
		return sandbox.ErrEnded
	case <-silent:
		return fmt.Errorf("docker: signal %s: no answer from the container", signalName(linuxSignal(sig)))
	}
}

// Stop implements sandbox.Process. Of a sandbox that the engine has paused it ends every command: to end one alone, the
// others would have to run for a moment.
func (c *command) Stop(ctx context.Context, ladder sandbox.Ladder) (sandbox.Exit, error) {
	err := c.dog.Stop(ctx, ladder)
	exit, werr := c.Wait()
	return exit, errors.Join(err, werr)
}

// target is a command as its watchdog reaches it.
type target struct{ c *command }

// Signal implements watchdog.Target.
func (t target) Signal(r sandbox.Rung) (string, error) {
	return signalName(linuxSignal(r.Signal)), t.c.signal(r.Signal, r.Tree)
}

// End implements watchdog.Target.
func (t target) End(ctx context.Context) error {
	if err := t.c.endTree(ctx); err != nil {
		return fmt.Errorf("docker: stop %q: %w", t.c.cmd.Args[0], err)
	}
	return nil
}

// Frozen implements watchdog.Target.
func (t target) Frozen() bool {
	t.c.h.notice()
	return t.c.h.isFrozen()
}

// Blocked implements watchdog.Target.
func (t target) Blocked() bool {
	return slices.ContainsFunc(t.c.streams, func(s *stream) bool { return s.writing.Load() })
}

// endTree returns when no process of the command is left.
func (c *command) endTree(ctx context.Context) error {
	if !c.h.isPaused() {
		_ = c.link.send(frameKill, 0, c.id, nil) // over: then gone is closed
		silent, end := stall()
		defer end()
		select {
		case <-c.gone:
			if c.isLost() {
				return c.h.awaitLost(ctx)
			}
			return nil
		case <-silent:
		case <-ctx.Done():
		}
	}
	select {
	case <-c.gone:
		return nil
	default:
	}
	if err := c.h.enterToEnd(ctx); err != nil {
		return err
	}
	defer c.h.leave()
	select {
	case <-c.gone: // while the gate was somebody else's
		return nil
	default:
	}
	return c.h.killWhole(ctx)
}
