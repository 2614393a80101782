package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/everdict/everdict/agent/sandbox"
)

// proc is one entry of the process table. pid and start together name a process for good.
type proc struct {
	pid, ppid int
	start     uint64 // clock ticks since boot
	state     byte   // R S D T t Z X
}

// dead reports whether only an exit status is left.
func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

// halted reports whether it is stopped.
func (p proc) halted() bool { return p.state == 'T' || p.state == 't' }

// procs reads the process table. The table cannot be read at one instant; but the kernel tells the number that it
// gave out last, so what was started during the reading is read as well, until nothing new has come. Then every
// process was looked at that existed at the beginning or has been started since: none slips through by forking and
// ending behind the reader's back.
func procs() ([]proc, error) {
	for range 3 {
		all, whole, err := readTable()
		if err != nil || whole {
			return all, err
		}
	}
	all, _, err := readTable()
	return all, err
}

// readTable is one reading; whole is false when the numbers wrapped around in it, or forks outran it.
func readTable() (all []proc, whole bool, err error) {
	last := lastPID()
	d, err := os.Open("/proc")
	if err != nil {
		return nil, false, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, false, err
	}
	all = make([]proc, 0, len(names))
	read := make(map[int]bool, len(names))
	// Backwards: the youngest are the first to be gone.
	for _, n := range slices.Backward(names) {
		if n[0] < '0' || n[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(n); err == nil {
			if p, ok := statProc(pid); ok {
				all, read[pid] = append(all, p), true
			}
		}
	}
	for range 1000 {
		now := lastPID()
		switch {
		case now == last:
			return all, true, nil
		case now < last:
			return all, false, nil
		}
		for pid := now; pid > last; pid-- {
			if read[pid] || !leads(pid) {
				continue
			}
			if p, ok := statProc(pid); ok {
				all, read[pid] = append(all, p), true
			}
		}
		last = now
	}
	return all, false, nil
}

// lastPID is the number that the kernel gave out last, in this PID namespace.
func lastPID() int {
	var buf [128]byte
	f := bytes.Fields(buf[:readSmall("/proc/loadavg", buf[:])])
	if len(f) < 5 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[4]))
	return n
}

// leads reports whether pid is a process and not another thread of one: those have numbers, too.
func leads(pid int) bool {
	var buf [512]byte
	_, rest, ok := bytes.Cut(buf[:readSmall("/proc/"+strconv.Itoa(pid)+"/status", buf[:])], []byte("\nTgid:"))
	f := bytes.Fields(rest)
	return ok && len(f) > 0 && string(f[0]) == strconv.Itoa(pid)
}

// statProc reads one process; ok is false when there is none.
func statProc(pid int) (p proc, ok bool) {
	var buf [1024]byte
	n := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	// The name in parentheses may hold anything, parentheses included: fields begin after the last one.
	i := bytes.LastIndexByte(buf[:n], ')')
	if i < 0 {
		return proc{}, false
	}
	f := bytes.Fields(buf[i+1 : n])
	if len(f) < 20 {
		return proc{}, false
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	start, err2 := strconv.ParseUint(string(f[19]), 10, 64)
	return proc{pid: pid, ppid: ppid, start: start, state: f[0][0]}, err1 == nil && err2 == nil
}

// table is the directory of the process table that this process is in. The thread that starts commands may see another
// one by the name of /proc; it opens what it needs with openTable.
var table = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
})

// openTable opens a file of the process table, such as "self/mountinfo".
func openTable(name string, flags int) (*os.File, error) {
	dir, err := table()
	if err == nil {
		dir, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join("/proc", name), Err: err}
	}
	return os.NewFile(uintptr(dir), name), nil
}

// readSmall reads the beginning of a file without the cost of os.File's poller, which a scan of hundreds of files feels.
func readSmall(path string, buf []byte) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	total := 0
	for total < len(buf) {
		n, err := unix.Read(fd, buf[total:])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		total += n
	}
	return total
}

// signalProc sends sig to p, and to nothing that has taken over its number since.
func signalProc(p proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil { // before Linux 5.3: a narrow window remains
		if now, ok := statProc(p.pid); !ok || now.start != p.start {
			return nil
		}
		err = unix.Kill(p.pid, sig)
	} else {
		defer unix.Close(fd)
		if now, ok := statProc(p.pid); !ok || now.start != p.start {
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal %d: %w", p.pid, err)
	}
	return nil
}

// drivers numbers the drivers of this process.
var drivers atomic.Int64

// instanceName names a driver for good: the PID namespace, the process's number in it, its start, and which of its
// drivers this is. Numbers of another namespace say nothing here, and are left alone.
func instanceName() (string, error) {
	own, err := processName()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s-%d", own, drivers.Add(1)), nil
}

// processName is the part of it that all drivers of this process share.
var processName = sync.OnceValues(func() (string, error) {
	ns, err := pidNamespace()
	if err != nil {
		return "", err
	}
	self, ok := statProc(os.Getpid())
	if !ok {
		return "", fmt.Errorf("process: /proc does not show this process")
	}
	return fmt.Sprintf("%s-%d-%d", ns, self.pid, self.start), nil
})

func pidNamespace() (string, error) {
	link, err := os.Readlink("/proc/self/ns/pid") // "pid:[4026531836]"
	if err != nil {
		return "", fmt.Errorf("process: read the PID namespace: %w", err)
	}
	return strings.Trim(strings.TrimPrefix(link, "pid:"), "[]"), nil
}

// orphaned reports whether an instance of this PID namespace has ended. Of others nothing can be said: false.
func orphaned(instance, namespace string) bool {
	f := strings.Split(instance, "-")
	if len(f) != 4 || f[0] != namespace {
		return false
	}
	pid, err1 := strconv.Atoi(f[1])
	start, err2 := strconv.ParseUint(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	p, ok := statProc(pid)
	return !ok || p.start != start || p.dead()
}

// environMarks returns the two markers in the environment with which p was started; empty when there are none or
// p may not be looked at.
func environMarks(pid int) (attempt, marker string) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", ""
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(sandbox.EnvAttempt+"=")); ok {
			attempt = string(v)
		} else if v, ok := bytes.CutPrefix(kv, []byte(sandbox.EnvMarker+"=")); ok {
			marker = string(v)
		}
	}
	return attempt, marker
}

// splitMarker takes an EnvMarker apart.
func splitMarker(marker string) (instance string, seq uint64, ok bool) {
	i := strings.LastIndexByte(marker, '.')
	if i < 0 {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(marker[i+1:], 10, 64)
	return marker[:i], seq, err == nil
}
