//go:build unix && !linux

package environment

import "golang.org/x/sys/unix"

// openSearch opens a directory; these systems have nothing for one that may not be listed.
const openSearch = unix.O_RDONLY
