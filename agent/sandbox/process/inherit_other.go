//go:build unix && !linux

package process

import "golang.org/x/sys/unix"

// maxInherited is as far as keepDescriptors looks: who starts a program leaves low
// numbers open.
const maxInherited = 1024

// keepDescriptors makes sure that no command gets a descriptor that this process
// was itself started with: only descriptors that Go opened close on exec.
func keepDescriptors() error {
	for fd := 3; fd < maxInherited; fd++ {
		unix.CloseOnExec(fd) // one that is not open is no error
	}
	return nil
}
