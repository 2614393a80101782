package agent

import (
	"context"

	"github.com/everdict/everdict/agent/doctor"
)

// DetectCapabilities looks at what this machine can do, with the environment of the runner ("K=V"; nil takes the
// process's), and says of each what was seen. It is what `everdict doctor` shows, and takes some seconds at most: a
// container engine that does not answer within 3 s is none.
func DetectCapabilities(ctx context.Context, environ []string) (names []string, evidence map[string]string) {
	names, evidence = []string{}, map[string]string{}
	for _, c := range doctor.Capabilities(ctx, doctor.Config{Environ: environ}) {
		names = append(names, c.ID)
		evidence[c.ID] = c.Evidence
	}
	return names, evidence
}
