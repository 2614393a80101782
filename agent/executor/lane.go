package executor

import (
	"github.com/everdict/everdict/agent/sandbox"
	"github.com/everdict/everdict/protocol"
)

// Lane is a way to run jobs: a driver, and what its jobs inherit of the runner's
// environment.
type Lane struct {
	Driver  sandbox.Driver
	Environ []string
	// Container says that the host's programs and home are not there: jobs get a
	// home of their own.
	Container bool
}

// homeDir is the job's home in a container, below the attempt's directory.
const homeDir = "home"

// lane chooses where an attempt runs: in an image when the case or the harness
// names one, else in the default lane. What cannot be enforced there is refused.
func (x *execution) lane() (Lane, error) {
	l := x.cfg.Default
	if image := x.image(); image != "" {
		if x.cfg.Images.Driver == nil {
			return l, &sandbox.UnsupportedError{Driver: l.Driver.Name(), What: "image", Wanted: image,
				Reason: "this runner has no container engine: everdict doctor on its machine says why"}
		}
		l = x.cfg.Images
	}
	if n := x.a.Job.Case.Network; n != nil && n.Mode == protocol.NetworkAllowlist {
		return l, &sandbox.UnsupportedError{Driver: l.Driver.Name(), What: "network", Wanted: n.Mode,
			Reason: "no sandbox of this runner can hold a job to a list of hosts"}
	}
	return l, nil
}

// image is the image that the case or else the harness names.
func (x *execution) image() string {
	if i := x.a.Job.Case.Image; i != "" {
		return i
	}
	return x.a.Job.Harness.Image
}
