package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// process is one command: a goroutine that carries out a rule.
type process struct {
	h     *handle
	cmd   sandbox.Command
	env   []string
	rule  *rule
	pid   int
	start time.Time

	frozen0 time.Duration
	killed  chan struct{} // closed by SIGKILL
	asked   chan struct{} // closed by the first SIGINT or SIGTERM that ends it
	ended   chan struct{} // closed when the main process is gone
	left    chan struct{} // closed when no descendant is left
	done    chan struct{}

	mu       sync.Mutex
	lastOut  time.Time // of the last output; frozen time is taken off when it is read
	lastFroz time.Duration
	stubborn bool
	answer   *int64
	by       syscall.Signal // what asked it to end
	leaves   bool
	holds    bool
	reason   sandbox.Reason
	fired    *sandbox.Timer
	sent     []string
	stopping chan struct{}
	exit     sandbox.Exit
	err      error
}

// Exec implements sandbox.ComputeHandle.
func (h *handle) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := cmd.Validate(); err != nil {
		return nil, err
	}
	line := strings.Join(cmd.Args, " ")
	h.d.note("exec %s %s", h.spec.Attempt, line)
	for {
		h.mu.Lock()
		released, frozen, thawed := h.released, h.frozen, h.thawed
		h.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case released:
			return nil, sandbox.ErrReleased
		case frozen:
			select {
			case <-thawed:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			continue
		}
		break
	}
	p := &process{
		h: h, cmd: cmd, env: append(append([]string(nil), h.spec.Env...), cmd.Env...),
		rule: h.rule("exec", line), start: time.Now(), frozen0: h.frozenFor(),
		killed: make(chan struct{}), asked: make(chan struct{}), ended: make(chan struct{}), left: make(chan struct{}),
		done: make(chan struct{}),
	}
	p.env = append(p.env, sandbox.EnvAttempt+"="+h.spec.Attempt)
	p.lastOut, p.lastFroz = p.start, p.frozen0
	if p.rule == nil {
		p.rule = &rule{}
	}
	for _, a := range p.rule.actions {
		switch a.verb {
		case "fail", "block", "delay":
			if err := h.act(ctx, "exec", a); err != nil {
				return nil, err
			}
		}
	}
	h.mu.Lock()
	if h.released {
		h.mu.Unlock()
		return nil, sandbox.ErrReleased
	}
	h.procs[p] = struct{}{}
	h.mu.Unlock()
	h.d.mu.Lock()
	h.d.pid++
	p.pid = h.d.pid
	h.d.mu.Unlock()
	go p.main()
	if cmd.Timeout > 0 {
		go p.guard(sandbox.ReasonTimeout, cmd.Timeout, func() time.Duration { return p.ran() })
	}
	if cmd.IdleTimeout > 0 {
		go p.guard(sandbox.ReasonIdle, cmd.IdleTimeout, p.idle)
	}
	return p, nil
}

func (p *process) ran() time.Duration { return time.Since(p.start) - (p.h.frozenFor() - p.frozen0) }

func (p *process) idle() time.Duration {
	frozen := p.h.frozenFor()
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastOut) - (frozen - p.lastFroz)
}

// guard ends the process when what passed has reached its limit.
func (p *process) guard(reason sandbox.Reason, limit time.Duration, passed func() time.Duration) {
	for {
		if !p.h.await(limit-passed(), p.ended) {
			return
		}
		measured := passed()
		if measured < limit {
			continue
		}
		walk, over := p.claim(reason, &sandbox.Timer{Name: string(reason), Configured: limit, Measured: measured})
		if walk {
			p.stop(context.Background(), p.cmd.Ladder, over)
		}
		return
	}
}

// main carries out the steps and settles the exit.
func (p *process) main() {
	code, sig := p.steps()
	frozen := p.h.frozenFor() - p.frozen0
	p.mu.Lock()
	leaves, holds := p.leaves, p.holds
	close(p.ended)
	stopping := p.stopping
	p.exit = sandbox.Exit{Code: code, Signal: sig, Reason: p.reason, Fired: p.fired, Started: p.start, Ended: time.Now(),
		Ran: time.Since(p.start) - frozen, Frozen: frozen}
	p.mu.Unlock()
	if !leaves {
		p.leave()
	}
	if holds {
		delay := p.cmd.WaitDelay
		if delay == 0 {
			delay = sandbox.DefaultWaitDelay
		}
		t := time.NewTimer(delay)
		select {
		case <-p.left:
		case <-t.C:
			p.mu.Lock()
			p.exit.OutputHeld = true
			p.mu.Unlock()
		}
		t.Stop()
	}
	if stopping != nil {
		<-stopping
	}
	p.mu.Lock()
	p.exit.Sent = p.sent
	p.mu.Unlock()
	close(p.done)
}

// leave takes the last of the command's processes away.
func (p *process) leave() {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if _, ok := p.h.procs[p]; ok {
		delete(p.h.procs, p)
		close(p.left)
	}
}

func (p *process) alive() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	select {
	case <-p.ended:
	default:
		n++
	}
	if p.leaves {
		n++
	}
	return n
}

// steps runs the actions until one of them, or a signal, ends the process.
func (p *process) steps() (code int, sig string) {
	for _, a := range p.rule.actions {
		select {
		case <-p.killed:
			return -1, "SIGKILL"
		default:
		}
		p.h.await(0, p.killed) // a frozen process takes no step
		switch a.verb {
		case "print", "err":
			p.output(a.verb, []byte(a.text))
		case "env":
			p.output("print", []byte(valueOf(p.env, a.text)+"\n"))
		case "cat":
			p.cat()
		case "sleep":
			if !p.pause(a.d) {
				return p.died()
			}
		case "hang":
			p.pause(1<<62 - 1)
			return p.died()
		case "exit":
			return int(a.n), ""
		case "signal":
			return -1, a.text
		case "write", "append", "remove":
			if err := p.file(a); err != nil {
				p.output("err", []byte(err.Error()+"\n"))
				return 1, ""
			}
		default:
			p.mark(a)
		}
	}
	return 0, ""
}

