package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// file is what the outbox needs of an open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// disk opens files for writing; tests put a small one in its place.
type disk interface {
	open(path string, flag int, perm os.FileMode) (file, error)
}

type osDisk struct{}

func (osDisk) open(path string, flag int, perm os.FileMode) (file, error) {
	return os.OpenFile(path, flag, perm)
}

// writeWhole writes b as the whole content of a file, durably if sync is true.
// A failure leaves no file of that name.
func writeWhole(d disk, path string, b []byte, sync bool) error {
	f, err := d.open(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
	}
	return err
}

// overwrite turns a preallocated file into one that holds b alone. It writes
// into the blocks that the file has, so it needs no free space while b fits.
func overwrite(d disk, path string, b []byte) error {
	f, err := d.open(path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// diskError turns an error of a write into a *DiskFullError when that is what
// it is.
func diskError(what, path string, n int, err error) error {
	if err == nil {
		return nil
	}
	if isDiskFull(err) {
		return &DiskFullError{What: what, Path: path, Bytes: int64(n), Err: err}
	}
	return fmt.Errorf("outbox: write %s: %w", what, err)
}

// treeBytes is the size of the files below a directory.
func treeBytes(dir string) int64 {
	var n int64
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile: nothing to count
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
