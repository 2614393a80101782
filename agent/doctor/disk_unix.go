//go:build unix

package doctor

import "golang.org/x/sys/unix"

// FreeBytes is what this user can still write on the disk of dir.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }
