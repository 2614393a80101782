package private

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile replaces a file by a whole new one, readable by its owner alone, and makes it
// durable: after a power cut it is either the old or the new one. One goroutine at a time
// writes a path.
func WriteFile(path string, content []byte) (err error) {
	next := path + ".new" // always the same, so that a crash leaves no second copy for ever
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes names in a directory durable. Windows has no such call and needs none:
// its metadata journal orders renames.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
