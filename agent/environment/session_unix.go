//go:build unix

package environment

import (
	"os/exec"
	"syscall"
)

// ownSession gives git a session of its own: without a terminal nothing that it
// starts can ask for a password, and cancelling ends git's transports with it.
func ownSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
