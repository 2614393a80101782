package agent

import (
	"context"

	"github.com/everdict/everdict/agent/doctor"
)

// DetectCapabilities looks at what this machine can do, with the environment of the runner ("K=V"; nil takes the
// process's). It is what `everdict doctor` shows, and takes some seconds at most: a container engine that does not
// answer within 3 s is none.
func DetectCapabilities(ctx context.Context, environ []string) []string {
	return doctor.Capabilities(ctx, doctor.Config{Environ: environ})
}
