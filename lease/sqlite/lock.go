package sqlite

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// Holder says which process holds a database.
type Holder struct {
	// PID is the process id on Host; 0 if the holder could not be read.
	PID int `json:"pid"`
	// Host is the host name that the holder's machine gave itself.
	Host string `json:"host"`
	// Since is when the holder opened the database, by the holder's own clock.
	Since time.Time `json:"since"`
}

// String names the holder in a sentence's words: "process 12 on host db1 since 2026-01-02T03:04:05Z".
func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that left no name"
	}
	return fmt.Sprintf("process %d on host %s since %s", h.PID, h.Host, h.Since.UTC().Format(time.RFC3339))
}

// HeldError is returned by [Open] when another process, or another Open of this process, holds the database.
type HeldError struct {
	// Path is the database file.
	Path string
	// Holder is what the lock file says about the holder.
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("sqlite: database %s is in use by %s", e.Path, e.Holder)
}

// lockFile is the exclusive lock beside a database. The operating system drops it with the process, so a crash leaves
// nothing to clean up; the words in it are only for people.
type lockFile struct {
	fl *flock.Flock
}

func acquireLock(database string) (*lockFile, error) {
	path := database + ".lock"
	fl := flock.New(path, flock.SetPermissions(0o600))
	ok, err := fl.TryLock()
	if err != nil {
		return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
	}
	if !ok {
		return nil, &HeldError{Path: database, Holder: readHolder(path)}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	words, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC()})
	if err == nil {
		err = os.WriteFile(path, append(words, '\n'), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: write holder to %s: %w", path, joinUnlock(err, fl))
	}
	return &lockFile{fl: fl}, nil
}

func joinUnlock(err error, fl *flock.Flock) error {
	if uerr := fl.Unlock(); uerr != nil {
		return fmt.Errorf("%w (and unlock: %w)", err, uerr)
	}
	return err
}

// readHolder reads what it can: between a holder's lock and its words there is a moment with none.
func readHolder(path string) Holder {
	var h Holder
	words, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(words, &h) != nil {
		return Holder{}
	}
	return h
}

// release leaves the file in place: removing it would let a third process lock a new file of the same name while a
// second one waits on the old.
func (l *lockFile) release() error {
	if err := l.fl.Unlock(); err != nil {
		return fmt.Errorf("sqlite: unlock: %w", err)
	}
	return nil
}
