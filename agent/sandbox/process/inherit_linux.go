package process

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepDescriptors makes sure that no command gets a descriptor that this process
// was itself started with: whoever started it may have left a credential, a lock
// or a pipe open, and only descriptors that Go opened close on exec.
func keepDescriptors() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
