package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/agent/sandbox/process/userns"
)

// mountMask hides paths behind mounts that only one thread and its children see.
type mountMask struct {
	off     string // why nothing can be hidden; empty when it can
	paths   []string
	devices map[string]uint64 // what lies on a masked path: the device of its mask
}

// newMask reports in advance what setup will find out: unsharing needs CAP_SYS_ADMIN.
func newMask(disabled bool) masker {
	m := &mountMask{devices: make(map[string]uint64)}
	if disabled {
		m.off = "hiding is switched off (--hide-files=false)"
	}
	return m
}

func (m *mountMask) setup(hide []string) (c cover, err error) {
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
		if slices.ContainsFunc(m.paths, func(q string) bool { return strings.HasPrefix(p, q+"/") }) {
			c.hidden = append(c.hidden, p) // with the directory that it is in
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
	if err := shed(); err != nil {
		for _, p := range c.hidden {
			bare(p, "jobs keep the right to take its cover away: "+err.Error())
		}
		c.hidden = nil
		return c, nil
	}
	if userns.Inside() {
		return c, nil // apart from all outside of the namespace
	}
	if err := setApart(); err != nil {
		c.notes = append(c.notes, "a job that becomes another user can read what is hidden through a process of that user: "+err.Error())
	}
	return c, nil
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
	for _, p := range m.paths {
		if err := m.cover(p); err != nil {
			return fmt.Errorf("hide %s: %w", p, err)
		}
	}
	return nil
}

// cover masks path unless its mask is in place, and with it every other place where a mount shows the same files. What
// does not exist needs no mask yet.
func (m *mountMask) cover(path string) error {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if dev, ok := m.devices[path]; ok && dev == deviceOf(&st) {
		return nil
	}
	others, err := elsewhere(path)
	if err != nil {
		return fmt.Errorf("find where else it is: %w", err)
	}
	for _, p := range append(others, path) {
		if err := mask(p); err != nil {
			return fmt.Errorf("cover %s: %w", p, err)
		}
	}
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	m.devices[path] = deviceOf(&st)
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
