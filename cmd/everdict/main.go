// Command everdict is the coordinator, the runner and the command line in one
// program.
package main

import (
	"os"

	"github.com/everdict/everdict/agent/sandbox/process"
	"github.com/everdict/everdict/cmd/everdict/cli"
)

// version is set by the build.
var version string

func main() {
	version = cli.Version(version)
	if code, is := asUnit(os.Args[1:]); is {
		os.Exit(code)
	}
	os.Exit(cli.Main(cli.Hooks{
		Version:          version,
		Seclude:          process.Seclude,
		Coordinator:      runCoordinator,
		Runner:           runRunner,
		RotateSecretsKey: rotateSecretsKey,
		Unpair:           unpair,
		Doctor:           runDoctor,
		GC:               runGC,
		Up:               runUp,
		RunLocal:         runLocal,
	}))
}
