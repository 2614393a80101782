//go:build unix

package instance

import (
	"fmt"
	"os"
	"syscall"
)

// private checks that a directory is this user's own and that nobody else can put anything into it.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("instance: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("instance: %s is no directory: remove it", dir)
	case !ok || int(st.Uid) != os.Getuid():
		return fmt.Errorf("instance: %s belongs to somebody else: remove it, or set XDG_RUNTIME_DIR", dir)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("instance: %w", err)
		}
	}
	return nil
}
