package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process/pidns"
)

// treeRoot recognises the processes of sandboxes by what they inherit. Orphans of a subreaper become its children,
// so everything that a command ever started descends from this process; whose it is, is told by descent from a
// main process, by the marker in the environment, or by an odd limit on message queues, which survives a cleaned
// environment, a new session and a change of user. A job that has lowered its limit, too, is told from what this
// process starts for itself by just that, and belongs to the sandbox that lived when it was started: see stray.
//
// There is one for the whole process, because orphans come to the process, not to a driver.
type treeRoot struct {
	// forks is held for reading from before a fork until the main process is known, for writing while orphans are
	// collected: a command that ends at once must not be taken for an orphan.
	forks sync.RWMutex

	mu    sync.Mutex
	bySeq map[uint64]*mark
	byPID map[int]*mark            // main processes that have not been waited for
	trees map[*tree]struct{}       // of living sandboxes
	inits map[*pidns.Init]struct{} // of the PID namespaces in which commands are, whose orphans come to those
	views map[string]struct{}      // the mount namespaces in which commands are
	stop  chan struct{}            // ends the loop that reaps while there are sandboxes
	done  chan struct{}
}

// family is this process's.
var family = &treeRoot{bySeq: make(map[uint64]*mark), byPID: make(map[int]*mark), trees: make(map[*tree]struct{}),
	inits: make(map[*pidns.Init]struct{}), views: make(map[string]struct{})}

// becomeReaper makes the orphans of this process's descendants its children. It is the process's property, for good.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("process: become a subreaper: %w", err)
	}
	return nil
}

// mark is what the processes of one command carry.
type mark struct {
	root *treeRoot
	tree *tree
	seq  uint64
	pid  int    // of the main process; 0 when there is none any more
	rlim uint64 // value of the limit on message queues; 0 when it could not be set
}

// queueLimit is the kernel's default for RLIMIT_MSGQUEUE, in bytes: marks lie in the upper half of it, or of what
// this process may have, where a program hardly feels them.
const queueLimit = 819200

// ownQueue is this process's hard limit, which its other children inherit; 0 where there can be no marks.
var ownQueue = sync.OnceValue(func() uint64 {
	var own unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, nil, &own) != nil || own.Max < queueLimit/4 {
		return 0
	}
	return own.Max
})

// queueValue is the mark of command seq, 0 where there can be none.
func queueValue(seq uint64) uint64 {
	top := min(ownQueue(), queueLimit)
	if top == 0 {
		return 0
	}
	return top - 1 - seq%(top/2)
}

// isMain makes pid known as a main process, which nobody but its own Wait may collect.
func (k *mark) isMain(pid int) {
	k.root.mu.Lock()
	defer k.root.mu.Unlock()
	k.pid = pid
	k.root.byPID[pid] = k
}

// brand gives the main process, and so all that it will start, the limit that marks it.
func (k *mark) brand(pid int) {
	v := queueValue(k.seq)
	if v == 0 || unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: v, Max: v}, nil) != nil {
		return // the other two ways to recognise it remain
	}
	k.root.mu.Lock()
	defer k.root.mu.Unlock()
	k.rlim = v
}

// ended tells that the main process has been waited for: its number may be another's from now on.
func (k *mark) ended() {
	k.root.mu.Lock()
	defer k.root.mu.Unlock()
	if k.pid != 0 && k.root.byPID[k.pid] == k {
		delete(k.root.byPID, k.pid)
	}
	k.pid = 0
}

// member is a process with the command that it belongs to.
type member struct {
	proc
	mark *mark
}

// marked finds the command that was given a limit.
func (r *treeRoot) marked(v uint64) *mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.bySeq {
		if k.rlim == v {
			return k
		}
	}
	return nil
}

// queueMark reads the hard limit on message queues of another process; zombies still have it.
func queueMark(pid int) (uint64, bool) {
	var buf [2048]byte
	n := readSmall("/proc/"+strconv.Itoa(pid)+"/limits", buf[:])
	_, rest, ok := strings.Cut(string(buf[:n]), "Max msgqueue size")
	if !ok {
		return 0, false
	}
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0, false
	}
	if f[1] == "unlimited" {
		return unix.RLIM_INFINITY, true
	}
	v, err := strconv.ParseUint(f[1], 10, 64)
	return v, err == nil
}

// keepReaping reaps orphans every second, as long as there are sandboxes: a long job may leave thousands.
func (r *treeRoot) keepReaping(stop, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.reapChildren()
		}
	}
}

