//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/everdict/everdict/agent/sandbox"
)

// spawner forks commands from one locked thread, whose mount namespace hides what commands must not see. Children
// inherit the namespace of the thread that forks them; the kernel also ties a parent-death signal to that thread.
type spawner struct {
	key      string
	hide     []string
	mask     masker
	cover    cover
	requests chan spawnRequest
	looks    chan chan<- []error
	done     chan struct{} // closed when the thread has ended
	users    int           // guarded by spawners.mu
}

type spawnRequest struct {
	cell  cell
	path  string
	args  []string
	attr  *os.ProcAttr
	reply chan spawnReply
}

type spawnReply struct {
	proc *os.Process
	err  error
}

var errSpawnerEnded = errors.New("process: the starting thread has ended")

// start forks one command. Once the thread has taken the request it is carried out: ctx bounds the queueing.
func (s *spawner) start(ctx context.Context, r spawnRequest) (*os.Process, error) {
	r.reply = make(chan spawnReply, 1)
	select {
	case s.requests <- r:
	case <-s.done:
		return nil, errSpawnerEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	a := <-r.reply
	return a.proc, a.err
}

// loop is the thread's life. Its goroutine never unlocks: the runtime ends the thread with it, and no other
// goroutine ever runs in its namespace.
func (s *spawner) loop(ready chan<- error) {
	mask := s.mask
	runtime.LockOSThread()
	if onMainThread() {
		// Its mounts and its priority are what others see as the whole process's. While it is held here, the next loop
		// gets another thread.
		go s.loop(ready)
		<-s.done
		runtime.UnlockOSThread()
		return
	}
	defer close(s.done)
	defer mask.close()
	standBack()
	var err error
	s.cover, err = mask.setup(s.hide)
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case r, more := <-s.requests:
			if !more {
				return
			}
			mask.adapt(r.attr.Sys)
			proc, healthy, err := fork(mask, r)
			r.reply <- spawnReply{proc, err}
			if !healthy {
				return
			}
		case reply := <-s.looks:
			reply <- mask.look()
		}
	}
}

// look hides from what runs already what has been listed meanwhile, and returns what could not be hidden.
func (s *spawner) look() []error {
	reply := make(chan []error, 1)
	select {
	case s.looks <- reply:
		return <-reply
	case <-s.done:
		return nil
	}
}

// fork starts one process. healthy is false when the thread is stuck in a cell, and must end to leave it.
func fork(mask masker, r spawnRequest) (proc *os.Process, healthy bool, err error) {
	if err := mask.refresh(); err != nil {
		return nil, true, err
	}
	if err := r.cell.enter(); err != nil {
		return nil, r.cell.leave() == nil, err
	}
	// Another thread's fork may hold a script that was just written open for a moment (go.dev/issue/22315).
	for i := 0; ; i++ {
		proc, err = os.StartProcess(r.path, r.args, r.attr)
		if !errors.Is(err, syscall.ETXTBSY) || i == 20 {
			break
		}
		time.Sleep(time.Duration(i+1) * 200 * time.Microsecond)
	}
	if err == nil {
		standBackAs(proc.Pid)
		goFirst(proc.Pid)
		if err = r.cell.started(proc.Pid); err != nil {
			_ = proc.Kill()
			_, _ = proc.Wait() // the error that counts is why it was killed
			proc = nil
		}
	}
	return proc, r.cell.leave() == nil, err
}

// masker hides paths in the mount namespace of the calling thread.
type masker interface {
	// setup runs first, on the thread that will fork.
	setup(hide []string) (cover, error)
	// refresh runs before each fork: a hidden file may have been replaced or may have come into being.
	refresh() error
	// look hides what other runners have listed, also from what has been started, and returns what it could not hide.
	look() []error
	// enter says that a workspace is going to be used, which is not to be hidden until leave; false: it is already. They
	// may be called from any thread.
	enter(workspace string) bool
	leave(workspace string)
	// adapt changes what a command is started with.
	adapt(attr *syscall.SysProcAttr)
	// close runs last, and ends what setup has started.
	close()
	// ended reports whether nothing can be started any more, by nobody's wish. It may be called from any thread.
	ended() bool
}

// cover is what has become of the paths that were to be hidden.
type cover struct {
	hidden    []string
	notHidden []sandbox.NotHidden
	notes     []string // about what is weaker here than elsewhere
}

// spawners keeps one spawner per set of hidden paths, and the last unused one, because the next sandbox usually
// hides the same.
type spawners struct {
	newMasker func() masker

	mu     sync.Mutex
	byKey  map[string]*spawner
	all    map[*spawner]struct{} // that have not been ended
	closed bool
}

func newSpawners(newMasker func() masker) *spawners {
	return &spawners{newMasker: newMasker, byKey: make(map[string]*spawner), all: make(map[*spawner]struct{})}
}

// get returns a spawner that hides paths, for a sandbox with this workspace.
func (p *spawners) get(hide []string, workspace string) (*spawner, error) {
	hide = slices.Compact(slices.Sorted(slices.Values(hide)))
	key := strings.Join(hide, "\x00")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errSpawnerEnded
	}
	s := p.byKey[key]
	if s != nil && (s.over() || !s.mask.enter(workspace)) {
		s = nil // if somebody uses it, it ends with the last
	}
	if s == nil {
		p.endUnused()
		s = &spawner{key: key, hide: hide, mask: p.newMasker(), requests: make(chan spawnRequest), looks: make(chan chan<- []error), done: make(chan struct{})}
		s.mask.enter(workspace)
		ready := make(chan error, 1)
		go s.loop(ready)
		if err := <-ready; err != nil {
			return nil, fmt.Errorf("hide paths: %w", err)
		}
		p.byKey[key] = s
		p.all[s] = struct{}{}
	}
	s.users++
	return s, nil
}

// over reports whether it can start nothing any more.
func (s *spawner) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return s.mask.ended()
	}
}

// look has all spawners look for what other runners have listed.
func (p *spawners) look() (errs []error) {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	for _, s := range all {
		errs = append(errs, s.look()...)
	}
	return errs
}

func (p *spawners) put(s *spawner, workspace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mask.leave(workspace)
	s.users--
	if s.users > 0 {
		return
	}
	if p.closed || p.byKey[s.key] != s {
		p.end(s)
		return
	}
	for key, other := range p.byKey {
		if other != s && other.users == 0 {
			delete(p.byKey, key)
			p.end(other)
		}
	}
}

func (p *spawners) endUnused() {
	for key, s := range p.byKey {
		if s.users == 0 {
			delete(p.byKey, key)
			p.end(s)
		}
	}
}

func (p *spawners) end(s *spawner) {
	delete(p.all, s)
	close(s.requests)
	<-s.done
}

func (p *spawners) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.endUnused()
}
