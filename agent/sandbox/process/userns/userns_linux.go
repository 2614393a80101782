//go:build cgo

package userns

/*
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif

// What became of the wish to enter: 0 there was none, 1 entered, negative: why not (an errno).
static int everdict_userns;

static int put(const char *path, const char *text, int n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = write(fd, text, n) == n ? 0 : -errno;
	close(fd);
	return r;
}

// same maps one id to itself.
static int same(const char *path, unsigned id)
{
	char line[64];
	return put(path, line, snprintf(line, sizeof line, "%u %u 1", id, id));
}

static int enter(unsigned uid, unsigned gid)
{
	int r;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	// A system older than this file needs nobody to forbid it.
	if ((r = put("/proc/self/setgroups", "deny", 4)) < 0 && r != -ENOENT)
		return r;
	if ((r = same("/proc/self/uid_map", uid)) < 0 || (r = same("/proc/self/gid_map", gid)) < 0)
		return r;
	return mount(0, "/", 0, MS_SLAVE | MS_REC, 0) < 0 ? -errno : 0;
}

// keep leaves this process the right to mount, and gives what it starts itself one that is worth nothing in a user
// namespace: with it, jobs, which have none, may not look into those processes. See Shed. A program's file can grant
// rights, too, which then hold in this namespace: those that could uncover something are taken from all that will run.
static int keep(void)
{
	static const int none[] = { CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_PERFMON };
	for (unsigned i = 0; i < sizeof none / sizeof *none; i++)
		if (prctl(PR_CAPBSET_DROP, none[i], 0, 0, 0) < 0 && errno != EINVAL) // older than the right
			return -errno;
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2] = { { 0 }, { 0 } };
	caps[CAP_TO_INDEX(CAP_SYS_ADMIN)].permitted |= CAP_TO_MASK(CAP_SYS_ADMIN);
	caps[CAP_TO_INDEX(CAP_WAKE_ALARM)].permitted |= CAP_TO_MASK(CAP_WAKE_ALARM);
	caps[CAP_TO_INDEX(CAP_WAKE_ALARM)].inheritable = CAP_TO_MASK(CAP_WAKE_ALARM);
	for (int i = 0; i < 2; i++)
		caps[i].effective = caps[i].permitted;
	if (syscall(SYS_capset, &head, caps) < 0)
		return -errno;
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_WAKE_ALARM, 0, 0) < 0 ? -errno : 0;
}

// The kernel lets only a process with one thread enter a user namespace, and Go has several from the start. So it is
// done before Go's runtime begins, tried by a child first: there is no way back. Root has better means than a namespace
// in which its jobs were root, too, whatever the environment asks for.
__attribute__((constructor)) static void before(void)
{
	if (!getenv("EVERDICT_ENTER_USER_NAMESPACE") || geteuid() == 0)
		return;
	unsigned uid = geteuid(), gid = getegid();
	int status, r;
	pid_t child = fork();
	if (child == 0) {
		r = enter(uid, gid);
		if (r == 0)
			r = keep();
		if (r == 0 && mount("everdict", "/", "tmpfs", 0, "size=4k") < 0)
			r = -errno;
		_exit(-r);
	}
	if (child < 0)
		r = -errno;
	else {
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
	}
	if (r == 0 && (r = enter(uid, gid)) == 0)
		r = keep();
	everdict_userns = r == 0 ? 1 : r;
}

static int became(void) { return everdict_userns; }
*/
import "C"

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inside reports whether this process is in a user namespace that it entered itself.
func Inside() bool { return C.became() == 1 }

// Needed reports whether Enter would replace this process by one that is in a namespace of its own: it has no
// privilege, and has not tried.
func Needed() bool { return C.became() == 0 && unix.Geteuid() != 0 }

// Refused says why this process could not enter a user namespace; nil if it is in one, or has not tried.
func Refused() error {
	if r := C.became(); r < 0 {
		return fmt.Errorf("enter a user namespace: %w", syscall.Errno(-r))
	}
	return nil
}

// Enter replaces this process, if it is Needed, by a fresh image of the program, with the same arguments, that begins
// in a user namespace; there Enter does the rest. It is to be called before anything is begun that a new image would
// not know of: descriptors that close on exec, threads, input that was read.
func Enter() error {
	if err := Refused(); err != nil {
		return err
	}
	if Inside() {
		return ownIncludes("/etc/ssh", "ssh_config")
	}
	if !Needed() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("enter a user namespace: %w", err)
	}
	return fmt.Errorf("enter a user namespace: %w", syscall.Exec(self, os.Args, append(os.Environ(), Mark+"=1")))
}

func init() {
	// Children do not inherit the wish.
	os.Unsetenv(Mark)
}

// Shed takes from the calling thread what its children would inherit of this process's privileges. Jobs are started
// by such a thread.
func Shed() error {
	if !Inside() {
		return nil
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("userns: give up what is inherited: %w", err)
	}
	return nil
}
