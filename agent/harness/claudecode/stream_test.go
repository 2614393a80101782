package claudecode

import (
	"testing"

	"github.com/everdict/everdict/agent/harness"
	"github.com/everdict/everdict/agent/harness/streamtest"
	"github.com/everdict/everdict/protocol"
)

func newStream(emit func(protocol.TraceEvent)) harness.Stream { return NewStream(emit) }

func TestStream(t *testing.T) { streamtest.Run(t, newStream) }

func FuzzStream(f *testing.F) { streamtest.Fuzz(f, newStream) }
