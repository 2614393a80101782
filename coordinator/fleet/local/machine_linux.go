package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says whether units can be launched on this system.
const Supported = true

// identity is a process that cannot be mistaken for another.
type identity struct {
	PID int `json:"pid"`
	// Start is when it started, in ticks since the boot, and Boot which one that was.
	Start string `json:"start"`
	Boot  string `json:"boot"`
}

// startField is the start time among the fields of stat.
const startField = 19

func identify(pid int) (*identity, error) {
	fields := stat(pid)
	if len(fields) <= startField {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	boot, err := bootID()
	return &identity{pid, fields[startField], boot}, err
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// signal signals the process, if it is still there. The handle is of one process, which is
// compared after it was opened: a number that is used again is not signalled.
func (i *identity) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(i.PID)
	if err != nil {
		return nil // there is none of that number
	}
	defer p.Release()
	now, err := identify(i.PID)
	if errors.Is(err, os.ErrProcessDone) || err == nil && *now != *i {
		return nil
	}
	if err == nil {
		err = p.Signal(sig)
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// errHeld says that another process has the lock.
var errHeld = errors.New("another keeper has this unit")

// The lock belongs to the open file, so that the runner holds it as well, which inherits
// it; and whether it is held can be asked without taking it.
func flock(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: int16(os.SEEK_SET)}
}

// take takes the lock.
func take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, flock(unix.F_WRLCK))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = errHeld
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// held says whether a process has the lock.
func held(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := flock(unix.F_WRLCK)
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, l)
	return l.Type != unix.F_UNLCK, err
}

// alone puts a keeper into a session of its own.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// capacity is what this machine has for units.
func capacity() size {
	var info unix.Sysinfo_t
	memory := uint64(0)
	if unix.Sysinfo(&info) == nil {
		memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
		if limit, err := strconv.ParseUint(cgroupFile(name), 10, 64); err == nil {
			memory = min(memory, limit)
		}
	}
	gpus, _ := filepath.Glob("/dev/nvidia[0-9]*")
	return size{cpu: runtime.NumCPU() * 1000, memoryMB: int(memory >> 20), gpu: len(gpus)}
}

// oomKills is how many processes of this one's control group the kernel has ended for want
// of memory; 0 where nobody counts.
func oomKills() (n int) {
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		for line := range strings.Lines(cgroupFile(name)) {
			if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
				return n
			}
		}
	}
	return 0
}

// cgroupFile is a file of the control group that counts this process's memory, of either
// version; empty: there is none.
func cgroupFile(name string) string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		root := ""
		switch controllers {
		case "":
			root = "/sys/fs/cgroup"
		case "memory":
			root = "/sys/fs/cgroup/memory"
		default:
			continue
		}
		if b, err := os.ReadFile(filepath.Join(root, path, name)); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}

// kernel is its version; empty if that is not known.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
