package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/budget"
	"github.com/everdict/everdict/agent/sandbox/process/roster"
	"github.com/everdict/everdict/agent/sandbox/process/userns"
	"github.com/everdict/everdict/agent/sandbox/stopwatch"
)

// platform is the Linux part of a machine.
type platform struct {
	namespace string // PID namespace
	cgroup    *cgroupRoot
	cfg       Config
	guard     *guard
	has       budget.Machine // what all sandboxes together can have
	roster    *roster.Roster // nil: of no other runner anything is hidden
	listener  *roster.Listener
}

// probe finds the best enclosure that works here.
func probe(cfg Config) (*machine, error) {
	instance, err := instanceName()
	if err != nil {
		return nil, err
	}
	ns, err := pidNamespace()
	if err != nil {
		return nil, err
	}
	m := &machine{instance: instance, seq: &sequence, now: stopwatch.Now}
	m.namespace, m.cfg = ns, cfg
	m.spawners = newSpawners(func() masker { return newMask(cfg, m.cgroup, m.roster) })
	m.base = sandbox.Info{Driver: Name, ActsAsUser: true}
	if userns.Inside() {
		m.base.Notes = append(m.base.Notes, "commands run in a user namespace: sudo and others that change the user do not work in them (--hide-files=false)")
	}
	// In a cgroup, too: an init that collects orphans late would let the dead count against the process limit.
	if err := becomeReaper(); err != nil {
		return nil, err
	}
	var cgErr error
	if cfg.Enclosure == "" || cfg.Enclosure == EnclosureCgroup {
		m.cgroup, cgErr = newCgroupRoot(cfg, instance)
		if cgErr == nil {
			m.base.Enclosure, m.base.Freezer = EnclosureCgroup, "cgroup2"
			m.base.Notes = append(m.base.Notes, m.cgroup.notes()...)
		} else if cfg.Enclosure != "" {
			return nil, fmt.Errorf("process: cgroup v2: %w", cgErr)
		}
	}
	switch {
	case m.cgroup != nil:
	case cfg.Enclosure == "" || cfg.Enclosure == EnclosureReaper:
		m.base.Enclosure, m.base.Freezer = EnclosureReaper, "sigstop"
		if cgErr != nil {
			m.base.Notes = append(m.base.Notes, "no cgroup v2: "+cgErr.Error())
		}
		m.base.Notes = append(m.base.Notes,
			"processes are recognised by inherited marks; memory, CPU and process limits cannot be enforced",
			"cpu time counts the processes whose parents waited for them")
	default:
		return nil, fmt.Errorf("process: unknown enclosure %q", cfg.Enclosure)
	}
	m.has = m.capacity()
	m.base.Limits, _ = m.limits(sandbox.Resources{}) // nothing is declared, so nothing can be refused
	m.guard, err = startGuard(m.cgroup, instance)
	if err != nil {
		m.base.Notes = append(m.base.Notes, "no guard: when the runner is killed, processes that left their main process stay until the next start; when it is stopped, they run on: "+err.Error())
	} else if m.guard.dir == "" {
		m.base.Notes = append(m.base.Notes, "no directory for temporary files: when the runner is stopped, its jobs run on")
	}
	if cfg.Roster != "" && !cfg.NoMask {
		if err := m.join(cfg.Roster); err != nil {
			m.base.Notes = append(m.base.Notes, "what other runners of this user keep is visible to jobs: "+err.Error())
		}
	}
	return m, nil
}

// join has what other runners list hidden from all commands.
func (m *machine) join(dir string) error {
	r, err := roster.Open(dir)
	if err != nil {
		return err
	}
	m.roster = r
	m.listener, err = r.Listen(m.instance, m.spawners.look)
	return err
}

func (m *machine) close() {
	if m.listener != nil {
		_ = m.listener.Close()
	}
	m.spawners.close()
	if m.roster != nil {
		_ = m.roster.Close()
	}
	if m.guard != nil {
		m.guard.stop()
	}
	if m.cgroup != nil {
		m.cgroup.close()
	}
}

// limits resolves what is declared and what is default; it refuses what cannot be enforced, and what this machine
// never has.
func (m *machine) limits(r sandbox.Resources) ([]sandbox.Limit, error) {
	share := m.has.Share(m.cfg.Slots)
	var out []sandbox.Limit
	var errs []error
	for _, l := range []struct {
		name, what, unit    string
		declared, has       int64 // has of zero: it is not known
		configured, ownPart int64 // for who declares nothing; zero: no limit
		scale               int64 // of the unit
	}{
		{"memory", "memory limit", " MiB", r.MemoryMB, m.has.Memory >> 20, m.cfg.DefaultMemoryMB, share.Memory >> 20, 1 << 20},
		{"cpu", "CPU limit", "/1000 CPU", r.CPUMillis, int64(runtime.NumCPU()) * 1000, 0, 0, 1},
		{"pids", "process limit", "", r.PIDs, m.has.PIDs, m.cfg.DefaultPIDs, share.PIDs, 1},
	} {
		limit := sandbox.Limit{Name: l.name, Value: l.declared, By: m.enforces(l.name)}
		refuse := func(reason string) {
			errs = append(errs, &sandbox.UnsupportedError{Driver: Name, What: l.what, Wanted: fmt.Sprint(l.declared, l.unit), Reason: reason})
		}
		switch {
		case l.declared > 0 && limit.By == "":
			refuse("this runner has no cgroup in which it may set it (enclosure " + m.base.Enclosure + ")")
			continue
		case l.declared > 0 && l.has > 0 && l.declared > l.has:
			refuse(fmt.Sprintf("this machine has %d%s", l.has, l.unit))
			continue
		case l.declared > 0:
		case limit.By == "":
			continue
		case l.configured != 0:
			limit.Value, limit.Default = l.configured, true
		default:
			limit.Value, limit.Default, limit.Slots = l.ownPart, true, max(m.cfg.Slots, 1)
		}
		if limit.Value > 0 {
			limit.Value *= l.scale
			out = append(out, limit)
		}
	}
	return out, errors.Join(errs...)
}

