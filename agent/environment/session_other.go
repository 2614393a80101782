//go:build !unix

package environment

import "os/exec"

// ownSession has nothing to add where processes have no sessions; cancelling
// ends git, and its transports end when their pipes do.
func ownSession(*exec.Cmd) {}
