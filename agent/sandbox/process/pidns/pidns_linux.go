//go:build cgo

package pidns

/*
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Number 1 of a namespace gets no signal from inside that it has no handler for, not even SIGKILL, so it has none. Nobody
// inside may look into it. Its standard input is a pipe that only the runner holds: for each byte it collects the orphans
// that have ended, and with the pipe it ends itself, and the kernel ends all the others.
__attribute__((constructor)) static void first(void)
{
	const char *at = getenv("EVERDICT_PID_NAMESPACE"), *options = getenv("EVERDICT_PROC_OPTIONS");
	if (!at || getpid() != 1)
		return;
	char c;
	int r = 0;
	signal(SIGCHLD, SIG_DFL); // if it was ignored, the kernel would collect
	prctl(PR_SET_NAME, "everdict-init");
	prctl(PR_SET_DUMPABLE, 0);
	if (mount("everdict", at, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
		r = errno;
	dprintf(1, "%d\n", r);
	close(1);
	while (r == 0) {
		ssize_t n = read(0, &c, 1);
		if (n == 0 || (n < 0 && errno != EINTR))
			break;
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			;
	}
	_exit(r);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Init is number 1 of a PID namespace.
type Init struct {
	proc *os.Process
	life *os.File // the end of a pipe that keeps it alive
	ns   *os.File
}

// Start starts number 1 of a new PID namespace, with the mounts and the rights of the calling thread, whose /proc is the
// one that this process is in. It mounts a /proc that shows the namespace at the directory dir. options are options of that file system, such as hidepid.
func Start(dir, options string) (*Init, error) {
	i, err := start(dir, options)
	if err != nil {
		return nil, fmt.Errorf("make a PID namespace: %w", err)
	}
	return i, nil
}

func start(dir, options string) (*Init, error) {
	hold, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	said, say, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	defer said.Close()
	// Not by the program's path, under which there may be another by now.
	proc, err := os.StartProcess("/proc/self/exe", []string{"everdict-init"}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{Mark + "=" + dir, "EVERDICT_PROC_OPTIONS=" + options},
		Files: []*os.File{hold, say, nil},
		// A session of its own: a terminal's Ctrl-C is for the runner.
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Setsid: true},
	})
	_ = say.Close()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	i := &Init{proc: proc, life: life}
	var r int
	if _, err := fmt.Fscanln(said, &r); err != nil {
		i.End()
		return nil, fmt.Errorf("its first process did not begin: %w", err)
	}
	if r != 0 {
		i.End()
		return nil, fmt.Errorf("mount its /proc: %w", syscall.Errno(r))
	}
	if i.ns, err = os.Open(filepath.Join("/proc", strconv.Itoa(proc.Pid), "ns/pid")); err != nil {
		i.End()
		return nil, err
	}
	return i, nil
}

// Join has all that the calling thread starts from now on be born in the namespace. The thread itself stays outside.
func (i *Init) Join() error {
	if err := unix.Setns(int(i.ns.Fd()), unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("join a PID namespace: %w", err)
	}
	return nil
}

// Collect has number 1 collect the orphans that have ended. Until then they can still be looked at. It does not wait.
func (i *Init) Collect() {
	if raw, err := i.life.SyscallConn(); err == nil {
		// A full pipe is one that has not been read: it will be.
		_ = raw.Write(func(fd uintptr) bool { _, _ = unix.Write(int(fd), []byte{0}); return true })
	}
}

// Ended reports whether number 1, and with it everything in the namespace, has ended by itself: nothing can be started
// there any more. It may be called from any thread, until End is.
func (i *Init) Ended() bool {
	var changed unix.Siginfo
	err := unix.Waitid(unix.P_PID, i.proc.Pid, &changed, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || changed.Signo != 0
}

// Pid is its number in the namespace of whoever started it.
func (i *Init) Pid() int { return i.proc.Pid }

// Kill ends everything in the namespace without waiting for it.
func (i *Init) Kill() error { return i.proc.Kill() }

// End ends everything in the namespace, and returns when it is gone. What another process than number 1 has started is
// its parent's to wait for.
func (i *Init) End() {
	_ = i.life.Close()
	_ = i.ns.Close() // of nil: an error without meaning
	_ = i.proc.Kill()
	_, _ = i.proc.Wait()
}

func init() {
	// Children do not inherit the wish.
	os.Unsetenv(Mark)
}