// mark carries out the actions that only change what is known. measure ignores all but its own.
func (p *process) mark(a action) {
	p.h.mu.Lock()
	measure(&p.h.usage, a)
	p.h.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a.verb {
	case "stubborn":
		p.stubborn = true
	case "answer":
		n := a.n
		p.answer = &n
	case "leave":
		p.leaves = true
	case "hold":
		p.leaves, p.holds = true, true
	case "lost":
		p.err = errors.Join(p.err, fmt.Errorf("fake: wait for %d: %s", p.pid, or(a.text, "lost")))
	}
}

// pause waits for running time; false when a signal ended the process.
func (p *process) pause(d time.Duration) bool { return p.h.await(d, p.killed, p.asked) }

// died tells how a signal ended the process.
func (p *process) died() (int, string) {
	select {
	case <-p.killed:
		return -1, "SIGKILL"
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer != nil {
		return int(*p.answer), ""
	}
	return -1, signalName(p.by)
}

func (p *process) output(verb string, b []byte) {
	w, stream := p.cmd.Stdout, "stdout"
	if verb == "err" {
		w, stream = p.cmd.Stderr, "stderr"
	}
	frozen := p.h.frozenFor()
	p.mu.Lock()
	p.lastOut, p.lastFroz = time.Now(), frozen
	p.mu.Unlock()
	if w == nil {
		return
	}
	if _, err := w.Write(b); err != nil {
		p.mu.Lock()
		p.err = errors.Join(p.err, &sandbox.OutputError{Stream: stream, Err: err})
		p.mu.Unlock()
	}
}

func (p *process) cat() {
	if p.cmd.Stdin == nil {
		return
	}
	buf := make([]byte, 32<<10)
	var n int
	var err error
	for {
		read := make(chan struct{})
		go func() {
			defer close(read)
			n, err = p.cmd.Stdin.Read(buf)
		}()
		select {
		case <-read:
		case <-p.killed: // a real one's end does not wait for its input either
			return
		}
		if n > 0 {
			p.output("print", buf[:n])
		}
		if err != nil {
			if err != io.EOF {
				p.mu.Lock()
				p.err = errors.Join(p.err, err)
				p.mu.Unlock()
			}
			return
		}
	}
}

// file changes the workspace.
func (p *process) file(a action) error {
	name, text, _ := strings.Cut(a.text, " ")
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%s: not in the workspace", name)
	}
	path := filepath.Join(p.h.spec.Dir, name)
	if a.verb == "remove" {
		return os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if a.verb == "append" {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func valueOf(env []string, name string) (v string) {
	for _, kv := range env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			v = value
		}
	}
	return v
}

// Pid implements sandbox.Process.
func (p *process) Pid() int { return p.pid }

// Done implements sandbox.Process.
func (p *process) Done() <-chan struct{} { return p.done }

// Wait implements sandbox.Process.
func (p *process) Wait() (sandbox.Exit, error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, p.err
}

// Signal implements sandbox.Process.
func (p *process) Signal(sig syscall.Signal) error {
	select {
	case <-p.ended:
		return sandbox.ErrEnded
	default:
	}
	if sig == syscall.SIGKILL {
		p.kill()
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stubborn || p.by != 0 {
		return nil
	}
	p.by = sig
	close(p.asked)
	return nil
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.killed:
	default:
		close(p.killed)
	}
}

// killAll ends the main process and what it left.
func (p *process) killAll() {
	p.kill()
	<-p.ended
	p.leave()
}

// claim records who ends the process, and whether the caller is the one to walk the ladder.
func (p *process) claim(r sandbox.Reason, fired *sandbox.Timer) (walk bool, over chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := true
	select {
	case <-p.ended:
		alive = false
	default:
	}
	if alive && p.reason == sandbox.ReasonNone {
		p.reason, p.fired = r, fired
	} else if fired != nil {
		return false, nil
	}
	if r == sandbox.ReasonKilled {
		return false, nil
	}
	if p.stopping == nil {
		p.stopping, walk = make(chan struct{}), true
	}
	return walk, p.stopping
}

// Stop implements sandbox.Process.
func (p *process) Stop(ctx context.Context, ladder sandbox.Ladder) (sandbox.Exit, error) {
	p.h.d.note("stop %s %s", p.h.spec.Attempt, strings.Join(p.cmd.Args, " "))
	if ladder == nil {
		ladder = p.cmd.Ladder
	}
	if walk, over := p.claim(sandbox.ReasonStopped, nil); walk {
		p.stop(ctx, ladder, over)
	} else {
		select {
		case <-over:
		case <-ctx.Done():
			p.killAll()
		}
	}
	return p.Wait()
}

// stop walks the ladder and kills what is left.
func (p *process) stop(ctx context.Context, ladder sandbox.Ladder, over chan struct{}) {
	defer close(over)
	if ladder == nil {
		ladder = sandbox.DefaultLadder
	}
	for _, r := range ladder {
		p.h.mu.Lock()
		frozen := p.h.frozen
		p.h.mu.Unlock()
		if frozen || ctx.Err() != nil || p.Signal(r.Signal) != nil {
			break
		}
		p.noteSent(r.Signal)
		if !p.h.await(r.Grace, p.ended, ctx.Done()) {
			break
		}
	}
	select {
	case <-p.ended:
	default:
		p.noteSent(syscall.SIGKILL)
	}
	p.killAll()
}

func (p *process) noteSent(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, signalName(sig))
}
