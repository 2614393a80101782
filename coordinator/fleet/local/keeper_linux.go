package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leavePause is what the processes that a runner leaves have to end by themselves, as
	// those do that end a sandbox whose runner is dead; then they are killed.
	leavePause = 3 * time.Second
	// leaveBound is how long the keeper tries.
	leaveBound = 10 * time.Second
)

// Keep is the life of a keeper: it runs the runner of the unit in dir. Its result is the
// exit code of the process, 0 unless the unit could not be kept.
func Keep(dir string) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP)
	lock, err := take(filepath.Join(dir, lockFile))
	if errors.Is(err, errHeld) {
		return 0
	}
	if err == nil {
		defer lock.Close()
		err = keep(dir, lock, signals)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func keep(dir string, lock *os.File, signals <-chan os.Signal) error {
	s, err := readStart(dir)
	if err != nil || s == nil {
		return err
	}
	self, err := identify(os.Getpid())
	if err == nil {
		err = writeJSON(dir, keeperFile, self)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		return err
	}
	// The runner is told of the death of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	killed := oomKills()
	e := attend(dir, lock, s, signals)
	e.OutOfMemory = oomKills() > killed
	return writeJSON(dir, exitFile, e)
}

// attend runs the runner until nothing of it is left.
func attend(dir string, lock *os.File, s *start, signals <-chan os.Signal) *ending {
	e := new(ending)
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = append(os.Environ(), s.Env...), dir, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := newStreams(dir, cmd)
	if err == nil {
		err = cmd.Start()
	}
	out.started()
	if err != nil {
		e.Failed = "its runner could not be started: " + err.Error()
		out.wait()
		return e
	}
	done := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := cmd.Process.Wait()
		done <- state
	}()
	late, kill := timer(s.Deadline), timer(0)
	ask := func() {
		if !e.Asked && !e.Late {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have just ended
			kill = timer(max(s.Kill, time.Nanosecond))
		}
	}
	for state := (*os.ProcessState)(nil); state == nil; {
		select {
		case state = <-done:
			e.Code = state.ExitCode()
			if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				e.Code, e.Signal = 128+int(ws.Signal()), ws.Signal().String()
			}
		case <-signals:
			ask()
			e.Asked = true
		case <-late:
			ask()
			e.Late = true
		case <-kill:
			e.Killed = true
			_ = cmd.Process.Kill()
		}
	}
	e.Left = endChildren()
	if e.Left == 0 {
		out.wait() // nobody is left who could write
	}
	return e
}

// timer fires after d; never if that is 0.
func timer(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// streams are what a runner prints and logs.
type streams struct {
	theirs  []*os.File
	copying sync.WaitGroup
}

func newStreams(dir string, cmd *exec.Cmd) (*streams, error) {
	s := new(streams)
	for name, to := range map[string]*io.Writer{outFile: &cmd.Stdout, logFile: &cmd.Stderr} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			return s, err
		}
		*to = theirs
		s.theirs = append(s.theirs, theirs)
		kept := &bounded{path: filepath.Join(dir, name), most: mostOutput}
		s.copying.Go(func() {
			defer ours.Close()
			defer kept.Close()
			_, _ = io.Copy(kept, ours) // it ends with the last who can write
		})
	}
	return s, nil
}

// started gives up this process's ends, on which nothing is written.
func (s *streams) started() {
	for _, f := range s.theirs {
		f.Close()
	}
}

func (s *streams) wait() { s.copying.Wait() }

// endChildren ends what has become this process's child, and says how many do not end.
func endChildren() (left int) {
	began := time.Now()
	for {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.ECHILD) {
				return 0
			}
			if err != nil || pid == 0 {
				break
			}
		}
		children := children()
		waited := time.Since(began)
		if waited > leaveBound {
			return len(children)
		}
		if waited > leavePause {
			for _, pid := range children {
				_ = unix.Kill(pid, unix.SIGKILL) // a child is not reused before it is waited for
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// children are the processes whose parent this one is.
func children() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	self := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fields := stat(pid); len(fields) > 1 && fields[1] == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat are the fields of a process's stat from the third on: its state, its parent, ...
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}
