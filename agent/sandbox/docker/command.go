package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/watchdog"
)

// Bounds on what init takes milliseconds for. Past them the container as a whole is killed.
const (
	startWithin = 20 * time.Second // the image's disk may be slow at the first command
	stallAfter  = 2 * time.Second
)

// command is one started command.
type command struct {
	h    *handle
	link *link
	id   uint32
	cmd  sandbox.Command

	streams []*stream // stdout and stderr, or one for both
	slots   [2]*stream

	dog *watchdog.Watchdog

	ready chan struct{} // closed when it has started, or could not: startErr
	gone  chan struct{} // closed when nothing of it is left
	done  chan struct{} // closed when exit and err are final

	room     chan struct{} // capacity 1: stdin was granted, or nobody reads it
	signals  sync.Mutex    // one signal at a time waits for its answer
	answered chan syscall.Errno

	mu       sync.Mutex
	startErr error
	granted  int // room for stdin; -1: nobody reads it
	status   uint32
	known    bool // status is the kernel's
	lost     bool // init does not know what belonged to the command
	exit     sandbox.Exit
	err      error
}

func newCommand(h *handle, l *link, cmd sandbox.Command) *command {
	c := &command{h: h, link: l, cmd: cmd, granted: stdinRoom,
		ready: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
		room: make(chan struct{}, 1), answered: make(chan syscall.Errno, 1)}
	c.dog = watchdog.New(target{c}, cmd, h.watch)
	open := func(i int, name string, w io.Writer) {
		if w == nil && cmd.IdleTimeout == 0 {
			return
		}
		s := newStream(name, w)
		s.note = c.dog.NoteOutput
		s.grant = func(n int) { _ = l.sendNumber(frameGrant, byte(i+1), c.id, uint32(n)) }
		c.streams = append(c.streams, s)
		c.slots[i] = s
	}
	open(0, "stdout", cmd.Stdout)
	if !sameWriter(cmd.Stdout, cmd.Stderr) {
		open(1, "stderr", cmd.Stderr)
	}
	return c
}

// request is the payload that asks init to run the command.
func (c *command) request(dir string, env []string) []byte {
	var flags uint32
	if c.cmd.Stdin != nil {
		flags |= runStdin
	}
	if c.slots[0] == nil {
		flags |= runNullStdout
	}
	switch {
	case sameWriter(c.cmd.Stdout, c.cmd.Stderr):
		flags |= runMerge
	case c.slots[1] == nil:
		flags |= runNullStderr
	}
	p := binary.LittleEndian.AppendUint32(nil, flags)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(c.cmd.Args)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(env)))
	for _, list := range [][]string{{dir}, c.cmd.Args, env} {
		for _, s := range list {
			p = append(append(p, s...), 0)
		}
	}
	return p
}

// start asks init to run the command and waits until it does. After an error nothing is left of it.
func (c *command) start(ctx context.Context, dir string, env []string) error {
	p := c.request(dir, env)
	if len(p) > maxRequest {
		return fmt.Errorf("docker: exec %q: arguments and environment of %d bytes: %w", c.cmd.Args[0], len(p), syscall.E2BIG)
	}
	c.dog.Begin()
	if !c.link.add(c) {
		return c.h.lossError()
	}
	for _, s := range c.streams {
		go s.deliver()
	}
	_ = c.link.send(frameRun, 0, c.id, p) // over: cutOff says so
	for _, s := range c.streams {
		s.grant(window)
	}
	err := c.awaitStart(ctx)
	if err == nil {
		c.mu.Lock()
		err = c.startErr
		c.mu.Unlock()
		if err != nil {
			c.closeStreams()
			return err
		}
		return nil
	}
	// Whatever has begun meanwhile must not stay.
	_ = c.link.send(frameKill, 0, c.id, nil)
	silent, end := stall()
	defer end()
	select {
	case <-c.gone:
	case <-silent:
		err = errors.Join(err, c.h.killWhole(context.WithoutCancel(ctx)))
	}
	c.closeStreams()
	return err
}

