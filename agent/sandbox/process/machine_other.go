//go:build unix && !linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// platform is the part of a machine for systems whose process table can only be asked for through ps.
type platform struct{ table *table }

func probe(cfg Config) (*machine, error) {
	if cfg.Enclosure != "" && cfg.Enclosure != EnclosureGroup {
		return nil, fmt.Errorf("process: this system has no enclosure %q", cfg.Enclosure)
	}
	m := &machine{instance: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano()), seq: &sequence, now: stopwatch.Now}
	m.table = &table{known: make(map[int]*group), cells: make(map[int]*groupCell)}
	m.spawners = newSpawners(func() masker { return noMask{} })
	m.base = sandbox.Info{
		Driver: Name, Enclosure: EnclosureGroup, Freezer: "sigstop", ActsAsUser: true,
		Notes: []string{
			"processes are found by session, process group and descent, looked up twice a second: one that leaves all " +
				"three at once and loses its parent in between is not found",
			"memory, CPU and process limits cannot be enforced",
		},
	}
	return m, nil
}

func (m *machine) close() { m.spawners.close() }

func (m *machine) enclose(spec sandbox.Spec) (enclosure, []sandbox.Limit, error) {
	r := spec.Resources
	for _, l := range []struct {
		what  string
		value int64
	}{{"memory limit", r.MemoryMB}, {"CPU limit", r.CPUMillis}, {"process limit", r.PIDs}} {
		if l.value > 0 {
			return nil, nil, &sandbox.UnsupportedError{Driver: Name, What: l.what, Wanted: strconv.FormatInt(l.value, 10),
				Reason: "this system has no way to limit a tree of processes"}
		}
	}
	g := &group{table: m.table, stopped: make(map[int]bool), stop: make(chan struct{}), done: make(chan struct{})}
	go g.watch()
	return g, nil, nil
}

// sweep finds nothing: without a readable environment of other processes, labels cannot be looked up.
func (m *machine) sweep(context.Context, func(string) bool, func(string) bool) ([]sandbox.Swept, error) {
	return nil, nil
}

// Seclude reports that this system cannot hide files from jobs.
func Seclude(context.Context, bool) error { return errors.ErrUnsupported }

// Enlist reports that this system cannot hide files from jobs.
func Enlist(context.Context, string, ...string) error { return errors.ErrUnsupported }

// Listed reports that this system cannot hide files from jobs.
func Listed(string) ([]string, error) { return nil, errors.ErrUnsupported }

// HideSelf reports that this system cannot hide a process from others of its user.
func HideSelf() error { return errors.ErrUnsupported }

// noMask hides nothing.
type noMask struct{}

func (noMask) setup(hide []string) (c cover, _ error) {
	for _, p := range hide {
		c.notHidden = append(c.notHidden, sandbox.NotHidden{Path: p, Reason: "this system has no private mounts"})
	}
	return c, nil
}

func (noMask) refresh() error { return nil }

func (noMask) look() []error { return nil }

func (noMask) enter(string) bool { return true }

func (noMask) leave(string) {}

func (noMask) adapt(*syscall.SysProcAttr) {}

func (noMask) close() {}

func (noMask) ended() bool { return false }

// proc is one line of ps.
type proc struct {
	pid, ppid, pgid int
	state           byte
}

// procs asks ps, the one portable way to the process table.
func procs() ([]proc, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,pgid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var all []proc
	for line := range bytes.Lines(out) {
		f := bytes.Fields(line)
		if len(f) < 4 {
			continue
		}
		var n [3]int
		ok := true
		for i := range n {
			v, err := strconv.Atoi(string(f[i]))
			n[i], ok = v, ok && err == nil
		}
		if ok {
			all = append(all, proc{pid: n[0], ppid: n[1], pgid: n[2], state: f[3][0]})
		}
	}
	return all, nil
}

// table remembers which process belongs to which sandbox, from one look to the next.
type table struct {
	mu    sync.Mutex
	known map[int]*group
	cells map[int]*groupCell
}

