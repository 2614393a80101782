package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// scratchPrefix begins the names of what everdict run makes below the directory for
// temporary files.
const scratchPrefix = "everdict-run-"

// scratchLock is held for as long as its directory is in use.
const scratchLock = "lock"

// newScratch makes the directory in which everdict run keeps its coordinator and its
// runner, and first removes those of commands that were killed. remove ends its use.
func newScratch() (dir string, remove func() error, err error) {
	sweepScratch()
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	// It gets its name when it is held: nobody sees it free before.
	unnamed := filepath.Join(dir, scratchLock+".new")
	lock := flock.New(unnamed, flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked by another process", unnamed)
	}
	if err == nil {
		err = os.Rename(unnamed, filepath.Join(dir, scratchLock))
	}
	remove = func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }
	if err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return dir, remove, nil
}

// sweepScratch removes directories that nobody holds. Others of the machine may have made
// what is found: nothing is created there, no link is followed to what is removed, and
// nothing is waited for.
func sweepScratch() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*")) // the pattern is a good one
	for _, dir := range dirs {
		lock := flock.New(filepath.Join(dir, scratchLock), flock.SetFlag(os.O_RDONLY|syscall.O_NONBLOCK))
		if ok, err := lock.TryLock(); err == nil && ok {
			_ = os.RemoveAll(dir) // the next command tries again
			_ = lock.Close()
		}
	}
}