// awaitStart waits until the command has started, or could not. When the deadline passes before it has, it stands still
// as everything does, and the gate is whoever's who thaws it.
func (c *command) awaitStart(ctx context.Context) error {
	timer := time.NewTimer(startWithin)
	defer timer.Stop()
	for {
		frozen, thawed := c.h.freezes()
		select {
		case <-c.ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("docker: exec %q: not started after %s", c.cmd.Args[0], startWithin)
		case <-frozen:
		}
		c.h.leave()
		select {
		case <-c.ready:
		case <-ctx.Done():
		case <-thawed:
		}
		c.h.gate <- struct{}{} // whatever ctx says: the caller leaves it
		if c.h.isReleasing() {
			return sandbox.ErrReleased
		}
		timer.Reset(startWithin)
	}
}

// maxRequest is init's limit on one request.
const maxRequest = 16 << 20

func (c *command) closeStreams() {
	for _, s := range c.streams {
		s.end()
		s.giveUp()
	}
}

// run starts the goroutines of a command that has started.
func (c *command) run() {
	if c.cmd.Stdin != nil {
		go c.feed()
	}
	go c.guard()
	go c.reap()
}

// ---- what the link tells; never waits ----

func (c *command) onStarted() { c.once(c.ready) }

// once closes a channel that may be closed already.
func (c *command) once(ch chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// Where a start failed; init.c has the same numbers.
const (
	atSetup = 1 + iota
	atDir
	atExec
	atDeadline
)

// errHeld says that a command was not started, because the deadline had passed.
var errHeld = errors.New("docker: the deadline has passed")

func (c *command) onError(where, errno uint32) {
	e := linuxErrno(errno)
	var err error
	name := c.cmd.Args[0]
	switch {
	case where == atDir && e == syscall.ENOENT:
		err = fmt.Errorf("docker: exec %q: working directory: %w", name, sandbox.ErrNotFound)
	case where == atDir:
		err = fmt.Errorf("docker: exec %q: working directory: %w", name, e)
	case where == atExec && (e == syscall.ENOENT || e == syscall.ENOTDIR):
		err = fmt.Errorf("docker: exec %q: %w in the image, or its interpreter is not", name, sandbox.ErrNotFound)
	case where == atDeadline:
		err = errHeld
	case where == atSetup:
		err = fmt.Errorf("docker: exec %q: start a process: %w", name, e)
	default:
		err = fmt.Errorf("docker: exec %q: %w", name, e)
	}
	c.mu.Lock()
	c.startErr = err
	c.mu.Unlock()
	c.once(c.ready)
	c.endNow(0, false)
	c.once(c.gone)
}

func (c *command) onOutput(i int, p []byte, bp *[]byte) (kept bool) {
	if s := c.slots[i]; s != nil {
		return s.put(p, bp)
	}
	return false
}

func (c *command) onGrant(n int) {
	c.mu.Lock()
	if n == 0 {
		c.granted = -1
	} else if c.granted >= 0 {
		c.granted += n
	}
	c.mu.Unlock()
	select {
	case c.room <- struct{}{}:
	default:
	}
}

func (c *command) onSent(errno uint32) {
	select {
	case c.answered <- syscall.Errno(errno):
	default:
	}
}

func (c *command) onEnded(status uint32) { c.endNow(status, true) }

func (c *command) endNow(status uint32, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.dog.Gone():
		return
	default:
	}
	c.status, c.known = status, known
	c.dog.Ended()
}

func (c *command) onOver(lost bool) {
	// Without a word before, its supervisor was killed before it could say that the main process runs: perhaps by that.
	c.once(c.ready)
	c.mu.Lock()
	c.lost = lost
	c.mu.Unlock()
	if lost {
		c.h.lostCommand()
	}
	c.endNow(0, false)
	c.once(c.gone)
}

// cutOff says that the connection is over, and with it the container's life.
func (c *command) cutOff(err error) {
	c.mu.Lock()
	select {
	case <-c.ready:
	default:
		c.startErr = fmt.Errorf("docker: exec %q: %w", c.cmd.Args[0], err)
		close(c.ready)
	}
	c.mu.Unlock()
	c.endNow(0, false)
	for _, s := range c.streams {
		s.end()
	}
	c.once(c.gone)
}

// ---- stdin ----

// feed copies stdin and closes it. The command may end without reading it: that is no error.
func (c *command) feed() {
	defer func() {
		if v := recover(); v != nil {
			c.fail(fmt.Errorf("docker: read stdin: panic: %v\n%s", v, debug.Stack()))
		}
		_ = c.link.send(frameClose, 0, c.id, nil)
	}()
	buf := make([]byte, chunk)
	for {
		n, err := c.cmd.Stdin.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			room := c.awaitRoom()
			if room <= 0 {
				return
			}
			k := min(room, len(p))
			c.mu.Lock()
			c.granted -= k
			c.mu.Unlock()
			if c.link.send(frameStdin, 0, c.id, p[:k]) != nil {
				return
			}
			p = p[k:]
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.fail(fmt.Errorf("docker: feed stdin: %w", err))
			return
		}
	}
}

