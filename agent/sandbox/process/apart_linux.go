package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox/process/pidns"
)

// procPath is where programs look for the process table.
const procPath = "/proc"

// ownTable is the means against the way through other processes where Landlock cannot bar it: all that the calling
// thread will start is born in a PID namespace, in which no process of the machine has a number, and sees its own
// process table in the place of every other that is mounted. After an error the thread is as it was.
//
// Number 1 of the namespace stays for as long as the thread: see pidns.
func (m *mountMask) ownTable() (err error) {
	all, err := readMounts()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "everdict-proc-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	var old mount
	for _, t := range all {
		if t.point == procPath {
			old = t
		}
	}
	var options []string
	for _, o := range old.options {
		if name, _, _ := strings.Cut(o, "="); slices.Contains([]string{"hidepid", "gid", "subset"}, name) {
			options = append(options, o)
		}
	}
	first, err := pidns.Start(dir, strings.Join(options, ","))
	if err != nil {
		return err
	}
	mounted := []string{dir}
	defer func() {
		if err != nil {
			for _, p := range slices.Backward(mounted) {
				_ = unix.Unmount(p, unix.MNT_DETACH)
			}
			first.End()
		}
	}()
	if slices.Contains(old.flags, "ro") {
		if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("make its /proc read-only: %w", err)
		}
	}
	if err := carryOver(all, dir); err != nil {
		return err
	}
	replaced, err := replaceTables(all, dir)
	mounted = append(mounted, replaced...)
	if err != nil {
		return err
	}
	if err := unix.Mount(dir, procPath, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mount %s: %w", procPath, err)
	}
	mounted = append(mounted, procPath)
	if err := first.Join(); err != nil {
		return err
	}
	m.first = first
	family.adopts(first, true)
	return nil
}

// carryOver shows in a new /proc at dir what is mounted below the old one: container engines cover files there, and
// make others read-only. What would be mounted only when somebody comes stays away.
func carryOver(all []mount, dir string) error {
	last := make(map[string]mount)
	var points []string
	for _, t := range all {
		if rel, ok := below(procPath, t.point); ok && rel != "." {
			if _, again := last[t.point]; !again {
				points = append(points, t.point)
			}
			last[t.point] = t
		}
	}
	for _, p := range points {
		rel, _ := below(procPath, p)
		to := filepath.Join(dir, rel)
		if _, err := os.Lstat(to); err != nil || last[p].kind == "autofs" {
			continue // a process's, which is not there
		}
		if err := unix.Mount(p, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", p, err)
		}
	}
	return nil
}

// replaceTables puts the process table at own in the place of those that are mounted beside /proc, as for a changed
// root, and takes single processes of theirs away. It returns what it mounted.
func replaceTables(all []mount, own string) (mounted []string, err error) {
	var ours unix.Stat_t
	if err := unix.Stat(own, &ours); err != nil {
		return nil, err
	}
	for _, t := range all {
		_, inside := below(procPath, t.point)
		of, _, _ := strings.Cut(strings.TrimPrefix(t.root, "/"), "/")
		process := of != "" && strings.Trim(of, "0123456789") == ""
		if t.kind != "proc" || inside || t.point == own || of != "" && !process {
			continue
		}
		var sys unix.Statfs_t
		var st unix.Stat_t
		if unix.Statfs(t.point, &sys) != nil || unix.Stat(t.point, &st) != nil || sys.Type != unix.PROC_SUPER_MAGIC || st.Dev == ours.Dev {
			continue // covered by something else, or replaced already
		}
		if process {
			err = mask(t.point)
		} else {
			err = unix.Mount(own, t.point, "", unix.MS_BIND, "")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return mounted, fmt.Errorf("replace the process table at %s: %w", t.point, err)
		}
		mounted = append(mounted, t.point)
	}
	return mounted, nil
}
