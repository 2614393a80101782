// Package builtin finds the harness that a spec names, among those that every
// runner has.
package builtin

import (
	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/claudecode"
	"github.com/everdict/everdict/agent/harness/codex"
	"github.com/everdict/everdict/agent/harness/command"
	"github.com/everdict/everdict/agent/harness/scripted"
	"github.com/everdict/everdict/protocol"
)

// adapters are the harnesses of kind process, by adapter name.
var adapters = map[string]func() harness.Harness{
	protocol.AdapterScripted:   func() harness.Harness { return scripted.New() },
	protocol.AdapterClaudeCode: func() harness.Harness { return claudecode.New() },
	protocol.AdapterCodex:      func() harness.Harness { return codex.New() },
}

// Lookup returns a new harness for one run of the spec. The error is a
// *protocol.Failure of stage install: the spec names something that this runner
// does not have.
func Lookup(spec *protocol.HarnessSpec) (harness.Harness, error) {
	switch spec.Kind {
	case protocol.HarnessCommand:
		return command.New(), nil
	case protocol.HarnessProcess:
		if make, ok := adapters[spec.AdapterName()]; ok {
			return make(), nil
		}
		return nil, unsupported("this runner has no harness adapter " + spec.AdapterName())
	}
	return nil, unsupported("this runner has no harnesses of kind " + spec.Kind)
}

func unsupported(message string) *protocol.Failure {
	return &protocol.Failure{Stage: protocol.StageInstall, Class: protocol.ClassConfig, Reason: protocol.ReasonUnsupportedByRunner,
		Code: protocol.CodeBadRequest, Message: message}
}