// awaitRoom returns how much stdin may be sent; 0 when nobody will read it.
func (c *command) awaitRoom() int {
	for {
		c.mu.Lock()
		room := c.granted
		c.mu.Unlock()
		if room != 0 {
			return max(room, 0)
		}
		select {
		case <-c.room:
		case <-c.done:
			return 0
		}
	}
}

func (c *command) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// ---- the end ----

// guard ends the command when one of its timers fires.
func (c *command) guard() {
	if err := c.dog.Watch(); err != nil {
		c.fail(err)
	}
}

// reap waits for the main process, then for its output, and settles the exit.
func (c *command) reap() {
	<-c.dog.Gone()
	held := c.settle()
	if c.isLost() {
		// What is started after this one must not be taken for something that it left behind.
		ctx, cancel := context.WithTimeout(context.Background(), sandbox.EndWithin)
		_ = c.h.awaitLost(ctx)
		cancel()
	}
	exit := c.dog.Exit()
	exit.Code, exit.OutputHeld = -1, held
	c.h.dropLive(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch sig := c.status & 0x7f; {
	case !c.known:
		// It ended with its supervisor or its container, by a kill of ours or of somebody else.
		exit.Signal = "SIGKILL"
		if exit.Reason == sandbox.ReasonNone && !c.lost {
			c.err = errors.Join(c.err, c.h.lossError())
		}
	case sig != 0:
		exit.Signal = signalName(sig)
	default:
		exit.Code = int(c.status >> 8 & 0xff)
	}
	c.exit = exit
	c.err = errors.Join(c.err, outputError(c.streams))
	close(c.done)
}

func (c *command) isLost() bool {
	select {
	case <-c.gone:
	default:
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
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
		break
	}
	// settled waits for a writer that is slow but alive. One that blocks for ever is its owner's fault, and must not
	// hold what is released.
	settled := func(s *stream, ok func() bool) bool {
		for {
			timer.Reset(min(delay, 50*time.Millisecond))
			select {
			case <-s.settled:
				return true
			case <-timer.C:
				if ok() || c.h.isReleasing() {
					return false
				}
			}
		}
	}
	for _, s := range c.streams {
		select {
		case <-s.settled:
			continue
		default:
		}
		// What was written before the end is asked for before anything is called held: it may be on its way.
		if settled(s, func() bool { return s.empty() && !s.complete() }) {
			continue
		}
		_ = c.link.barrier(context.Background()) // without an answer, what has come is all there is
		if !s.complete() {
			held = true
			s.giveUp()
		}
		settled(s, func() bool { return false })
	}
	return held
}

// Pid implements sandbox.Process. Of a container's process the host's number is not known on every engine.
func (c *command) Pid() int { return 0 }

// Done implements sandbox.Process.
func (c *command) Done() <-chan struct{} { return c.done }

// Wait implements sandbox.Process.
func (c *command) Wait() (sandbox.Exit, error) {
	<-c.done
	c.mu.Lock() // a failure of guard or feed can come behind the end
	defer c.mu.Unlock()
	return c.exit, c.err
}

// workdir resolves a command's directory, without looking: it is the container's.
func workdir(root, dir string) string {
	switch {
	case dir == "":
		return root
	case filepath.IsAbs(dir):
		return dir
	}
	return filepath.Join(root, dir)
}

// withAsk puts our everdict before everything else on the image's PATH.
func withAsk(env []string) []string {
	for i, kv := range env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			env[i] = "PATH=" + path.Dir(askPath)
			if list != "" {
				env[i] += ":" + list
			}
		}
	}
	return env
}

// merge joins lists of NAME=VALUE, the last value of a name counting, in order of first appearance.
func merge(lists ...[]string) []string {
	var env []string
	at := make(map[string]int)
	for _, l := range lists {
		for _, kv := range l {
			name, _, _ := strings.Cut(kv, "=")
			if i, ok := at[name]; ok {
				env[i] = kv
				continue
			}
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}
