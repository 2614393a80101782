// Package home says where the desktop app keeps its files, and keeps small documents in them so that no crash leaves
// half of one.
package home

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/everdict/everdict/agent/private"
)

// Variable is the environment variable that moves everything below one directory, for tests and for a second app.
const Variable = "EVERDICT_DESKTOP_HOME"

// Dirs are the app's directories. None needs to be there.
type Dirs struct {
	// Config holds what the user has decided: settings, connections, and device keys that are in files.
	Config string
	// State holds what the app remembers: the runners' outboxes, the history, the log.
	State string
	// Work holds workspaces of jobs. It lies in none of the others, which no job may see.
	Work string
	// Runtime holds the socket.
	Runtime string
}

// Find finds them for this user, by the rules of the system.
func Find() (Dirs, error) {
	if root := os.Getenv(Variable); root != "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return Dirs{}, fmt.Errorf("home: %s: %w", Variable, err)
		}
		return Below(abs), nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return Dirs{}, fmt.Errorf("home: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Dirs{}, fmt.Errorf("home: %w", err)
	}
	const name = "everdict-desktop"
	d := Dirs{Config: filepath.Join(config, name), Work: filepath.Join(cache, name, "work")}
	switch runtime.GOOS {
	case "windows", "darwin":
		d.State = filepath.Join(d.Config, "state")
		d.Runtime = filepath.Join(d.Config, "run")
	default:
		state := os.Getenv("XDG_STATE_HOME")
		if !filepath.IsAbs(state) { // the specification: a relative one is ignored
			user, err := os.UserHomeDir()
			if err != nil {
				return Dirs{}, fmt.Errorf("home: %w", err)
			}
			state = filepath.Join(user, ".local", "state")
		}
		d.State = filepath.Join(state, name)
		if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
			d.Runtime = filepath.Join(run, name)
		} else {
			d.Runtime = filepath.Join(d.State, "run")
		}
	}
	return d, nil
}

// Below is a home in one directory.
func Below(root string) Dirs {
	return Dirs{Config: filepath.Join(root, "config"), State: filepath.Join(root, "state"), Work: filepath.Join(root, "work"), Runtime: filepath.Join(root, "run")}
}

// Make makes them, for the user alone. Work's parents may be seen by jobs.
func (d Dirs) Make() error {
	for _, dir := range []string{d.Config, d.State, d.Work, d.Runtime} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("home: %w", err)
		}
	}
	return nil
}

// Runner are the directories of the runner of one connection. The name of the work directory is the end of the id alone:
// sockets lie in it on which jobs ask, and the kernel allows a path of 107 bytes, on macOS 103.
func (d Dirs) Runner(id string) (state, work string) {
	return filepath.Join(d.State, "runners", id), filepath.Join(d.Work, id[max(0, len(id)-workName):])
}

// workName is how much of an id names a work directory, in bytes: 50 bits of what is random in it.
const workName = 10

// maxSocketPath is what every system takes as the path of a unix socket: macOS has 104 bytes with the final zero.
const maxSocketPath = 100

// Socket is the path of the socket. A runtime directory that is too deep for one is replaced by a short one, which belongs
// to the user alone as well.
func (d Dirs) Socket() string {
	path := filepath.Join(d.Runtime, "control.sock")
	if len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(d.Runtime))
	return filepath.Join(os.TempDir(), fmt.Sprintf("everdict-desktop-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])), "control.sock")
}

// Private are the directories that no job may see.
func (d Dirs) Private() []string {
	return slices.Compact([]string{d.Config, d.State, d.Runtime, filepath.Dir(d.Socket())})
}

// Log is the path of the log.
func (d Dirs) Log() string { return filepath.Join(d.State, "desktop.log") }

// WriteFile replaces a file by a whole new one, readable by its owner alone. After a crash it is either the old or the
// new one.
func WriteFile(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("home: write %s: %w", filepath.Base(path), err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("home: write %s: %w", filepath.Base(path), err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("home: write %s: %w", filepath.Base(path), errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return private.SyncDir(dir)
}

// Sweep removes what a WriteFile that was killed has left in directories: it can be a key. Nobody else writes meanwhile.
func Sweep(dirs ...string) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // what cannot be read is said by who needs it
		}
		for _, e := range entries {
			if e.Type().IsRegular() && strings.HasPrefix(e.Name(), ".") {
				_ = os.Remove(filepath.Join(dir, e.Name())) // the next start tries again
			}
		}
	}
}
