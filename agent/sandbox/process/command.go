//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/watchdog"
)

// command is one started command.
type command struct {
	h    *handle
	cmd  sandbox.Command
	cell cell
	proc *os.Process

	stdin   *os.File // our end, nil when the null device is used
	streams []*stream

	dog  *watchdog.Watchdog
	done chan struct{} // closed when exit and err are final

	mu   sync.Mutex
	exit sandbox.Exit
	err  error
}

// newCommand makes the pipes. files are the child's ends, in order.
func newCommand(h *handle, cmd sandbox.Command) (c *command, files []*os.File, err error) {
	c = &command{h: h, cmd: cmd, done: make(chan struct{})}
	c.dog = watchdog.New(target{c}, cmd, h.watch)
	defer func() {
		if err != nil {
			c.abandon(files)
			err = fmt.Errorf("process: exec %q: %w", cmd.Args[0], err)
		}
	}()
	files, err = c.openStdin(files)
	if err != nil {
		return c, files, err
	}
	if sameWriter(cmd.Stdout, cmd.Stderr) {
		files, err = c.openOutput(files, "stdout", cmd.Stdout)
		if err == nil {
			files = append(files, files[1])
		}
		return c, files, err
	}
	if files, err = c.openOutput(files, "stdout", cmd.Stdout); err == nil {
		files, err = c.openOutput(files, "stderr", cmd.Stderr)
	}
	return c, files, err
}

func (c *command) openStdin(files []*os.File) ([]*os.File, error) {
	if c.cmd.Stdin == nil {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return files, err
		}
		return append(files, f), nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return files, err
	}
	c.stdin = w
	return append(files, r), nil
}

func (c *command) openOutput(files []*os.File, name string, w io.Writer) ([]*os.File, error) {
	if w == nil && c.cmd.IdleTimeout == 0 {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return files, err
		}
		return append(files, f), nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return files, err
	}
	c.streams = append(c.streams, &stream{name: name, r: pr, w: w, settled: make(chan struct{}), note: c.dog.NoteOutput, over: c.h.dropDrain})
	return append(files, pw), nil
}

// abandon closes everything of a command that was not started.
func (c *command) abandon(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // stdout and stderr may be one file: the second close is an error without meaning
	}
	if c.stdin != nil {
		_ = c.stdin.Close()
	}
	for _, s := range c.streams {
		s.close()
	}
}

// run starts the goroutines of a command whose process has just been started.
func (c *command) run(files []*os.File) {
	c.dog.Begin()
	for _, f := range files {
		_ = f.Close()
	}
	if c.stdin != nil {
		go c.feed()
	}
	for _, s := range c.streams {
		go s.copy()
	}
	go c.guard()
	go c.reap()
}

// feed copies stdin and closes it. The command may end without reading it: that is no error.
func (c *command) feed() {
	defer c.stdin.Close()
	defer func() {
		if v := recover(); v != nil {
			c.fail(fmt.Errorf("process: read stdin: panic: %v\n%s", v, debug.Stack()))
		}
	}()
	_, err := io.Copy(writeOnly{c.stdin}, c.cmd.Stdin)
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		c.fail(fmt.Errorf("process: feed stdin: %w", err))
	}
}

// writeOnly hides ReadFrom, which would splice from the reader's descriptor and block uninterruptibly in it.
type writeOnly struct{ io.Writer }

func (c *command) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// guard ends the command when one of its timers fires.
func (c *command) guard() {
	if err := c.dog.Watch(); err != nil {
		c.fail(err)
	}
}

