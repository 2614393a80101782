package unit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/environment"
)

// Container is the runner's own, which is emptied after each job. What a job can leave
// behind is known only where all of these hold, and OpenContainer refuses where one does not:
//
//   - The runner is the first process of a PID namespace, so that every other process
//     in it came from a job, and one signal reaches all of them.
//   - Its user is not root.
//   - Of the file systems, only its dirs and what the kernel keeps in /dev can be written.
type Container struct {
	dirs  []string
	state processState
}

// Paths of the kernel's, and of the orchestrator's, that anybody can write.
const (
	sharedMemory   = "/dev/shm"
	messageQueues  = "/dev/mqueue"
	terminationLog = "/dev/termination-log"
)

// untouched are mounts that look writable and are not, for a user who is not root.
var untouched = []string{"/proc", "/dev", "/dev/pts", "/sys/fs/cgroup", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// OpenContainer looks at the container before its first job. dirs are all that a job may
// write beside what is in /dev.
func OpenContainer(dirs ...string) (*Container, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("the runner is not the first process of its container")
	}
	if os.Geteuid() == 0 {
		return nil, errors.New("the runner is root")
	}
	mounts, err := mounts()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if slices.Contains(dirs, m.path) || slices.Contains([]string{sharedMemory, messageQueues, terminationLog}, m.path) {
			continue
		}
		if !m.readOnly && !slices.Contains(untouched, m.path) && !underProc(m.path) {
			return nil, fmt.Errorf("%s can be written", m.path)
		}
		if slices.Contains(untouched, m.path) && unix.Access(m.path, unix.W_OK) == nil && m.path != "/proc" && m.path != "/dev/pts" {
			return nil, fmt.Errorf("%s can be written", m.path)
		}
	}
	c := &Container{dirs: dirs}
	c.state, err = readState()
	return c, err
}

// underProc says whether a mount hides something of /proc from the container, as
// container runtimes do: an empty directory or the null device.
func underProc(path string) bool { return strings.HasPrefix(path, "/proc/") }

type mount struct {
	path     string
	readOnly bool
}

// mounts are those of this process; of two on one path the last counts.
func mounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, fmt.Errorf("mountinfo has the line %q", lines.Text())
		}
		found[unescape(fields[4])] = slices.Contains(strings.Split(fields[5], ","), "ro")
	}
	var all []mount
	for path, ro := range found {
		all = append(all, mount{path, ro})
	}
	return all, lines.Err()
}

// unescape reads a path of mountinfo, which has \040 for a space and the like.
func unescape(path string) string {
	for i := 0; i+3 < len(path); i++ {
		if path[i] != '\\' {
			continue
		}
		if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
			path = path[:i] + string([]byte{byte(n)}) + path[i+4:]
		}
	}
	return path
}

// Empty removes what a job has left: processes, files, what it put into the kernel's
// memory. After an error the container is not fit for another job. No sandbox is open
// meanwhile.
func (c *Container) Empty(ctx context.Context) error {
	if err := killOthers(ctx); err != nil {
		return err
	}
	for _, dir := range append([]string{sharedMemory, messageQueues}, c.dirs...) {
		if err := emptyDir(ctx, dir); err != nil {
			return err
		}
	}
	if err := os.Truncate(terminationLog, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, kind := range []string{"shm", "sem", "msg"} {
		if left, err := sysvLeft(kind); err != nil || left {
			return errors.Join(err, fmt.Errorf("System V objects are left: /proc/sysvipc/%s", kind))
		}
	}
	now, err := readState()
	if err == nil && now != c.state {
		err = fmt.Errorf("the limits or the priority of the runner were changed: %+v, before %+v", now, c.state)
	}
	return err
}

// killOthers ends every other process of the PID namespace. The kernel sends one signal
// to all of them at a time, so that none gets away by forking.
func killOthers(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := unix.Kill(-1, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
			return reap()
		} else if err != nil {
			return fmt.Errorf("end what a job has left: %w", err)
		}
		if err := reap(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("processes of a job do not end: %w", context.Cause(ctx))
		}
	}
}

// reap collects the dead, which the first process of a PID namespace inherits.
func reap() error {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD), err == nil && pid == 0:
			return nil
		case err != nil:
			return fmt.Errorf("collect what a job has left: %w", err)
		}
	}
}

// emptyDir removes what is in a directory; a missing one is empty.
func emptyDir(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, environment.RemoveTree(ctx, filepath.Join(dir, e.Name())))
	}
	return err
}

// sysvLeft says whether System V objects of a kind exist in the IPC namespace.
func sysvLeft(kind string) (bool, error) {
	b, err := os.ReadFile("/proc/sysvipc/" + kind)
	if errors.Is(err, fs.ErrNotExist) { // the kernel has none
		return false, nil
	}
	return strings.Count(strings.TrimSpace(string(b)), "\n") > 0, err
}

// processState is what another process of the same user can change of the runner, and
// what its children would inherit.
type processState struct {
	limits [unix.RLIMIT_RTTIME + 1]unix.Rlimit
	thread threadState
}

type threadState struct {
	policy, nice string
	io           uintptr
	affinity     unix.CPUSet
}

// readState reads it; an error says that the threads differ.
func readState() (s processState, err error) {
	for i := range s.limits {
		if err := unix.Getrlimit(i, &s.limits[i]); err != nil {
			return s, fmt.Errorf("read limit %d: %w", i, err)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return s, err
	}
	first := true
	for _, t := range tasks {
		thread, err := readThread(t.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // it has ended
		case err != nil:
			return s, err
		case first:
			s.thread, first = thread, false
		case thread != s.thread:
			return s, fmt.Errorf("the priorities of the runner's threads differ: %+v, %+v", thread, s.thread)
		}
	}
	return s, nil
}

func readThread(id string) (t threadState, err error) {
	tid, err := strconv.Atoi(id)
	if err != nil {
		return t, err
	}
	stat, err := os.ReadFile("/proc/self/task/" + id + "/stat")
	if err != nil {
		return t, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // from the third on
	if len(fields) < 39 {
		return t, fmt.Errorf("thread %s has the line %q", id, stat)
	}
	t.nice, t.policy = fields[16], fields[38]
	const ofThread = 1
	io, _, failed := unix.Syscall(unix.SYS_IOPRIO_GET, ofThread, uintptr(tid), 0)
	if failed != 0 {
		return t, failed
	}
	t.io = io
	return t, unix.SchedGetaffinity(tid, &t.affinity)
}
