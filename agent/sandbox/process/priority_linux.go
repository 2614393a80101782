package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// The runner's own work comes before that of its jobs: a heartbeat that waits behind N busy loops loses N leases. All
// three measures count only while somebody waits for a CPU; on an idle machine a job has all of it. They are mild,
// because nice counts beside the rest of the machine, too, and a job's timeouts do not stretch. Each is as good as
// possible: without it jobs stand beside the runner, as equals.
const (
	// jobNice is about half the weight of a thread at 0.
	jobNice = 3
	// jobsWeight is that of all jobs together beside the runner's cgroup; the kernel's default is 100.
	jobsWeight = 50
)

// standBack puts the calling thread behind the runner's others, and with it all that it will fork. Only root could
// undo it, and a job of root's could do worse.
func standBack() {
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil { // 20 less than nice, as the kernel says it
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-own+jobNice, 19))
	}
}

func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// standBackAs does it for the session of a command. Where the kernel groups processes by session, as desktops have it,
// nice counts between those of one session only; their group has one of its own. For who is not root the kernel does
// this ten times a second, and refuses the rest.
func standBackAs(pid int) {
	writeTable(strconv.Itoa(pid)+"/autogroup", jobNice)
}

// jobsFirst is added to the runner's own badness, out of 1000, when the kernel looks for a process to end for want of
// memory: many small processes of a job must not make the runner the biggest of all. A job
// that undoes it is as bad as the runner again.
const jobsFirst = 500

// goFirst marks a command, and with it all that it will fork.
func goFirst(pid int) {
	f, err := openTable("self/oom_score_adj", unix.O_RDONLY)
	if err != nil {
		return
	}
	defer f.Close()
	var own int
	if _, err := fmt.Fscan(f, &own); err == nil {
		writeTable(strconv.Itoa(pid)+"/oom_score_adj", min(own+jobsFirst, 1000))
	}
}

func writeTable(name string, value int) {
	if f, err := openTable(name, unix.O_WRONLY); err == nil {
		_, _ = f.WriteString(strconv.Itoa(value)) // as good as possible
		_ = f.Close()
	}
}

// standBack does it for all jobs of all runners below the same cgroup.
func (r *cgroupRoot) standBack() {
	if slices.Contains(r.controllers, "cpu") {
		_ = writeFile(filepath.Join(filepath.Dir(r.dir), "cpu.weight"), strconv.Itoa(jobsWeight))
	}
}
