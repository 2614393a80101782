package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process/pidns"
	"github.com/everdict/everdict/agent/sandbox/process/roster"
	"github.com/everdict/everdict/agent/sandbox/process/userns"
)

// mountMask hides paths behind mounts that only one thread and its children see.
type mountMask struct {
	off string // why nothing can be hidden; empty when it can
	// landlock answers for the kernel, as askLandlock does.
	landlock func(what uintptr) (uintptr, unix.Errno)
	paths    []string
	covers   map[string]*placeCover // by path
	cgroup   string                 // of the runner's commands, in the hierarchy of v2; empty: they have none
	view     string                 // names the mount namespace; empty: there is no own
	mounts   *os.File               // tells when the mounts have changed
	first    *pidns.Init            // of the commands' PID namespace; nil: they have none

	roster  *roster.Roster // nil: what other runners list is not hidden
	version time.Time      // of the roster, when it was read

	mu         sync.Mutex     // held while it is decided what may be hidden
	workspaces map[string]int // that are in use, without symbolic links
	listed     []string       // what is hidden because the roster lists it
}

// placeCover is a cover, and what it covers.
type placeCover struct {
	place
	device uint64 // what lies on the path: the device of its mask
}

func newMask(cfg Config, cgroups *cgroupRoot, others *roster.Roster) masker {
	m := &mountMask{covers: make(map[string]*placeCover), landlock: askLandlock, roster: others, workspaces: make(map[string]int)}
	if cgroups != nil {
		m.cgroup = cgroups.dir
	}
	if cfg.noLandlock {
		m.landlock = func(uintptr) (uintptr, unix.Errno) { return 0, unix.ENOSYS }
	}
	if cfg.NoMask {
		m.off = "hiding is switched off (--hide-files=false)"
	}
	return m
}

func (m *mountMask) setup(hide []string) (c cover, err error) {
	if _, err := table(); err != nil { // before another one may lie over it
		return cover{}, err
	}
	if m.off == "" {
		// CLONE_FS is implied for a thread that leaves its mount namespace; it is named for the reader.
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			m.off = fmt.Sprintf("the runner may not make a mount namespace: %v", err)
			if err := userns.Refused(); err != nil {
				m.off += fmt.Sprintf("; nor may it %v", err)
			}
		} else if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			// Without this every mask would reach the host.
			return cover{}, fmt.Errorf("make mounts private: %w", err)
		} else if m.mounts, err = openTable(mountinfo, unix.O_RDONLY); err != nil {
			return cover{}, err
		} else if m.view, err = ownView(); err != nil {
			return cover{}, err
		} else {
			family.sees(m.view, true)
		}
	}
	bare := func(path, reason string) {
		c.notHidden = append(c.notHidden, sandbox.NotHidden{Path: path, Reason: reason})
	}
	for _, p := range hide {
		if m.off != "" {
			bare(p, m.off)
			continue
		}
		if err := m.cover(p); err != nil {
			bare(p, err.Error())
			continue
		}
		c.hidden = append(c.hidden, p)
		m.paths = append(m.paths, p)
	}
	if len(c.hidden) == 0 {
		return c, nil
	}
	for _, err := range m.look() {
		c.notes = append(c.notes, err.Error())
	}
	all, err := readMounts()
	if err != nil {
		return cover{}, err
	}
	if err := m.holdCgroups(all); err != nil {
		c.notes = append(c.notes, "a job can leave its cgroup, and with it its limits: "+err.Error())
	}
	apart := true // from all outside of its user namespace
	var lacks error
	if !userns.Inside() {
		if lacks = lacking(m.landlock); lacks != nil {
			if err := m.ownTable(); err != nil {
				apart, lacks = false, fmt.Errorf("%w; and the runner could not %w", lacks, err)
			}
		}
	}
	if err := shed(); err != nil {
		for _, p := range c.hidden {
			bare(p, "jobs keep the right to take its cover away: "+err.Error())
		}
		c.hidden = nil
		return c, nil
	}
	if !userns.Inside() && lacks == nil {
		lacks = setApart()
		apart = lacks == nil
	}
	switch {
	case !apart:
		c.notes = append(c.notes, "a job that becomes another user can read what is hidden through a process of that user: "+lacks.Error())
	case m.first != nil:
		c.notes = append(c.notes, "commands run in a PID namespace: they see no process of the machine, and their own have other numbers there: "+lacks.Error())
	}
	return c, m.follow()
}

