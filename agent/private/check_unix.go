//go:build unix

package private

import (
	"fmt"
	"os"
	"syscall"
)

// Check says what lets others put something into a directory. Whoever asks knows what to do about it.
func Check(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to somebody else", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s (mode %03o)", dir, info.Mode().Perm())
	}
	return nil
}