// reapChildren collects the orphans among this process's children that have ended, also those of sandboxes that are
// over, and has those of PID namespaces collected. They are not collected at once, because a process whose parent is
// gone may have to be recognised by it. A main process is left to its own Wait; what carries no mark is another package's child.
func (r *treeRoot) reapChildren() {
	r.mu.Lock()
	for i := range r.inits {
		i.Collect()
	}
	r.mu.Unlock()
	r.forks.Lock()
	defer r.forks.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		for f := range strings.FieldsSeq(readString(l)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				continue
			}
			if p, ok := statProc(pid); !ok || !p.dead() || !inOurCgroup(pid) && !remarked(pid) {
				continue
			}
			v, _ := queueMark(pid)
			r.mu.Lock()
			main := r.byPID[pid] != nil
			r.mu.Unlock()
			if main {
				continue
			}
			var ru unix.Rusage
			if got, err := unix.Wait4(pid, nil, unix.WNOHANG, &ru); err != nil || got != pid {
				continue
			}
			if k := r.marked(v); k != nil {
				k.tree.cpu.Add(ru.Utime.Nano() + ru.Stime.Nano())
			}
		}
	}
}

// inOurCgroup reports whether a process lives, or died, in a cgroup of this process.
func inOurCgroup(pid int) bool {
	var buf [4096]byte
	own, err := processName()
	return err == nil && bytes.Contains(buf[:readSmall("/proc/"+strconv.Itoa(pid)+"/cgroup", buf[:])], []byte("/everdict/"+own+"-"))
}

// adopts says that i collects orphans of this process's sandboxes, or that it does not any more.
func (r *treeRoot) adopts(i *pidns.Init, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if yes {
		r.inits[i] = struct{}{}
	} else {
		delete(r.inits, i)
	}
}

// sees says that commands are in a mount namespace, or that they are not any more.
func (r *treeRoot) sees(view string, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if yes {
		r.views[view] = struct{}{}
	} else {
		delete(r.views, view)
	}
}

func (r *treeRoot) newTree(instance string) *tree {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &tree{root: r, instance: instance, stopped: make(map[int]uint64), born: bootTicks()}
	t.strays = &mark{root: r, tree: t}
	r.trees[t] = struct{}{}
	if len(r.trees) == 1 {
		r.stop, r.done = make(chan struct{}), make(chan struct{})
		go r.keepReaping(r.stop, r.done)
	}
	return t
}

// bootTicks is the present as proc.start has it. 100 ticks per second are part of Linux's interface to programs.
func bootTicks() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Sec)*100 + uint64(now.Nsec)/1e7
}

// tree encloses one sandbox where there is no cgroup; where there is one, it finds who has left that.
type tree struct {
	root     *treeRoot
	instance string
	cpu      atomic.Int64 // nanoseconds of the processes that were waited for

	born   uint64 // clock ticks since boot
	strays *mark  // of what is this sandbox's because it can be no other's

	stopped map[int]uint64 // what freeze stopped: pid and start; guarded by the handle's gate
}

func (t *tree) newMark(seq uint64) *mark {
	k := &mark{root: t.root, tree: t, seq: seq}
	t.root.mu.Lock()
	defer t.root.mu.Unlock()
	t.root.bySeq[seq] = k
	return k
}

func (t *tree) newCell(seq uint64) (cell, error) { return &treeCell{mark: t.newMark(seq)}, nil }

// forget drops the marks of a sandbox that is over.
func (t *tree) forget() {
	r := t.root
	r.mu.Lock()
	if _, lives := r.trees[t]; !lives {
		r.mu.Unlock()
		return
	}
	delete(r.trees, t)
	for seq, k := range r.bySeq {
		if k.tree == t {
			delete(r.bySeq, seq)
		}
	}
	stop, done := r.stop, r.done
	if len(r.trees) > 0 {
		stop = nil
	} else {
		r.stop, r.done = nil, nil
	}
	r.mu.Unlock()
	if stop != nil {
		close(stop)
		<-done
	}
}

func (t *tree) remove() error {
	t.forget()
	return nil
}

func (t *tree) mine(k *mark) bool { return k.tree == t }

// kill ends every process of the sandbox.
func (t *tree) kill(ctx context.Context) error {
	err := t.root.killAll(ctx, t.mine)
	if err == nil {
		clear(t.stopped)
	}
	return err
}

// killAll kills until a pass finds nothing. A fork bomb may outrun the killing of one after the other:
// from the fourth pass on everything is stopped first, and killed when nothing is left that could fork.
func (r *treeRoot) killAll(ctx context.Context, mine func(*mark) bool) error {
	any := func(proc) bool { return true }
	running := func(p proc) bool { return !p.halted() && p.state != 'D' }
	pass := 0
	return poll(ctx, func() (bool, error) {
		pass++
		for stops := 0; pass > 3 && stops < 100 && ctx.Err() == nil; stops++ {
			n, _, err := r.signalAll(mine, unix.SIGSTOP, running)
			if err != nil {
				return false, err
			}
			if n == 0 {
				break
			}
		}
		left, denied, err := r.signalAll(mine, unix.SIGKILL, any)
		if err == nil && left == 0 {
			err = denied // only what may not be signalled is left
		}
		return left == 0, err
	})
}