// enforces says what can limit a resource here; empty: nothing.
func (m *machine) enforces(name string) string {
	if m.cgroup == nil {
		return ""
	}
	return m.cgroup.enforces(name)
}

// capacity is what this machine, or the part of it that is the runner's, can have.
func (m *machine) capacity() budget.Machine {
	var host budget.Machine
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		host.Memory = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	for _, f := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if v, err := readInt(f); err == nil {
			host = host.Within(budget.Machine{PIDs: v})
		}
	}
	if m.cgroup == nil {
		return host
	}
	return host.Within(m.cgroup.capacity())
}

// enclose makes the enclosure of one sandbox.
func (m *machine) enclose(spec sandbox.Spec) (enclosure, []sandbox.Limit, error) {
	limits, err := m.limits(spec.Resources)
	if err != nil {
		return nil, nil, err
	}
	if m.cgroup == nil {
		return family.newTree(m.instance), nil, nil
	}
	enc, err := m.cgroup.newCgroup(spec.Attempt, limits)
	if err != nil {
		return nil, nil, fmt.Errorf("process: start %s: %w", spec.Attempt, err)
	}
	return enc, limits, nil
}

func readInt(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// sweep ends what ended instances left: first their cgroups, then processes that carry their markers.
func (m *machine) sweep(ctx context.Context, keep, live func(attempt string) bool) ([]sandbox.Swept, error) {
	var swept []sandbox.Swept
	var errs []error
	if m.cgroup != nil {
		s, err := m.cgroup.sweep(ctx, m.namespace, keep, live)
		swept, errs = append(swept, s...), append(errs, err)
	}
	s, err := sweepMarked(ctx, m.namespace, keep)
	return append(swept, s...), errors.Join(append(errs, err, sweepGuards(m.namespace))...)
}

// sweepMarked kills the processes whose markers name an ended instance. A process that forks meanwhile is found by
// the next pass.
func sweepMarked(ctx context.Context, namespace string, keep func(attempt string) bool) ([]sandbox.Swept, error) {
	ctx, cancel := context.WithTimeout(ctx, sandbox.EndWithin)
	defer cancel()
	killed := make(map[string]map[int]bool)
	var denied error
	err := poll(ctx, func() (bool, error) {
		all, err := procs()
		if err != nil {
			return false, err
		}
		left := 0
		denied = nil
		for _, p := range all {
			if p.dead() || p.pid == os.Getpid() {
				continue
			}
			attempt, marker := environMarks(p.pid)
			instance, _, ok := splitMarker(marker)
			if attempt == "" || !ok || !orphaned(instance, namespace) || keep(attempt) {
				continue
			}
			if err := signalProc(p, unix.SIGKILL); err != nil {
				denied = errors.Join(denied, err)
				continue
			}
			left++
			if killed[attempt] == nil {
				killed[attempt] = make(map[int]bool)
			}
			killed[attempt][p.pid] = true
		}
		return left == 0, nil
	})
	var out []sandbox.Swept
	for attempt, pids := range killed {
		out = append(out, sandbox.Swept{Attempt: attempt, Kind: "processes", Processes: len(pids)})
	}
	return out, errors.Join(err, denied)
}

// Seclude moves the program into a user namespace of its own where that is what makes hidden files possible: it
// replaces this process by a fresh image of itself, so it is to be called before anything else is begun. An error says
// what jobs will see of the runner's files, or what they cannot do, and why. What runners of the same user left when they
// were killed cannot be recognised from inside such a namespace: if sweep is set, it is ended first. After the end of ctx
// this process stays what it is, because a fresh image would know nothing of that end.
func Seclude(ctx context.Context, sweep bool) error {
	err := seclude(ctx, sweep)
	if err != nil && !userns.Inside() && ctx.Err() == nil {
		err = fmt.Errorf("jobs can read this runner's files, its token included: %w", err)
	}
	return err
}

func seclude(ctx context.Context, sweep bool) error {
	if sweep && userns.Needed() {
		ns, err := pidNamespace()
		if err != nil {
			return err
		}
		// What cannot be ended stays, as it would without a namespace; runner gc says so.
		_, _ = sweepMarked(ctx, ns, func(string) bool { return false })
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return userns.Enter()
}

// Enlist has the other runners of this user hide paths from their jobs, those that run included: it lists them in the
// roster at dir. A runner does that with what it keeps, which exists by then, before it writes anything there that no job
// may read. An error says whose jobs may read it, and why.
func Enlist(ctx context.Context, dir string, paths ...string) error {
	r, err := roster.Open(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	var errs []error
	for _, p := range paths {
		errs = append(errs, r.Add(p))
	}
	return errors.Join(append(errs, r.Tell(ctx))...)
}

// Listed is what runners of this user have in the roster at dir, and the roster itself: no job may read any of it.
func Listed(dir string) ([]string, error) {
	r, err := roster.Open(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	paths, err := r.Paths()
	return append(paths, r.Dir()), err
}

// HideSelf makes this process unreadable for other processes of its user: its memory, environment and open files
// in /proc, and, where files are hidden from commands, for those that root starts. A runner calls it once, at its start.
func HideSelf() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("process: hide this process: %w", err)
	}
	return nil
}
