package process

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockScopes is the first version of Landlock that can be asked to restrict signals (Linux 6.12).
const landlockScopes = 6

// landlockThreads is the mended flaw 2 of Landlock: until then it kept a thread from signals to others of its process,
// which Go's runtime needs.
const landlockThreads = 1 << 1

// setApart keeps all that the calling thread will start from processes that it did not start. Those can be listed, but
// neither be signalled nor looked into: not traced, and nothing of them is open in /proc that takes the same right, such
// as their root, their directory, their files and their environment. Whoever becomes another user stays apart from the
// processes of that user.
//
// It is a domain of Landlock, which a thread that may mount can enter without anything else being lost. The kernel lets
// no domain look out, whatever its rules are; one has to have a rule, and the least that a job misses is to signal what it
// did not start. A rule about files would take more: no job could mount, not even in a namespace of its own.
func setApart() error {
	if err := lacking(askLandlock); err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_SIGNAL}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("make a Landlock domain: %w", errno)
	}
	defer unix.Close(int(fd))
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("enter a Landlock domain: %w", errno)
	}
	return nil
}

// askLandlock asks the kernel for its Landlock's version or for the flaws that are mended in it.
func askLandlock(what uintptr) (uintptr, unix.Errno) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, what)
	return v, errno
}

// lacking says why a kernel that gives such answers cannot set anything apart; nil if it can.
func lacking(ask func(what uintptr) (uintptr, unix.Errno)) error {
	version, errno := ask(unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.EOPNOTSUPP:
		return errors.New("Landlock is switched off in this kernel (lsm=)")
	case errno != 0:
		return fmt.Errorf("this kernel has no Landlock: %w", errno)
	case version < landlockScopes:
		return errors.New("this kernel's Landlock has no scopes (Linux 6.12)")
	}
	mended, errno := ask(unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if errno != 0 || mended&landlockThreads == 0 {
		return errors.New("this kernel's Landlock keeps threads of one process apart (mended in Linux 6.15, and in updates of 6.12)")
	}
	return nil
}