// signalAll sends sig in one pass to the processes that are wanted, and counts them. denied joins what may not be
// signalled, and is not counted.
func (r *treeRoot) signalAll(mine func(*mark) bool, sig unix.Signal, want func(proc) bool) (n int, denied, err error) {
	members, err := r.scan()
	if err != nil {
		return 0, nil, err
	}
	for _, p := range members {
		if !mine(p.mark) || !want(p.proc) {
			continue
		}
		if err := signalProc(p.proc, sig); err != nil {
			denied = errors.Join(denied, err)
			continue
		}
		n++
	}
	return n, denied, nil
}

// freeze stops every process until a pass finds all of them stopped. What was stopped already, by the job itself,
// is remembered as not ours, and stays stopped at the thaw.
func (t *tree) freeze(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		members, err := t.root.scan()
		if err != nil {
			return false, err
		}
		still := true
		for _, p := range members {
			if !t.mine(p.mark) {
				continue
			}
			start, sent := t.stopped[p.pid]
			sent = sent && start == p.start
			if p.halted() {
				continue
			}
			if !sent {
				if err := signalProc(p.proc, unix.SIGSTOP); err != nil {
					return false, err
				}
				t.stopped[p.pid] = p.start
				still = false
			} else if p.state != 'D' {
				// A process in the kernel takes the stop before its next instruction: a parent in vfork waits
				// there for a stopped child.
				still = false
			}
		}
		return still, nil
	})
	if err != nil {
		err = errors.Join(err, t.thaw())
	}
	return err
}

func (t *tree) adopt(stopped []proc) {
	for _, p := range stopped {
		t.stopped[p.pid] = p.start
	}
}

func (t *tree) thaw() error {
	var errs []error
	for pid, start := range t.stopped {
		errs = append(errs, signalProc(proc{pid: pid, start: start}, unix.SIGCONT))
	}
	clear(t.stopped)
	return errors.Join(errs...)
}

// vacate has nothing to wait for: there are no limits.
func (t *tree) vacate(context.Context) { t.root.reapChildren() }

func (t *tree) usage(u *sandbox.Usage) {
	cpu := time.Duration(t.cpu.Load())
	if members, err := t.root.scan(); err == nil {
		var n int64
		for _, p := range members {
			if t.mine(p.mark) {
				threads, used := threadsOf(p.pid)
				n += threads
				cpu += used
			}
		}
		u.PIDs = &n
	}
	u.CPU = &cpu
}

// threadsOf reads how many threads a process has and how much CPU they have used: see bootTicks.
func threadsOf(pid int) (threads int64, cpu time.Duration) {
	b := readString("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(b[strings.LastIndexByte(b, ')')+1:])
	if len(f) < 18 {
		return 0, 0
	}
	utime, _ := strconv.ParseInt(f[11], 10, 64)
	stime, _ := strconv.ParseInt(f[12], 10, 64)
	threads, _ = strconv.ParseInt(f[17], 10, 64)
	return threads, time.Duration(utime+stime) * (time.Second / 100)
}

// treeCell is one command in a tree.
type treeCell struct {
	mark   *mark
	traced bool
}

// attr makes the child stop at its exec, so that it can be marked before its first instruction. The kernel ignores
// the set-user-ID bit of what a traced process executes: those files start unstopped, and are marked a moment later.
func (l *treeCell) attr(path string, a *syscall.SysProcAttr) {
	a.Pdeathsig = syscall.SIGKILL
	st, err := os.Stat(path)
	a.Ptrace = err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) == 0
	l.traced = a.Ptrace
}

func (l *treeCell) enter() error {
	family.forks.RLock()
	return nil
}

func (l *treeCell) leave() error {
	family.forks.RUnlock()
	return nil
}

// started runs on the thread that forked, which is the tracer.
func (l *treeCell) started(pid int) error {
	l.mark.isMain(pid)
	if !l.traced {
		l.mark.brand(pid)
		return nil
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the exec of %d: %w", pid, err)
		}
		break
	}
	if !ws.Stopped() {
		// Something killed it before it began, and its status is gone with this wait.
		return fmt.Errorf("process %d ended before it began", pid)
	}
	l.mark.brand(pid)
	if err := unix.PtraceDetach(pid); err != nil && err != unix.ESRCH {
		return fmt.Errorf("let %d go: %w", pid, err)
	}
	return nil
}

func (k *mark) mine(other *mark) bool { return k == other }

// kill ends every process of the command.
func (k *mark) kill(ctx context.Context) error {
	if err := k.root.killAll(ctx, k.mine); err != nil {
		return fmt.Errorf("end the tree: %w", err)
	}
	return nil
}

func (l *treeCell) signal(sig syscall.Signal) error {
	_, denied, err := l.mark.root.signalAll(l.mark.mine, sig, func(proc) bool { return true })
	return errors.Join(denied, err)
}

func (l *treeCell) kill(ctx context.Context) error { return l.mark.kill(ctx) }

func (l *treeCell) ended(state *os.ProcessState) {
	l.mark.ended()
	if state != nil {
		l.mark.tree.cpu.Add(int64(state.UserTime() + state.SystemTime()))
	}
}
