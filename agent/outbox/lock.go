package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// Lock holds a directory as an Outbox would, without opening or changing what is in it. It returns ErrInUse while a
// runner works with the directory. For a directory that does not exist there is nothing to hold.
func Lock(dir string) (release func() error, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

func lockDir(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockFile))
	if ok, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("outbox: lock: %w", err)
	} else if !ok {
		return nil, ErrInUse
	}
	return lock, nil
}
