package doctor

import (
	"os"

	"golang.org/x/sys/windows"
)

// FreeBytes is what this user can still write on the disk of dir.
func FreeBytes(dir string) (free uint64, err error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	return free, windows.GetDiskFreeSpaceEx(p, &free, nil, nil)
}

// writable tries: access lists are not to be foreseen.
func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".everdict-doctor-*")
	if err != nil {
		return false
	}
	return f.Close() == nil && os.Remove(f.Name()) == nil
}
