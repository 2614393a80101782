package process

// On Windows the driver refuses every sandbox: without an enclosure that holds a tree of processes, nothing could be
// promised about its end.

import (
	"context"
	"errors"

	"github.com/everdict/everdict/agent/sandbox"
)

// Name is the driver's name.
const Name = "process"

// Config is the configuration of other systems.
type Config struct {
	Enclosure                    string
	CgroupDir                    string
	Slots                        int
	DefaultPIDs, DefaultMemoryMB int64
	NoMask                       bool
	Roster                       string
}

// Driver refuses to start.
type Driver struct{}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a Driver.
func New(Config) *Driver { return &Driver{} }

// Name implements sandbox.Driver.
func (*Driver) Name() string { return Name }

func refuse() error {
	return &sandbox.UnsupportedError{Driver: Name, What: "sandbox", Wanted: "on Windows",
		Reason: "ending a whole tree of processes is not supported on this system; use the docker sandbox"}
}

// Probe returns *sandbox.UnsupportedError.
func (*Driver) Probe() (sandbox.Info, error) { return sandbox.Info{}, refuse() }

// Start returns *sandbox.UnsupportedError.
func (*Driver) Start(context.Context, sandbox.Spec) (sandbox.ComputeHandle, error) {
	return nil, refuse()
}

// Sweep finds nothing, because nothing was ever started.
func (*Driver) Sweep(context.Context, func(string) bool) ([]sandbox.Swept, error) { return nil, nil }

// Close implements sandbox.Driver.
func (*Driver) Close() error { return nil }

// Seclude reports that this system cannot hide files from jobs.
func Seclude(context.Context, bool) error { return errors.ErrUnsupported }

// Enlist reports that this system cannot hide files from jobs.
func Enlist(context.Context, string, ...string) error { return errors.ErrUnsupported }

// Listed reports that this system cannot hide files from jobs.
func Listed(string) ([]string, error) { return nil, errors.ErrUnsupported }

// HideSelf reports that this system cannot hide a process from others of its user.
func HideSelf() error { return errors.ErrUnsupported }
