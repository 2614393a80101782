package codex

import (
	"fmt"
	"testing"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/streamtest"
	"github.com/everdict/everdict/protocol"
)

func newStream(emit func(protocol.TraceEvent)) harness.Stream { return NewStream(emit) }

func TestStream(t *testing.T) { streamtest.Run(t, newStream) }

// Not parallel: it looks at the memory of the process.
func TestF25_TextsAndIDsOfAnyLengthAndNumber(t *testing.T) {
	for name, line := range map[string]string{
		"texts": `{"type":"item.completed","item":{"id":"i","type":"agent_message","text":%q}}`,
		"calls": `{"type":"item.started","item":{"id":%q,"type":"command_execution","command":"ls"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Flood(t, newStream, func(id string) string { return fmt.Sprintf(line, id) })
		})
	}
}

func FuzzStream(f *testing.F) { streamtest.Fuzz(f, newStream) }
