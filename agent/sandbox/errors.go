package sandbox

import (
	"errors"
	"fmt"
)

var (
	// ErrReleased is returned by what needs a sandbox that has been released.
	ErrReleased = errors.New("sandbox: released")
	// ErrNotFound is returned by Exec for a command or working directory that does not exist.
	ErrNotFound = errors.New("sandbox: not found")
	// ErrEnded is returned by Signal when the process has ended.
	ErrEnded = errors.New("sandbox: process has ended")
	// ErrInUse is returned by Start when the attempt has a live sandbox already.
	ErrInUse = errors.New("sandbox: attempt has a sandbox already")
	// ErrBrokenOff is returned by a Freeze that a Kill did not wait for: what was to stand still has ended.
	ErrBrokenOff = errors.New("sandbox: everything was killed meanwhile")
	// ErrNoDeadline is returned by FreezeAt where nothing but the runner itself can freeze a sandbox.
	ErrNoDeadline = errors.New("sandbox: nothing here freezes by a deadline")
)

// SpecError is a spec or command that no driver can carry out: a mistake of the caller.
type SpecError struct {
	Field  string
	Reason string
}

// Error implements error.
func (e *SpecError) Error() string { return fmt.Sprintf("sandbox: %s: %s", e.Field, e.Reason) }

// UnsupportedError is a declaration that this driver cannot enforce on this machine. The case is refused rather
// than run without it.
type UnsupportedError struct {
	Driver string // "process"
	What   string // what was declared: "memory limit"
	Wanted string // the declared value: "512 MiB"
	Reason string // why it cannot be enforced here
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("sandbox: %s cannot enforce %s %s: %s", e.Driver, e.What, e.Wanted, e.Reason)
}

// ImageError is an image that cannot be run here: it is not known, access to it is denied, it was built for another
// machine. The words are the engine's or the registry's own.
type ImageError struct {
	Image string
	// Words is what the registry or the engine said.
	Words string
	// Retryable is true when another try may succeed: nothing answered, or only for the moment not.
	Retryable bool
}

// Error implements error.
func (e *ImageError) Error() string { return fmt.Sprintf("sandbox: image %s: %s", e.Image, e.Words) }

// OutputError is a Stdout or Stderr writer that failed; the command itself went on with its output discarded.
type OutputError struct {
	Stream string // "stdout" or "stderr"
	Err    error
}

// Error implements error.
func (e *OutputError) Error() string { return fmt.Sprintf("sandbox: write %s: %v", e.Stream, e.Err) }

// Unwrap returns the writer's error.
func (e *OutputError) Unwrap() error { return e.Err }
