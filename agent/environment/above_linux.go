package environment

import "golang.org/x/sys/unix"

// openSearch opens a directory that may be passed through but not be listed.
const openSearch = unix.O_PATH
