// Package builtin finds the harness that a spec names, among those that every
// runner has.
package builtin

import (
	"maps"
	"slices"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/claudecode"
	"github.com/everdict/everdict/agent/harness/codex"
	"github.com/everdict/everdict/agent/harness/command"
	"github.com/everdict/everdict/agent/harness/scripted"
	"github.com/everdict/everdict/protocol"
)

// adapters are the harnesses of kind process, by adapter name.
var adapters = map[string]func() harness.Harness{
	"scripted":    func() harness.Harness { return scripted.New() },
	"claude-code": func() harness.Harness { return claudecode.New() },
	"codex":       func() harness.Harness { return codex.New() },
}

// Names returns the adapters of kind process, sorted.
func Names() []string { return slices.Sorted(maps.Keys(adapters)) }

// Lookup returns a new harness for one run of the spec. The error is a
// *protocol.Failure of stage install: the spec names something that this runner
// does not have.
func Lookup(spec *protocol.HarnessSpec) (harness.Harness, error) {
	switch spec.Kind {
	case protocol.HarnessCommand:
		return command.New(), nil
	case protocol.HarnessProcess:
		name := spec.Adapter
		if name == "" {
			name = spec.ID
		}
		if make, ok := adapters[name]; ok {
			return make(), nil
		}
		return nil, unsupported("this runner has no harness adapter " + name)
	}
	return nil, unsupported("this runner has no harnesses of kind " + spec.Kind)
}

func unsupported(message string) *protocol.Failure {
	return &protocol.Failure{Stage: protocol.StageInstall, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner,
		Code: protocol.CodeBadRequest, Message: message}
}
