package docker

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// Signal implements sandbox.Process.
func (c *command) Signal(sig syscall.Signal) error { return c.signal(sig, false) }

func (c *command) signal(sig syscall.Signal, tree bool) error {
	c.signals.Lock()
	defer c.signals.Unlock()
	select {
	case <-c.ended:
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
	if c.h.isFrozen() {
		return nil // it is answered, and felt, after the thaw
	}
	timer := time.NewTimer(stallAfter)
	defer timer.Stop()
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
	case <-timer.C:
		return fmt.Errorf("docker: signal %s: no answer from the container", signalName(linuxSignal(sig)))
	}
}

// Stop implements sandbox.Process. Of a frozen sandbox it ends every command: to end one alone, the others would have
// to run for a moment.
func (c *command) Stop(ctx context.Context, ladder sandbox.Ladder) (sandbox.Exit, error) {
	if ladder == nil {
		ladder = c.cmd.Ladder
	}
	walk, over := c.claim(sandbox.ReasonStopped, nil)
	err := c.stop(ctx, ladder, walk, over)
	exit, werr := c.Wait()
	return exit, errors.Join(werr, err)
}

// stop walks the ladder, or waits for who does, and then ends what is left.
func (c *command) stop(ctx context.Context, ladder sandbox.Ladder, walk bool, over chan struct{}) error {
	if ladder == nil {
		ladder = sandbox.DefaultLadder
	}
	if walk {
		defer close(over)
		c.walk(ctx, ladder)
	} else {
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	select {
	case <-c.ended:
	default:
		c.noteSent(syscall.SIGKILL)
	}
	if err := c.endTree(kctx); err != nil {
		return fmt.Errorf("docker: stop %q: %w", c.cmd.Args[0], err)
	}
	return nil
}

// endTree returns when no process of the command is left.
func (c *command) endTree(ctx context.Context) error {
	if !c.h.isFrozen() {
		_ = c.link.send(frameKill, 0, c.id, nil) // over: then gone is closed
		timer := time.NewTimer(stallAfter)
		defer timer.Stop()
		select {
		case <-c.gone:
			if c.isLost() {
				return c.h.awaitLost(ctx)
			}
			return nil
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	select {
	case <-c.gone:
		return nil
	default:
	}
	c.h.gate <- struct{}{}
	defer c.h.leave()
	select {
	case <-c.gone: // while the gate was somebody else's
		return nil
	default:
	}
	return c.h.killWhole(ctx)
}

// walk goes down the ladder until the main process is gone. A frozen command cannot answer: there is nothing to walk.
func (c *command) walk(ctx context.Context, ladder sandbox.Ladder) {
	for _, r := range ladder {
		select {
		case <-c.ended:
			return
		case <-ctx.Done():
			return
		default:
		}
		if c.h.isFrozen() {
			return
		}
		// What cannot be signalled is killed in the end: a rung's failure only means that nothing was sent.
		if err := c.signal(r.Signal, r.Tree); err == nil {
			c.noteSent(r.Signal)
		}
		from, _, _, _ := c.h.watch.Read()
		c.h.watch.Await(func() time.Duration { return from + r.Grace }, c.ended, ctx.Done())
	}
}

func (c *command) noteSent(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, signalName(linuxSignal(sig)))
}
