// Package instance sees to it that a user has one desktop app: the first process holds a lock and listens on a socket that
// only this user can reach, and a second one finds it there.
//
// The lock decides, not the socket: it is the kernel's, ends with the process however that dies, and is held while the
// socket is made, so that a socket that nobody answers is one that somebody left, and can be replaced.
package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/everdict/everdict/agent/private"
	"github.com/everdict/everdict/desktop/peer"
)

// ErrRunning: another process of this user is the app. Hand over to it by its socket.
var ErrRunning = errors.New("instance: the app is running already")

// Instance is the right to be the app.
type Instance struct {
	// Listener is the socket. It takes connections of this user alone.
	Listener net.Listener
	lock     *flock.Flock
}

// Acquire takes the right, and listens at path. Its directory is made for the user alone; one that belongs to somebody
// else, or that others can write to, is refused.
func Acquire(path string) (*Instance, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("instance: %w", err)
	}
	if err := private.Check(dir); err != nil {
		return nil, fmt.Errorf("instance: %w: mend that, or set XDG_RUNTIME_DIR to a directory of your own", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // one that was there may let others in
		return nil, fmt.Errorf("instance: %w", err)
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("instance: lock: %w", err)
	}
	if !held {
		return nil, ErrRunning
	}
	i := &Instance{lock: lock}
	if i.Listener, err = listen(path); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return i, nil
}

func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("instance: remove what a dead app left: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("instance: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("instance: %w", err), l.Close())
	}
	return peer.Listener(l), nil
}

// Close gives the right up. The socket is removed first, so that nobody finds it without an app behind it.
func (i *Instance) Close() error {
	err := i.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // by the server that used it
	}
	return errors.Join(err, i.lock.Unlock())
}