// shed takes from what this thread starts the rights by which a job of root's could see a covered path: to unmount, to
// look through /proc into processes that have no cover, the runner among them, and to open a file by its number, without
// a path; the last one opens the environment of processes since Linux 6.13. In a user namespace no job has any. What needs no right,
// because the job has become the user of such a process, is setApart's.
func shed() error {
	if userns.Inside() {
		return userns.Shed()
	}
	rights := []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_PERFMON}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range rights {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			continue // older than the right
		}
		if err != nil {
			return fmt.Errorf("drop a capability: %w", err)
		}
		sets[c/32].Inheritable &^= 1 << (c % 32) // and with it from the ambient set
	}
	if err := unix.Capset(&head, &sets[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

func (m *mountMask) refresh() error {
	if m.ended() {
		return errors.New("process: the PID namespace of the commands has ended")
	}
	for _, p := range m.paths {
		if err := m.cover(p); err != nil {
			return fmt.Errorf("hide %s: %w", p, err)
		}
	}
	for _, p := range m.listed {
		_ = m.cover(p) // what a disk of others has come to is no reason to start nothing
	}
	if m.roster != nil {
		if v, err := m.roster.Version(); err != nil || !v.Equal(m.version) {
			m.look() // who has listed something is told what cannot be hidden
		}
	}
	return m.follow()
}

// look implements masker.
func (m *mountMask) look() (errs []error) {
	if m.roster == nil || len(m.paths) == 0 {
		return nil
	}
	fail := func(path string, err error) {
		errs = append(errs, fmt.Errorf("%s, which is another runner's, is visible to jobs: %w", path, err))
	}
	var err error
	if m.version, err = m.roster.Version(); err != nil {
		return []error{err}
	}
	paths, err := m.roster.Paths()
	if err != nil {
		errs = append(errs, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range append(paths, m.roster.Dir()) {
		if slices.Contains(m.listed, p) || slices.Contains(m.paths, p) {
			continue // covered, and again should it be replaced: see refresh
		}
		if w, ok := m.inUse(p); ok {
			fail(p, fmt.Errorf("the workspace %s lies in it", w))
			continue
		}
		if err := m.cover(p); err != nil {
			fail(p, err)
			continue
		}
		if m.covers[p] != nil {
			m.listed = append(m.listed, p)
		}
	}
	return errs
}

// inUse returns a workspace that is in use and lies in dir. The mutex is held.
func (m *mountMask) inUse(dir string) (string, bool) {
	for w := range m.workspaces {
		if _, ok := below(dir, w); ok {
			return w, true
		}
	}
	return "", false
}

func (m *mountMask) enter(workspace string) bool {
	workspace = resolved(workspace)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.listed {
		if _, ok := below(p, workspace); ok {
			return false
		}
	}
	m.workspaces[workspace]++
	return true
}

func (m *mountMask) leave(workspace string) {
	workspace = resolved(workspace)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.workspaces[workspace]--; m.workspaces[workspace] <= 0 {
		delete(m.workspaces, workspace)
	}
}

// follow covers what has been mounted since the last look, for all that the thread has started, too.
func (m *mountMask) follow() error {
	// What is mounted here is a change, too: the last look finds nothing. Others may mount faster than is looked.
	for range 10 {
		if m.mounts == nil || !changed(m.mounts) {
			return nil
		}
		all, err := readMounts()
		if err != nil {
			return err
		}
		for _, c := range m.covers {
			for _, p := range c.elsewhere(all) {
				if err := mask(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("hide %s at %s: %w", c.path, p, err)
				}
			}
		}
		if m.first != nil {
			if _, err := replaceTables(all, procPath); err != nil {
				return err
			}
		}
		_ = m.holdCgroups(all) // as good as possible: who leaves is found at the end
	}
	return nil
}

// holdCgroups keeps all that the thread starts in its cgroup. The hierarchies are read-only, so that nothing moves itself
// elsewhere. To start a process elsewhere takes no more than the directory of a cgroup of v2: of those it sees this
// runner's alone, where it is used to find them, because programs ask there what they may use.
func (m *mountMask) holdCgroups(all []mount) (err error) {
	for _, c := range all {
		var sys unix.Statfs_t
		if c.kind != "cgroup" && c.kind != "cgroup2" || slices.Contains(c.flags, "ro") || unix.Statfs(c.point, &sys) != nil ||
			sys.Type != unix.CGROUP_SUPER_MAGIC && sys.Type != unix.CGROUP2_SUPER_MAGIC {
			continue // covered by something else, or out of reach
		}
		var failed error
		_, shows := below(c.point, m.cgroup)
		switch {
		case c.kind == "cgroup" || m.cgroup == "":
			failed = readOnly(unix.AT_FDCWD, c.point, 0)
		case shows:
			failed = showOnly(c.point, m.cgroup)
		default:
			failed = mask(c.point)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("hold %s: %w", c.point, failed))
		}
	}
	return err
}

// readOnly makes a mount so, and leaves everything else of it (Linux 5.12).
func readOnly(dir int, path string, flags uint) error {
	return unix.MountSetattr(dir, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// showOnly covers a mount but for one directory in it, which is shown read-only at its own path.
func showOnly(point, dir string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := readOnly(tree, "", unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if err := unix.Mount("everdict", point, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return readOnly(unix.AT_FDCWD, point, 0)
}

// changed reports whether the mounts have changed since it was asked last, or the file was opened.
func changed(mounts *os.File) bool {
	p := []unix.PollFd{{Fd: int32(mounts.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return n > 0 || err != nil
}

// adapt takes back that a command ends with the thread that starts it: Go takes a parent that has no number in the
// child's namespace for one that has died. Everything in the namespace ends with the thread anyway.
func (m *mountMask) adapt(attr *syscall.SysProcAttr) {
	if m.first != nil {
		attr.Pdeathsig = 0
	}
}

// ended reports whether nothing can be started any more. It may be called from any thread.
func (m *mountMask) ended() bool { return m.first != nil && m.first.Ended() }

func (m *mountMask) close() {
	if m.first != nil {
		family.adopts(m.first, false)
		m.first.End()
	}
	for _, c := range m.covers {
		c.place.close()
	}
	family.sees(m.view, false)
	_ = m.mounts.Close() // of nil: an error without meaning
}

// cover masks path unless its mask is in place, and with it every other place where a mount shows the same files. What
// does not exist needs no mask yet, and what lies in a masked directory needs none of its own.
func (m *mountMask) cover(path string) error {
	for q := range m.covers {
		if rel, ok := below(q, path); ok && rel != "." {
			return nil
		}
	}
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before := m.covers[path]
	if before != nil && before.device == deviceOf(&st) {
		return nil
	}
	at, err := find(path)
	if err != nil {
		return fmt.Errorf("find where it is: %w", err)
	}
	all, err := readMounts()
	if err == nil {
		for _, p := range append(at.elsewhere(all), path) {
			if err = mask(p); err != nil {
				err = fmt.Errorf("cover %s: %w", p, err)
				break
			}
		}
	}
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err != nil {
		at.close()
		return err
	}
	if before != nil {
		before.close()
	}
	m.covers[path] = &placeCover{at, deviceOf(&st)}
	return nil
}

func mask(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return unix.Mount("everdict", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=000,size=4k")
	}
	return unix.Mount(os.DevNull, path, "", unix.MS_BIND, "")
}

// deviceOf tells a mask from what it masks: a tmpfs has a device of its own, the null device its number.
func deviceOf(st *unix.Stat_t) uint64 {
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return uint64(st.Rdev)
	}
	return uint64(st.Dev)
}
