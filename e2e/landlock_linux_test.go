package e2e

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutLandlock makes this test's program, started again with a command as its arguments, that command on a kernel in
// which Landlock is switched off. Only root can be sent there.
const withoutLandlock = "EVERDICT_TEST_WITHOUT_LANDLOCK"

func init() {
	if os.Getenv(withoutLandlock) == "" {
		return
	}
	os.Unsetenv(withoutLandlock)
	runtime.LockOSThread()
	refused := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(refused)), Filter: &refused[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		fmt.Fprintln(os.Stderr, "no kernel without Landlock:", errno)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, unix.Exec(os.Args[1], os.Args[1:], os.Environ()))
	os.Exit(1)
}