// look brings the memory up to date and returns the living processes of g, or of one of its cells.
func (t *table) look(g *group, only *groupCell) ([]proc, error) {
	all, err := procs()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	byPID := make(map[int]proc, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	for pid := range t.known {
		if _, ok := byPID[pid]; !ok {
			delete(t.known, pid)
			delete(t.cells, pid)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if t.known[p.pid] != nil {
				continue
			}
			for _, kin := range []int{p.ppid, p.pgid} {
				if o := t.known[kin]; o != nil {
					t.known[p.pid], t.cells[p.pid], grown = o, t.cells[kin], true
					break
				}
			}
		}
	}
	var out []proc
	for _, p := range all {
		if t.known[p.pid] == g && p.state != 'Z' && (only == nil || t.cells[p.pid] == only) {
			out = append(out, p)
		}
	}
	return out, nil
}

// group encloses one sandbox.
type group struct {
	table   *table
	stopped map[int]bool // guarded by the handle's gate
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once

	mu  sync.Mutex
	cpu time.Duration
}

// watch keeps the memory fresh, so that daemons are known before their parents are gone.
func (g *group) watch() {
	defer close(g.done)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
			_, _ = g.table.look(g, nil)
		}
	}
}

func (g *group) newCell(uint64) (cell, error) { return &groupCell{g: g}, nil }

func (g *group) kill(ctx context.Context) error { return g.killOnly(ctx, nil) }

func (g *group) killOnly(ctx context.Context, only *groupCell) error {
	return poll(ctx, func() (bool, error) {
		left, err := g.table.look(g, only)
		if err != nil {
			return false, err
		}
		return len(left) == 0, signalThem(left, unix.SIGKILL)
	})
}

func signalThem(list []proc, sig syscall.Signal) error {
	var errs []error
	for _, p := range list {
		if err := unix.Kill(p.pid, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal %d: %w", p.pid, err))
		}
	}
	return errors.Join(errs...)
}

func (g *group) freeze(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		list, err := g.table.look(g, nil)
		if err != nil {
			return false, err
		}
		still := true
		for _, p := range list {
			if p.state == 'T' {
				continue
			}
			still = false
			g.stopped[p.pid] = true
			if err := unix.Kill(p.pid, unix.SIGSTOP); err != nil && err != unix.ESRCH {
				return false, err
			}
		}
		return still, nil
	})
	if err != nil {
		err = errors.Join(err, g.thaw())
	}
	return err
}

func (g *group) adopt(stopped []proc) {
	for _, p := range stopped {
		g.stopped[p.pid] = true
	}
}

func (g *group) thaw() error {
	var errs []error
	for pid := range g.stopped {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil && err != unix.ESRCH {
			errs = append(errs, err)
		}
	}
	clear(g.stopped)
	return errors.Join(errs...)
}

// vacate has nothing to wait for: there are no limits.
func (g *group) vacate(context.Context) {}

func (g *group) usage(u *sandbox.Usage) {
	if list, err := g.table.look(g, nil); err == nil {
		n := int64(len(list))
		u.PIDs = &n
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	cpu := g.cpu
	u.CPU = &cpu
}

func (g *group) remove() error {
	g.once.Do(func() {
		close(g.stop)
		<-g.done
	})
	return nil
}

// groupCell is one command.
type groupCell struct{ g *group }

func (l *groupCell) attr(string, *syscall.SysProcAttr) {}
func (l *groupCell) enter() error                      { return nil }
func (l *groupCell) leave() error                      { return nil }

func (l *groupCell) started(pid int) error {
	t := l.g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[pid], t.cells[pid] = l.g, l
	return nil
}

func (l *groupCell) signal(sig syscall.Signal) error {
	list, err := l.g.table.look(l.g, l)
	return errors.Join(err, signalThem(list, sig))
}

func (l *groupCell) kill(ctx context.Context) error { return l.g.killOnly(ctx, l) }

func (l *groupCell) ended(state *os.ProcessState) {
	if state == nil {
		return
	}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	l.g.cpu += state.UserTime() + state.SystemTime()
}
