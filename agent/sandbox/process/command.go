//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
)

// command is one started command.
type command struct {
	h    *handle
	cmd  sandbox.Command
	cell cell
	proc *os.Process

	stdin   *os.File // our end, nil when the null device is used
	streams []*stream

	started time.Time
	ran0    time.Duration // the handle's running and frozen time at the start
	frozen0 time.Duration
	lastOut atomic.Int64 // running time of the last output, since ran0

	reaped chan struct{} // closed when the main process has been waited for
	done   chan struct{} // closed when exit and err are final

	mu       sync.Mutex
	reason   sandbox.Reason
	fired    *sandbox.Timer
	sent     []string
	stopping chan struct{} // not nil while or after a ladder is walked; closed at its end
	exit     sandbox.Exit
	err      error
}

// newCommand makes the pipes. files are the child's ends, in order.
func newCommand(h *handle, cmd sandbox.Command) (c *command, files []*os.File, err error) {
	c = &command{h: h, cmd: cmd, reaped: make(chan struct{}), done: make(chan struct{})}
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
	c.streams = append(c.streams, &stream{name: name, r: pr, w: w, settled: make(chan struct{}), note: c.noteOutput, over: c.h.dropDrain})
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
	c.started = time.Now()
	c.ran0, c.frozen0, _, _ = c.h.watch.Read()
	for _, f := range files {
		_ = f.Close()
	}
	if c.stdin != nil {
		go c.feed()
	}
	for _, s := range c.streams {
		go s.copy()
	}
	if c.cmd.Timeout > 0 || c.cmd.IdleTimeout > 0 {
		go c.guard()
	}
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

func (c *command) elapsed() (ran, frozen time.Duration) {
	ran, frozen, _, _ = c.h.watch.Read()
	return max(ran-c.ran0, 0), max(frozen-c.frozen0, 0)
}

func (c *command) noteOutput() {
	ran, _ := c.elapsed()
	c.lastOut.Store(int64(ran))
}

// idleSince is the running time since which nothing was written. While a writer of ours blocks, the command is not
// idle: it may be waiting for us.
func (c *command) idleSince() time.Duration {
	for _, s := range c.streams {
		if s.writing.Load() {
			ran, _ := c.elapsed()
			return ran
		}
	}
	return time.Duration(c.lastOut.Load())
}

// guard ends the command when one of its timers fires.
func (c *command) guard() {
	due := func() time.Duration {
		d := time.Duration(1<<63 - 1)
		if c.cmd.Timeout > 0 {
			d = c.ran0 + c.cmd.Timeout
		}
		if c.cmd.IdleTimeout > 0 {
			d = min(d, c.ran0+c.idleSince()+c.cmd.IdleTimeout)
		}
		return d
	}
	for {
		if !c.h.watch.Await(due, c.reaped) {
			return
		}
		// A runner that stood still itself sees only now that the sandbox did not run all that time.
		c.h.notice()
		if !c.h.isFrozen() {
			break
		}
	}
	ran, _ := c.elapsed()
	t := &sandbox.Timer{Name: string(sandbox.ReasonTimeout), Configured: c.cmd.Timeout, Measured: ran}
	if c.cmd.Timeout == 0 || ran < c.cmd.Timeout {
		t = &sandbox.Timer{Name: string(sandbox.ReasonIdle), Configured: c.cmd.IdleTimeout, Measured: ran - c.idleSince()}
	}
	// A command that ended, or is being stopped, at the same moment did not run into the timer.
	walk, over := c.claim(sandbox.Reason(t.Name), t)
	if !walk || over == nil {
		return
	}
	if err := c.stop(context.Background(), c.cmd.Ladder, walk, over); err != nil {
		c.fail(err)
	}
}

// claim records who ends the command; the first one counts, and only while the main process lives. For all but a
// kill of the whole sandbox it also begins the ladder, or tells of the one that is being walked; in the same step,
// so that Wait cannot return between the two.
func (c *command) claim(r sandbox.Reason, fired *sandbox.Timer) (walk bool, over chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := true
	select {
	case <-c.reaped:
		alive = false
	default:
	}
	if alive && c.reason == sandbox.ReasonNone {
		c.reason, c.fired = r, fired
	} else if fired != nil {
		return false, nil
	}
	if r == sandbox.ReasonKilled {
		return false, nil
	}
	if c.stopping == nil {
		c.stopping, walk = make(chan struct{}), true
	}
	return walk, c.stopping
}

// reap waits for the main process, then for its output, and settles the exit.
func (c *command) reap() {
	state, err := c.proc.Wait()
	ended := time.Now()
	ran, frozen := c.elapsed()
	c.cell.ended(state)
	c.mu.Lock()
	close(c.reaped)
	stopping := c.stopping
	c.exit = sandbox.Exit{Code: -1, Reason: c.reason, Fired: c.fired, Started: c.started, Ended: ended, Ran: ran, Frozen: frozen}
	c.mu.Unlock()
	if err != nil {
		c.fail(fmt.Errorf("process: wait for %d: %w", c.proc.Pid, err))
	}
	held := c.settle()
	if stopping != nil {
		<-stopping // what the command started is gone, too, before Wait says that it was stopped
	}
	c.h.mu.Lock()
	delete(c.h.live, c)
	c.h.mu.Unlock()
	if c.stdin != nil {
		_ = c.stdin.Close() // ends a feed that is blocked on a full pipe which a descendant holds
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ws, ok := sysStatus(state); ok {
		if ws.Signaled() {
			c.exit.Signal = signalName(ws.Signal())
		} else {
			c.exit.Code = ws.ExitStatus()
		}
	}
	c.exit.OutputHeld = held
	c.exit.Sent = c.sent
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
	if ladder == nil {
		ladder = c.cmd.Ladder
	}
	walk, over := c.claim(sandbox.ReasonStopped, nil)
	err := c.stop(ctx, ladder, walk, over)
	exit, werr := c.Wait()
	return exit, errors.Join(err, werr)
}

// stop walks the ladder, or joins the one that is being walked, and returns when no process of the command is left.
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
	case <-c.reaped:
	default:
		c.noteSent(syscall.SIGKILL)
	}
	if err := c.cell.kill(kctx); err != nil {
		return fmt.Errorf("process: stop %d: %w", c.proc.Pid, err)
	}
	select {
	case <-c.reaped:
		return nil
	case <-kctx.Done():
		return fmt.Errorf("process: stop %d: main process is not reaped: %w", c.proc.Pid, context.Cause(kctx))
	}
}

// walk goes down the ladder until the main process is gone. A frozen command cannot answer: there is nothing to walk.
func (c *command) walk(ctx context.Context, ladder sandbox.Ladder) {
	for _, r := range ladder {
		select {
		case <-c.reaped:
			return
		case <-ctx.Done():
			return
		default:
		}
		if c.h.isFrozen() {
			return
		}
		// What cannot be signalled is killed in the end: a rung's failure only means that nothing was sent.
		var err error
		if r.Tree {
			err = c.cell.signal(r.Signal)
		} else {
			err = c.proc.Signal(r.Signal)
		}
		if err == nil {
			c.noteSent(r.Signal)
		}
		from, _, _, _ := c.h.watch.Read()
		c.h.watch.Await(func() time.Duration { return from + r.Grace }, c.reaped, ctx.Done())
	}
}

func (c *command) noteSent(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, signalName(sig))
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