// reap waits for the main process, then for its output, and settles the exit.
func (c *command) reap() {
	state, err := c.proc.Wait()
	c.cell.ended(state)
	c.dog.Ended()
	if err != nil {
		c.fail(fmt.Errorf("process: wait for %d: %w", c.proc.Pid, err))
	}
	held := c.settle()
	exit := c.dog.Exit()
	c.h.mu.Lock()
	delete(c.h.live, c)
	c.h.mu.Unlock()
	if c.stdin != nil {
		_ = c.stdin.Close() // ends a feed that is blocked on a full pipe which a descendant holds
	}
	exit.Code, exit.OutputHeld = -1, held
	if ws, ok := sysStatus(state); ok {
		if ws.Signaled() {
			exit.Signal = signalName(ws.Signal())
		} else {
			exit.Code = ws.ExitStatus()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit = exit
	c.err = errors.Join(c.err, outputError(c.settledStreams()))
	close(c.done)
}

// settle waits until the output is complete, or has been silent in a descendant's hands for WaitDelay.
func (c *command) settle() (held bool) {
	delay := c.cmd.WaitDelay
	if delay == 0 {
		delay = sandbox.DefaultWaitDelay
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for _, s := range c.streams {
		select {
		case <-s.settled:
			continue
		case <-timer.C:
		}
		held = true
		break
	}
	if !held {
		return false
	}
	held = false
	for _, s := range c.streams {
		select {
		case <-s.settled:
			continue
		default:
		}
		held = true
		c.h.mu.Lock()
		c.h.drains[s] = struct{}{}
		released := c.h.released
		c.h.mu.Unlock()
		if released {
			s.close()
		}
		s.giveUp()
		// A writer that is slow but alive gets what the command wrote before its end. A writer that blocks for
		// ever is its owner's fault, and must not hold what is released.
		for waiting := true; waiting; {
			timer.Reset(delay)
			select {
			case <-s.settled:
				waiting = false
			case <-timer.C:
				c.h.mu.Lock()
				waiting = !c.h.releasing
				c.h.mu.Unlock()
			}
		}
	}
	return held
}

func (c *command) settledStreams() (out []*stream) {
	for _, s := range c.streams {
		select {
		case <-s.settled:
			out = append(out, s)
		default:
		}
	}
	return out
}

// Pid implements sandbox.Process.
func (c *command) Pid() int { return c.proc.Pid }

// Done implements sandbox.Process.
func (c *command) Done() <-chan struct{} { return c.done }

// Wait implements sandbox.Process.
func (c *command) Wait() (sandbox.Exit, error) {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit, c.err
}

// Signal implements sandbox.Process.
func (c *command) Signal(sig syscall.Signal) error {
	err := c.proc.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return sandbox.ErrEnded
	}
	return err
}

// Stop implements sandbox.Process.
func (c *command) Stop(ctx context.Context, ladder sandbox.Ladder) (sandbox.Exit, error) {
	err := c.dog.Stop(ctx, ladder)
	exit, werr := c.Wait()
	return exit, errors.Join(err, werr)
}

// target is a command as its watchdog reaches it.
type target struct{ c *command }

// Signal implements watchdog.Target.
func (t target) Signal(r sandbox.Rung) (string, error) {
	if r.Tree {
		return signalName(r.Signal), t.c.cell.signal(r.Signal)
	}
	return signalName(r.Signal), t.c.proc.Signal(r.Signal)
}

// End implements watchdog.Target.
func (t target) End(ctx context.Context) error {
	if err := t.c.cell.kill(ctx); err != nil {
		return fmt.Errorf("process: stop %d: %w", t.c.proc.Pid, err)
	}
	select {
	case <-t.c.dog.Gone():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process: stop %d: main process is not reaped: %w", t.c.proc.Pid, context.Cause(ctx))
	}
}

// Frozen implements watchdog.Target. A runner that stood still itself sees only now that the guard has frozen the sandbox.
func (t target) Frozen() bool {
	t.c.h.notice()
	return t.c.h.isFrozen()
}

// Blocked implements watchdog.Target.
func (t target) Blocked() bool {
	return slices.ContainsFunc(t.c.streams, func(s *stream) bool { return s.writing.Load() })
}

func sysStatus(state *os.ProcessState) (syscall.WaitStatus, bool) {
	if state == nil {
		return 0, false
	}
	ws, ok := state.Sys().(syscall.WaitStatus)
	return ws, ok
}

func signalName(sig syscall.Signal) string {
	if n := unix.SignalName(sig); n != "" {
		return n
	}
	return fmt.Sprintf("signal %d", int(sig))
}
